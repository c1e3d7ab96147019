"""Files and folders from a server that speaks S3 to s3fs, and extras that are missing."""

from __future__ import annotations

import hashlib
import logging
import random
from pathlib import Path

import pytest

import object_store
from prefork.errors import ModelLoadError
from prefork.fetching import local

LARGE = random.Random(7).randbytes(20_000_000)


@pytest.fixture
def store(monkeypatch, tmp_path):
    with object_store.storing() as found:
        for name, value in {
            "AWS_ENDPOINT_URL": found.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": str(tmp_path / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        found.files["bucket/models/iris/model.bin"] = LARGE
        found.files["bucket/models/iris/labels/names.txt"] = b"setosa"
        found.files["bucket/models/iris2/model.bin"] = b"another"
        yield found


@pytest.fixture
def fetch(store, tmp_path, caplog):
    caplog.set_level(logging.INFO, "prefork")
    return lambda address="s3://bucket/models/iris": local(address, cache=tmp_path / "cache")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_a_folder(fetch, store):
    """A prefix is a folder with all that is below it and nothing beside it; a console's folder markers are no files."""
    store.files["bucket/models/iris/"] = b""
    store.files["bucket/models/iris/labels/"] = b""
    path = fetch()
    assert path.name == "iris"
    assert tree(path) == {"model.bin": LARGE, "labels/names.txt": b"setosa"}


def test_a_file(fetch):
    """A key is a file under its own name."""
    path = fetch("s3://bucket/models/iris/labels/names.txt")
    assert (path.name, path.read_bytes()) == ("names.txt", b"setosa")


def test_only_what_has_changed_is_downloaded(fetch, store):
    """A folder of which one file has changed is another version, and the others are not downloaded again."""
    first = fetch()
    assert fetch() == first
    before = len(store.ranges())
    store.files["bucket/models/iris/labels/names.txt"] = b"virginica"
    second = fetch()
    assert second != first
    assert tree(second) == {"model.bin": LARGE, "labels/names.txt": b"virginica"}
    assert store.ranges()[before:] == ["bytes=0-8"]
    assert (second / "model.bin").samefile(first / "model.bin")


def test_a_file_that_was_taken_away(fetch, store):
    """A file that is no longer there is not in the next version."""
    fetch()
    del store.files["bucket/models/iris/labels/names.txt"]
    assert set(tree(fetch())) == {"model.bin"}


def test_pieces_that_break_off_are_asked_for_again(fetch, store):
    """A large object comes in pieces; when they break off, only what is missing is asked for again."""
    store.cuts = [1000] * 3
    path = fetch("s3://bucket/models/iris/model.bin")
    assert path.read_bytes() == LARGE
    assert len(store.ranges()) > 3
    assert set(store.ranges()) <= {"bytes=0-8388607", "bytes=8388608-16777215", "bytes=16777216-19999999"}


def test_a_damaged_object(fetch, store):
    """An object of which a byte comes wrong does not fit its etag and is downloaded once more."""
    store.damages = 1
    assert fetch("s3://bucket/models/iris/labels/names.txt").read_bytes() == b"setosa"
    assert store.ranges() == ["bytes=0-5", "bytes=0-5"]
    store.damages = 2
    store.files["bucket/models/iris/labels/names.txt"] = b"virginica"
    with pytest.raises(ModelLoadError, match=r"names\.txt: its md5 is [0-9a-f]{32}, and the source says"):
        fetch("s3://bucket/models/iris/labels/names.txt")


def test_the_etag_of_an_encrypted_object_is_no_checksum(fetch, store):
    """The etag of an object under a key of KMS is no MD5, and the object is taken as it came."""
    store.etags["bucket/models/iris/labels/names.txt"] = f'"{"ab" * 16}"'
    store.headers["x-amz-server-side-encryption"] = "aws:kms"
    assert fetch("s3://bucket/models/iris/labels/names.txt").read_bytes() == b"setosa"


def test_the_etag_of_several_parts_is_a_version(fetch, store):
    """The etag of an object that was put in several parts tells of a change, and is no MD5."""
    store.etags["bucket/models/iris/labels/names.txt"] = f'"{"ab" * 16}-3"'
    address = "s3://bucket/models/iris/labels/names.txt"
    assert fetch(address) == fetch(address)
    assert store.ranges() == ["bytes=0-5"]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("../evil", "no path of a file below it"),
        ("a/../../evil", "no path of a file below it"),
        ("/etc/evil", "no path of a file below it"),
        ("a//b", "no path of a file below it"),
        ("a\\b", "no path of a file below it"),
        ("model.bin/evil", "'model.bin' is a file and a folder"),
    ],
)
def test_names_that_lead_elsewhere(fetch, store, tmp_path, key, words):
    """A name that leads out of the folder, or cannot be in one, refuses the whole folder before anything is downloaded."""
    store.files[f"bucket/models/iris/{key}"] = b"evil"
    with pytest.raises(ModelLoadError, match=words):
        fetch()
    assert store.ranges() == []
    assert [each.name for each in tmp_path.rglob("*evil*")] == []


def test_a_folder_that_changes_meanwhile(fetch, store):
    """A file that changes while others are downloaded is downloaded again: no mixture is served."""
    store.changes = {"bucket/models/iris/labels/names.txt": b"changed"}
    assert tree(fetch()) == {"model.bin": LARGE, "labels/names.txt": b"changed"}


def test_nothing_there(fetch):
    """A prefix with nothing below it is an error that says so."""
    with pytest.raises(ModelLoadError, match="s3://bucket/models/other: there is nothing"):
        fetch("s3://bucket/models/other")


def test_a_folder_has_no_checksum(fetch):
    """`#sha256=` at a folder is an error."""
    with pytest.raises(ModelLoadError, match="single file, and this is a folder"):
        fetch(f"s3://bucket/models/iris#sha256={'0' * 64}")


def test_a_pinned_object(fetch):
    """`#sha256=` at a file is checked."""
    digest = hashlib.sha256(b"setosa").hexdigest()
    assert fetch(f"s3://bucket/models/iris/labels/names.txt#sha256={digest}").read_bytes() == b"setosa"


def test_offline_with_a_whole_copy(fetch, store, monkeypatch, caplog):
    """Where nobody listens, the whole folder is served from the copy with a warning."""
    first = fetch()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert fetch() == first
    assert "the copy in" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("address", "module", "extra"),
    [
        ("https://host/m.onnx", "aiohttp", "http"),
        ("s3://bucket/m.onnx", "s3fs", "s3"),
        ("gs://bucket/m.onnx", "gcsfs", "gcs"),
        ("hf://org/m", "huggingface_hub", "hf"),
        ("s3://bucket/m.onnx", "fsspec", "s3"),
    ],
)
def test_a_missing_extra(tmp_path, monkeypatch, address, module, extra):
    """Where the library of a scheme is not installed, the error names the extra and the command that installs it."""
    (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError('No module named {module}')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ModelLoadError) as caught:
        local(address, cache=tmp_path / "cache")
    assert str(caught.value).endswith(f"needs the extra {extra}: pip install 'prefork[{extra}]'")
