"""The store of what was fetched, addressed by content; whatever stands under its final name is whole and checked.

    blobs/<sha256>            the bytes of a file, read-only, its time set to one moment so that a change shows
    trees/<digest>/<name>     one fetched version, made of hard links to blobs (copies where there are no links)
    addresses/<key>.json      what an address gave last: its tree, and the version and checksum of each file
    partial/<key>.<file>      what has come of a file so far
    locks/<key>               held while an address is being fetched; `commit` while a tree is put in its place

Everything is written under another name, synced and renamed. The store can be removed as a whole when no server uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from prefork.errors import ModelLoadError
from prefork.fetching.digests import sha256_of
from prefork.fetching.location import Location

_FOLDERS = ("blobs", "trees", "addresses", "partial", "locks")
_MOMENT = 1_000_000_000 * 10**9
"""The time of modification of every blob, in nanoseconds."""


class Kept(msgspec.Struct, frozen=True):
    """One file of a fetched version. name: its path in the tree; version: what the source called its state, or empty."""

    name: str
    size: int
    version: str
    sha256: str


class Entry(msgspec.Struct, frozen=True):
    """What an address gave. name: the last part of the path that is served; is_folder: whether the files are below it."""

    address: str
    name: str
    is_folder: bool
    files: tuple[Kept, ...]

    @property
    def tree(self) -> str:
        """The digest of the version: the names and the contents of all files."""
        lines = [
            f"{'folder' if self.is_folder else 'file'} {self.name}",
            *sorted(f"{each.sha256} {each.name}" for each in self.files),
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


class Cache:
    """A store in a folder, which is made where it is not there. Raises ModelLoadError where it cannot be written to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for each in _FOLDERS:
                (self.folder / each).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ModelLoadError(f"model_cache: {folder}: {error.strerror}; say --model-cache") from None

    @contextlib.contextmanager
    def lock(self, name: str, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Be alone with an address's key, or with `commit`; `waits` is called where somebody else is at it."""
        try:
            descriptor = os.open(self.folder / "locks" / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ModelLoadError(f"model_cache: {self.folder}: {error.strerror}; say --model-cache") from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def entry(self, location: Location) -> Entry | None:
        """What the address gave last; None where it never did."""
        try:
            return msgspec.json.decode(self._index(location).read_bytes(), type=Entry)
        except (OSError, msgspec.DecodeError):
            return None

    def path(self, entry: Entry) -> Path:
        """Where its version is served from."""
        return self.folder / "trees" / entry.tree / entry.name

    def is_whole(self, entry: Entry) -> bool:
        """Whether every file of its tree is there as it was put there. What was touched since is read and checked."""
        return all(_is_intact(self._placed(entry, each), each) for each in entry.files)

    def has(self, sha256: str) -> bool:
        """Whether the content is there; one that is damaged is removed."""
        path = self.folder / "blobs" / sha256
        kept = Kept("", path.stat().st_size if path.exists() else -1, "", sha256)
        if _is_intact(path, kept):
            return True
        path.unlink(missing_ok=True)
        return False

    def size(self, sha256: str) -> int:
        """Bytes of a content that is there."""
        return (self.folder / "blobs" / sha256).stat().st_size

    def partial(self, location: Location, what: str) -> Path:
        """Where a file of the address is gathered; `what` tells it and its version from others."""
        return self.folder / "partial" / f"{location.key}.{hashlib.sha256(what.encode()).hexdigest()[:32]}"

    def forget(self, location: Location, *, but: set[Path]) -> None:
        """Remove what was gathered for other versions of the address."""
        for each in (self.folder / "partial").glob(f"{location.key}.*"):
            if each not in but:
                each.unlink(missing_ok=True)

    def keep(self, partial: Path, sha256: str) -> None:
        """Make a file that is whole and checked a blob, unless there is one with that content."""
        if self.has(sha256):
            partial.unlink()
            return
        partial.chmod(0o444)
        os.utime(partial, ns=(_MOMENT, _MOMENT))
        _sync(partial)
        partial.rename(self.folder / "blobs" / sha256)
        _sync(self.folder / "blobs")

    def commit(self, location: Location, entry: Entry) -> Path:
        """Put its tree in its place and remember it for the address. The blobs have to be there."""
        with self.lock("commit"):
            if not self.is_whole(entry):
                self._build(entry)
        index = self._index(location)
        beside = index.with_suffix(".new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(entry)))
        beside.chmod(0o600)
        _sync(beside)
        beside.rename(index)
        _sync(index.parent)
        return self.path(entry)

    def free(self) -> int:
        """Bytes that the file system has left."""
        return shutil.disk_usage(self.folder).free

    def _index(self, location: Location) -> Path:
        return self.folder / "addresses" / f"{location.key}.json"

    def _placed(self, entry: Entry, kept: Kept) -> Path:
        return self.path(entry) / kept.name if entry.is_folder else self.path(entry)

    def _build(self, entry: Entry) -> None:
        """Whoever holds the lock `commit` is the only one who builds, so what is left under these names is of the dead."""
        trees = self.folder / "trees"
        for left in (trees / ".new", trees / ".old"):
            shutil.rmtree(left, ignore_errors=True)
        top = trees / ".new" / entry.name
        for each in entry.files:
            place = top / each.name if entry.is_folder else top
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _link(self.folder / "blobs" / each.sha256, place)
        for folder in {trees / ".new", *(each.parent for each in (trees / ".new").rglob("*"))}:
            _sync(folder)
        final = trees / entry.tree
        if final.exists():
            final.rename(trees / ".old")
        (trees / ".new").rename(final)
        _sync(trees)
        shutil.rmtree(trees / ".old", ignore_errors=True)


def _is_intact(path: Path, kept: Kept) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    if status.st_size != kept.size or path.is_symlink():
        return False
    return status.st_mtime_ns == _MOMENT or sha256_of(path) == kept.sha256


def _link(blob: Path, place: Path) -> None:
    try:
        place.hardlink_to(blob)
    except OSError:
        # File systems without hard links, or a blob that has as many as it can have.
        shutil.copyfile(blob, place)
        place.chmod(0o444)
        os.utime(place, ns=(_MOMENT, _MOMENT))
        _sync(place)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
