"""Whether a version has changed, told without reading its files."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from prefork.repository import fingerprint, folder
from repository_files import MODEL, put

FILES = {"model.yaml": "versions: all", "shared.txt": "s", "1/model.py": MODEL, "1/w/a.bin": "one", "2/model.py": MODEL}


def fingerprints(model: Path) -> dict[int, str]:
    return {number: version.fingerprint for number, version in folder.read(model, "m").versions.items()}


def changed(model: Path, before: dict[int, str]) -> set[int]:
    after = fingerprints(model)
    return {number for number in before.keys() | after.keys() if before.get(number) != after.get(number)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return put(tmp_path / "m", FILES)


def test_nothing_has_changed(model: Path):
    """Looking twice, and reading the files, changes nothing."""
    before = fingerprints(model)
    (model / "1/model.py").read_text()
    assert changed(model, before) == set()
    assert before[1] != before[2]


@pytest.mark.parametrize(
    ("path", "text", "versions"),
    [
        ("1/model.py", MODEL + "# more", {1}),
        ("1/w/a.bin", "three", {1}),
        ("1/w/b.bin", "", {1}),
        ("2/new/deep/c.bin", "", {2}),
        ("shared.txt", "t", {1, 2}),
        ("lib/helper.py", "", {1, 2}),
        ("model.yaml", "versions: all\nthreads: 2", {1, 2}),
        ("model.yaml", "versions: all\nbatching: {priority_levels: 1, priority_queues: {1: {max_queue: 2}}}", {1, 2}),
        ("model.yaml", "versions: [1, 2]", set()),
        ("model.yaml", "# a remark\nversions: all", set()),
        ("model.yaml", "versions: [2]", {1}),
        ("3/model.py", MODEL, {3}),
        ("1/__pycache__/model.cpython-311.pyc", "x", set()),
        ("1/.cache/x", "x", set()),
        (".git/HEAD", "x", set()),
        ("1/w/.a.bin.tmp", "x", set()),
    ],
)
def test_what_changes(model: Path, path: str, text: str, versions: set[int]):
    """A version's own files change it, files outside of version folders and the config change all; what is merely written differently changes none."""
    before = fingerprints(model)
    put(model, {path: text})
    assert changed(model, before) == versions


def test_a_file_that_goes(model: Path):
    """A removed file changes its version, a removed version is gone."""
    before = fingerprints(model)
    (model / "1/w/a.bin").unlink()
    shutil.rmtree(model / "2")
    assert changed(model, before) == {1, 2}


@pytest.mark.parametrize("age", [0, -1000, 1000])
def test_a_replaced_folder_with_older_or_equal_times(model: Path, age: int):
    """A version's folder that another took the place of is another, whatever its times and sizes say."""
    before = fingerprints(model)
    paths = [*sorted((model / "1").rglob("*")), model / "1"]
    times = {path.relative_to(model): path.stat().st_mtime_ns + age * 10**9 for path in paths}
    (model / "1").rename(model.parent / "old")
    put(model, {path: text for path, text in FILES.items() if path.startswith("1/")})
    for path, when in times.items():
        os.utime(model / path, ns=(when, when))
    assert changed(model, before) == {1}


def test_a_file_written_in_place_with_its_old_time(model: Path):
    """A file that is overwritten by as many bytes, and given its time back, is another all the same."""
    before = fingerprints(model)
    path = model / "1/w/a.bin"
    first = path.stat()
    deadline = time.monotonic() + 10
    while path.stat().st_ctime_ns == first.st_ctime_ns:  # a file system's clock has ticks of some milliseconds
        assert time.monotonic() < deadline
        path.write_text("two")
        os.utime(path, ns=(first.st_mtime_ns, first.st_mtime_ns))
    assert changed(model, before) == {1}


def test_links_are_followed(model: Path, tmp_path: Path):
    """A link counts for what it leads to; one that leads nowhere, or in a circle, is no trouble."""
    put(tmp_path / "store", {"a/w.bin": "1", "b/w.bin": "2"})
    (model / "1/link").symlink_to(tmp_path / "store/a")
    (model / "1/nowhere").symlink_to(tmp_path / "nothing")
    (model / "1/circle").symlink_to(model / "1")
    before = fingerprints(model)
    assert changed(model, before) == set()
    put(tmp_path / "store", {"a/w.bin": "changed"})
    assert changed(model, before) == {1}
    before = fingerprints(model)
    (model / "1/link").unlink()
    (model / "1/link").symlink_to(tmp_path / "store/b")
    assert changed(model, before) == {1}


def test_a_folder_that_is_not_there(tmp_path: Path):
    """What is not there has the empty stamp, an empty folder has not."""
    assert fingerprint.folder(tmp_path / "none") == ""
    assert fingerprint.folder(put(tmp_path / "empty", {})) != ""
