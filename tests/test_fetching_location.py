"""What an address means."""

from __future__ import annotations

import hashlib

import pytest

from prefork.errors import ModelLoadError
from prefork.fetching import is_remote, local
from prefork.fetching.location import read

PIN = "ab" * 32


@pytest.mark.parametrize(
    ("address", "scheme", "name", "shown"),
    [
        ("https://host/models/iris.onnx", "https", "iris.onnx", "https://host/models/iris.onnx"),
        ("HTTP://host/a%20b.onnx", "http", "a b.onnx", "http://host/a%20b.onnx"),
        ("https://ann:secret@host/m.onnx?signature=xyz", "https", "m.onnx", "https://host/m.onnx"),
        ("s3://bucket", "s3", "bucket", "s3://bucket"),
        ("s3://bucket/models/iris/", "s3", "iris", "s3://bucket/models/iris"),
        ("gs://bucket/iris", "gs", "iris", "gs://bucket/iris"),
        ("hf://org/iris@v2", "hf", "iris", "hf://org/iris@v2"),
        ("hf://org/iris@v2/model.onnx", "hf", "model.onnx", "hf://org/iris@v2/model.onnx"),
    ],
)
def test_remote_addresses(address, scheme, name, shown):
    """An address has a scheme and a name to be served from; its password and its query are not shown."""
    found = read(address)
    assert (found.scheme, found.name, found.shown) == (scheme, name, shown)
    assert is_remote(address)


def test_a_slash_at_the_end_is_the_same_folder():
    """`s3://bucket/iris/` and `s3://bucket/iris` are one address in the store, another bucket is another."""
    assert read("s3://bucket/iris/").key == read("s3://bucket/iris").key
    assert read("s3://bucket/iris").key != read("s3://other/iris").key


def test_the_checksum_is_no_part_of_the_address():
    """`#sha256=` is taken off, in any case of its digits, and the address stays the same one."""
    found = read(f"s3://bucket/iris.onnx#sha256={PIN.upper()}")
    assert (found.address, found.sha256) == ("s3://bucket/iris.onnx", PIN)
    assert found.key == read("s3://bucket/iris.onnx").key


@pytest.mark.parametrize("address", ["Iris", "pkg.module:Class", "models/iris.onnx", "/srv/iris", "file:///srv/iris"])
def test_what_is_not_remote(address):
    """A class, a path and a `file://` are on this machine."""
    assert not is_remote(address)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ftp://host/m", "ftp:// is not known"),
        ("s3://", "does not end with the name"),
        ("s3://bucket/..", "does not end with the name"),
        ("https://host", "fetches one file"),
        ("https://host/models/", "fetches one file"),
        ("https://host/..%2F..%2Fetc", "does not end with the name"),
        ("file://host/srv/m", "three slashes"),
        ("file://", "no path"),
        ("s3://bucket/m#sha256=12", "64 hexadecimal digits"),
    ],
)
def test_addresses_that_cannot_be_meant(address, words):
    """An address that cannot be meant is one line that says what is wrong with it."""
    with pytest.raises(ModelLoadError, match=words) as caught:
        read(address)
    assert "\n" not in str(caught.value)


def test_a_path_is_itself(tmp_path):
    """A path and a `file://` to what is there are returned as they are, folders too."""
    model = tmp_path / "my model.onnx"
    model.write_bytes(b"x")
    assert local(str(model), cache=tmp_path / "cache") == model
    assert local(f"file://{tmp_path}/my%20model.onnx", cache=tmp_path / "cache") == model
    assert local(str(tmp_path), cache=tmp_path / "cache") == tmp_path
    assert not (tmp_path / "cache").exists()


def test_a_path_that_is_not_there(tmp_path):
    """A path to nothing is an error that names it."""
    with pytest.raises(ModelLoadError, match=r"gone\.onnx: No such file"):
        local(f"file://{tmp_path}/gone.onnx", cache=tmp_path / "cache")


def test_the_checksum_of_a_path(tmp_path):
    """A file here is checked against its `#sha256=`; a mismatch names both, and a folder has none."""
    model = tmp_path / "m.onnx"
    model.write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    assert local(f"{model}#sha256={digest}", cache=tmp_path) == model
    with pytest.raises(ModelLoadError, match=f"SHA-256 is {digest}, and {PIN} was asked for"):
        local(f"{model}#sha256={PIN}", cache=tmp_path)
    with pytest.raises(ModelLoadError, match="a single file"):
        local(f"{tmp_path}#sha256={PIN}", cache=tmp_path)
