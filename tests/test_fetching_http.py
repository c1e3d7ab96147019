"""Files from an HTTP server into the store, and all that goes wrong on the way."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import random
from pathlib import Path

import pytest

import object_store
from prefork.errors import ModelLoadError
from prefork.fetching import local
from prefork.fetching.progress import Progress
from running import wait_until

CONTENT = random.Random(5).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with object_store.storing() as found:
        found.files["models/m.onnx"] = CONTENT
        yield found


@pytest.fixture
def fetch(store, tmp_path, caplog):
    """Fetch the model, or what the end of an address says, into one store."""
    caplog.set_level(logging.INFO, "prefork")
    return lambda end="models/m.onnx": local(f"{store.url}/{end}", cache=tmp_path / "cache")


def left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "partial").glob("*"))  # which may not be there yet


def arrived(tmp_path: Path, size: int) -> None:
    """Wait until so many bytes are on the disk: what a client has read only is lost when a connection breaks off."""
    wait_until(lambda: [each.stat().st_size for each in left(tmp_path)] == [size], "what was sent")


def test_a_file(fetch, store, tmp_path, caplog):
    """A file is downloaded in one request and lies under its own name, read-only; its content is named by its checksum."""
    path = fetch()
    assert path.name == "m.onnx"
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o444
    assert (tmp_path / "cache" / "blobs" / SHA256).samefile(path)
    assert store.ranges() == [""]
    assert left(tmp_path) == []
    assert caplog.messages[0] == f"{store.url}/models/m.onnx: downloading 1 file (2.9 MiB)"


def test_an_unchanged_file_is_not_downloaded_again(fetch, store):
    """The same address with the same etag gives the same path, and no body is asked for."""
    first = fetch()
    assert fetch() == first
    assert store.ranges() == [""]


def test_a_changed_file_is_downloaded_and_the_old_one_stays(fetch, store):
    """Another etag is another version at another path; who serves the old one keeps it."""
    first = fetch()
    store.files["models/m.onnx"] = b"new" + CONTENT
    second = fetch()
    assert second != first
    assert (first.read_bytes(), second.read_bytes()) == (CONTENT, b"new" + CONTENT)


def test_without_a_version_it_is_downloaded_each_time(fetch, store):
    """A server that says neither etag nor date is asked for the whole file each time, and the content is kept once."""
    store.etags["models/m.onnx"] = ""
    assert fetch() == fetch()
    assert store.ranges() == ["", ""]


def test_a_connection_that_breaks_off_is_resumed(fetch, store, tmp_path, caplog):
    """What has come is kept, and only the rest is asked for, as often as it takes."""
    sizes = iter([1_000_000, 1_500_000])
    store.cuts = [1_000_000, 500_000]
    store.before_cut = lambda: arrived(tmp_path, next(sizes))
    assert fetch().read_bytes() == CONTENT
    assert store.ranges() == ["", "bytes=1000000-", "bytes=1500000-"]
    assert sum("broke off after" in message for message in caplog.messages) == 2


def test_a_server_without_ranges_is_read_from_the_start(fetch, store):
    """Where the server knows no ranges, the file is read anew and is whole."""
    store.knows_ranges = False
    store.cuts = [1_000_000]
    assert fetch().read_bytes() == CONTENT
    assert len(store.ranges()) == 2


def test_a_weak_etag_is_not_resumed(fetch, store):
    """A weak etag does not promise the same bytes: the file is read anew."""
    store.etags["models/m.onnx"] = 'W/"1"'
    store.cuts = [1_000_000]
    assert fetch().read_bytes() == CONTENT
    assert store.ranges() == ["", ""]


def test_a_server_that_gives_no_byte_is_given_up(fetch, store, tmp_path):
    """After seven tries in a row that bring nothing there is an error and nothing is served; what came stays for the next time."""
    store.cuts = [1_000_000, *[0] * 7]
    store.before_cut = lambda: arrived(tmp_path, 1_000_000)
    with pytest.raises(ModelLoadError, match=r"m\.onnx: ClientPayloadError"):
        fetch()
    assert len(store.ranges()) == 8
    assert list((tmp_path / "cache" / "trees").iterdir()) == []
    assert [each.stat().st_size for each in left(tmp_path)] == [1_000_000]
    assert fetch().read_bytes() == CONTENT
    assert store.ranges() == ["", *["bytes=1000000-"] * 8]


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (403, 1), (503, 3)])
def test_refusals(fetch, store, status, tries):
    """What is not there or not for us is an error at once, what may pass is tried three times; the status is in the message."""
    del store.files["models/m.onnx"]
    store.refusals = [status] * tries
    with pytest.raises(ModelLoadError, match=f"HTTP {status}"):
        fetch()
    assert len(store.ranges()) == tries
    assert store.refusals == []


def test_damaged_on_the_way(fetch, store, caplog):
    """Bytes that do not fit the checksum that the server gives are thrown away and come once more."""
    store.headers["Content-MD5"] = base64.b64encode(hashlib.md5(CONTENT).digest()).decode()
    store.damages = 1
    assert fetch().read_bytes() == CONTENT
    assert store.ranges() == ["", ""]
    assert any("downloaded once more" in message for message in caplog.messages)


def test_damaged_for_good(fetch, store, tmp_path):
    """What does not fit twice is an error that names both checksums, and nothing of it is kept."""
    store.headers["Digest"] = "sha-256=" + base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()
    store.damages = 2
    with pytest.raises(ModelLoadError, match=f"sha256 is [0-9a-f]{{64}}, and the source says {SHA256}"):
        fetch()
    assert left(tmp_path) == []
    assert list((tmp_path / "cache" / "blobs").iterdir()) == []


def test_a_checksum_that_fits_is_not_asked_about_again(fetch, store):
    """A pinned file is served without asking once it is there; the server may be gone."""
    first = fetch(f"models/m.onnx#sha256={SHA256}")
    asked = len(store.asked)
    assert fetch(f"models/m.onnx#sha256={SHA256}") == first
    assert len(store.asked) == asked


def test_a_checksum_that_differs(fetch, store, tmp_path):
    """A mismatch names both checksums; nothing is kept, also where the file was there without the pin."""
    wrong = "0" * 64
    for _ in range(2):
        with pytest.raises(ModelLoadError, match=f"SHA-256 is {SHA256}, and {wrong} was asked for"):
            fetch(f"models/m.onnx#sha256={wrong}")
        assert left(tmp_path) == []
        fetch()


def test_offline_with_a_whole_copy(fetch, store, caplog):
    """Where the server cannot be reached, the copy is served with a warning."""
    first = fetch()
    store.refusals = [503] * 3
    store.files.clear()
    assert fetch() == first
    assert caplog.records[-1].levelno == logging.WARNING
    assert "the copy in" in caplog.messages[-1]


def test_nobody_listens(store, tmp_path, caplog):
    """Where nobody listens, a whole copy is served, and without one the error says so."""
    address = f"{store.url}/models/m.onnx"
    first = local(address, cache=tmp_path / "cache")
    store.shutdown()
    store.server_close()
    assert local(address, cache=tmp_path / "cache") == first
    with pytest.raises(ModelLoadError, match="Cannot connect"):
        local(address, cache=tmp_path / "other")


def test_what_is_gone_is_not_served_from_the_copy(fetch, store):
    """A 404 is an answer: the copy is not served for it."""
    fetch()
    store.files.clear()
    with pytest.raises(ModelLoadError, match="HTTP 404"):
        fetch()


@pytest.mark.parametrize("how", ["cut short", "changed", "removed"])
def test_a_damaged_copy_is_fetched_again(fetch, store, how):
    """A copy that was cut, changed or removed is never served; it is downloaded again."""
    path = fetch()
    path.chmod(0o644)
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(CONTENT[:100] if how == "cut short" else b"\0" + CONTENT[1:])
    again = fetch()
    assert again.read_bytes() == CONTENT
    assert store.ranges() == ([""] if how == "removed" else ["", ""])


def test_a_copy_that_was_only_touched(fetch, store):
    """A copy whose time has changed and whose content has not is served."""
    path = fetch()
    os.utime(path)
    assert fetch() == path
    assert store.ranges() == [""]


def test_a_damaged_copy_offline(fetch, store):
    """Without the server, a damaged copy is an error."""
    path = fetch()
    path.chmod(0o644)
    path.write_bytes(CONTENT[:-1])
    store.refusals = [503] * 3
    store.files.clear()
    with pytest.raises(ModelLoadError, match="HTTP 503"):
        fetch()


def test_signed_addresses_are_not_shown(fetch, store, tmp_path, caplog):
    """The query of an address is used and stands neither in the log nor in the store."""
    fetch("models/m.onnx?signature=secret")
    assert any("secret" in path for _, path, _ in store.asked)
    assert "secret" not in caplog.text
    texts = [each.read_text() for each in (tmp_path / "cache" / "addresses").iterdir()]
    assert len(texts) == 1
    assert "secret" not in texts[0]


def test_progress_is_told(store, tmp_path):
    """A progress that is given learns the total and ends with all of it."""
    progress = Progress("iris")
    local(f"{store.url}/models/m.onnx", cache=tmp_path, progress=progress)
    assert (progress.total, progress.done) == (len(CONTENT), len(CONTENT))


def test_a_cache_that_cannot_be(store, tmp_path):
    """A cache that cannot be made is an error that names the setting."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelLoadError, match=r"model_cache: .*; say --model-cache"):
        local(f"{store.url}/models/m.onnx", cache=tmp_path / "file" / "cache")
