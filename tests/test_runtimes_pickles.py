"""Pickles are code: they are known without being run, and not run where others could have written them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pickle
import stat
import zlib
from pathlib import Path

import lz4.frame
import pytest

from prefork.errors import ModelLoadError
from prefork.runtimes import pickles
from saved_files import ESTIMATOR

OTHER = os.geteuid() + 4321
"""A user who owns nothing here."""


class Trap:
    """Runs code when it is read."""

    def __reduce__(self):
        return (os.abort, ())


@pytest.fixture
def file(tmp_path) -> Path:
    """A pickle in a folder of its own, which nobody else can write."""
    folder = tmp_path / "models"
    folder.mkdir(mode=0o755)
    path = folder / "model.pkl"
    path.write_bytes(ESTIMATOR)
    path.chmod(0o644)
    return path


def refusal(path: Path, user: int | None = None) -> str:
    with pytest.raises(ModelLoadError) as raised:
        pickles.check_safe(path, allowed=False, user=user)
    return str(raised.value)


# --- what they are


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_packages_are_read_without_running_anything(tmp_path, protocol):
    """The packages of the classes in a pickle are found; what it would run is not run."""
    path = tmp_path / "trap.pkl"
    path.write_bytes(pickle.dumps(Trap(), protocol))
    assert pickles.packages(path) == {"posix"}


@pytest.mark.parametrize(
    "pack",
    [
        bytes,
        gzip.compress,
        bz2.compress,
        zlib.compress,
        lzma.compress,
        lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
        lz4.frame.compress,
    ],
)
def test_packed_pickles_are_known(tmp_path, pack):
    """As joblib packs them: gzip, bz2, zlib, xz, lzma and lz4."""
    path = tmp_path / "model"
    path.write_bytes(pack(ESTIMATOR))
    assert pickles.is_pickle(path)
    assert pickles.packages(path) == {"sklearn"}


@pytest.mark.parametrize(
    "content", [b"", b"\x80", b"\x80\x09abc", b"hello", b"\x78\x9cnot zlib", b"\x5d\x00short", b"\x04\x22\x4d\x18short"]
)
def test_what_is_no_pickle_names_nothing(tmp_path, content):
    """Any bytes may be asked about."""
    path = tmp_path / "model"
    path.write_bytes(content)
    assert pickles.packages(path) == set()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("before", [0, (1 << 20) - 40, 1 << 20, 3 << 20])
@pytest.mark.parametrize("pack", [bytes, lambda data: gzip.compress(data, 1), lambda data: zlib.compress(data, 1)])
def test_the_version_is_found_wherever_it_stands(tmp_path, protocol, before, pack):
    """Also behind a large array, across the pieces that are read, and packed."""
    path = tmp_path / "model"
    path.write_bytes(pack(pickle.dumps([b"\0" * before, {"_version": "1.2.0rc1", "more": None}], protocol)))
    assert pickles.written_by(path, "_version") == "1.2.0rc1"


def test_a_version_that_is_not_there_is_empty(tmp_path):
    """Another key's is not taken for it."""
    path = tmp_path / "model"
    path.write_bytes(pickle.dumps({"_other": "1.2.0"}))
    assert pickles.written_by(path, "_version") == ""


# --- whether they may be read


def test_a_file_of_ones_own_is_read(file):
    """In folders that nobody else can write, /tmp with its sticky bit among them."""
    pickles.check_safe(file, allowed=False)


@pytest.mark.parametrize("at", ["model.pkl", "", ".."])
def test_what_everybody_can_write_is_refused(file, at):
    """The file, its folder, and one above it; the message names it and what helps."""
    place = (file.parent / at).resolve()
    place.chmod(place.stat().st_mode | stat.S_IWOTH)
    said = refusal(file)
    assert f"everybody can write {place}" in said
    assert "chmod o-w" in said
    assert "allow_pickle" in said


def test_what_is_allowed_is_read(file):
    """Whoever can write it."""
    file.chmod(0o666)
    pickles.check_safe(file, allowed=True)


def test_a_sticky_folder_is_as_good_as_ones_own(file):
    """Nobody can replace another's file in it; a file that everybody can write stays refused."""
    file.parent.chmod(0o1777)
    pickles.check_safe(file, allowed=False)
    file.chmod(0o666)
    assert "everybody can write" in refusal(file)


def test_a_file_of_another_user_is_refused(file):
    """Who owns it can change it; root's are trusted, and root reads what others own."""
    if os.geteuid() == 0:
        os.chown(file, OTHER, -1)
    asks = OTHER + 1
    assert f"belongs to another user (uid {file.stat().st_uid})" in refusal(file, user=asks)
    pickles.check_safe(file, allowed=False, user=0)


def test_a_link_is_followed_and_its_own_place_counts(file, tmp_path):
    """Whoever can write the folder that a link lies in chooses what is read."""
    public = tmp_path / "public"
    public.mkdir()
    link = public / "model.pkl"
    link.symlink_to(file)
    pickles.check_safe(link, allowed=False)
    public.chmod(0o777)
    assert f"everybody can write {public}" in refusal(link)


def test_a_link_in_the_middle_counts(file, tmp_path):
    """Also when a folder on the way is a link that lies where everybody can write, and a relative one."""
    public = tmp_path / "public"
    public.mkdir()
    (public / "current").symlink_to("../models")
    (tmp_path / "served").symlink_to(public / "current")
    path = tmp_path / "served" / "model.pkl"
    pickles.check_safe(path, allowed=False)
    public.chmod(0o777)
    assert f"everybody can write {public}" in refusal(path)


def test_a_folder_is_looked_at_whole(file):
    """Any file in it may be what runs code."""
    inner = file.parent / "code"
    inner.mkdir()
    (inner / "steps.py").write_text("")
    pickles.check_safe(file.parent, allowed=False)
    (inner / "steps.py").chmod(0o666)
    assert f"everybody can write {inner / 'steps.py'}" in refusal(file.parent)
