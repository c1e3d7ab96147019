"""One file into a partial one beside it, resumed from what is there, tried again with back-off while that gets anywhere."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from prefork.errors import ModelLoadError
from prefork.fetching.digests import digests_of
from prefork.fetching.progress import amount
from prefork.fetching.report import Report
from prefork.fetching.source import Broken, Listed, Source, is_final, reason

_Answer = TypeVar("_Answer")

ATTEMPTS = 7
"""In a row that bring no byte, before a download is given up; what has come stays for the next one."""
_FIRST, _LONGEST = 0.1, 10.0
_SYNCED = 64 << 20


def download(source: Source, file: Listed, partial: Path, report: Report, before: int) -> str:
    """Have all bytes of a file in `partial`, checked; its SHA-256.

    before: bytes of other files that are there, for the progress. Raises ModelLoadError for what does not match what the
    source tells, and whatever the source raises when it has been asked often enough.
    """
    for attempt in (1, 2):
        _Gathering(source, file, partial, report).run(lambda there: report.at(before + there))
        found = _read_again(file, partial, functools.partial(report.at, before + _size(partial)))
        wrong = [kind for kind, digest in file.digests.items() if found[kind] != digest]
        if not wrong or (wrong == ["md5"] and not source.is_checksum(file)):
            return found["sha256"]
        partial.unlink()
        message = f"{file.name}: its {wrong[0]} is {found[wrong[0]]}, and the source says {file.digests[wrong[0]]}"
        if attempt == 1:
            report.warn(f"{message}; it is downloaded once more")
    raise ModelLoadError(message)


def _read_again(file: Listed, partial: Path, still: Callable[[], None]) -> dict[str, str]:
    """The checksums of what lies on the disk; `still` is called now and then, as it takes a while too."""
    return digests_of(partial, {"sha256", *file.digests}, lambda _count: still())


def patiently(call: Callable[[], _Answer], report: Report, what: str, attempts: int = 3) -> _Answer:
    """What `call` gives, tried again after failures that may pass."""
    for failures in range(1, attempts):
        try:
            return call()
        except Exception as error:
            if is_final(error):
                raise
            _wait(failures, report, f"{what}: {reason(error)}")
    return call()


class _Gathering:
    """One file while it comes, and how often it has failed to."""

    def __init__(self, source: Source, file: Listed, partial: Path, report: Report) -> None:
        self._source = source
        self._file = file
        self._partial = partial
        self._report = report
        self._most = _size(partial)
        self._failures = 0

    def run(self, at: Callable[[int], None]) -> None:
        while True:
            try:
                _append(self._source, self._file, self._partial, at)
            except Exception as error:
                self._count()
                if is_final(error) or self._failures >= ATTEMPTS:
                    raise
                _wait(max(1, self._failures), self._report, self._broken(error))
            else:
                return

    def _count(self) -> None:
        there = _size(self._partial)
        self._failures = 0 if there > self._most else self._failures + 1
        self._most = max(self._most, there)

    def _broken(self, error: Exception) -> str:
        whole = "" if self._file.size is None else f" of {amount(self._file.size)}"
        return f"{self._file.name}: broke off after {amount(_size(self._partial))}{whole}: {reason(error)}"


def _append(source: Source, file: Listed, partial: Path, at: Callable[[int], None]) -> None:
    there = _size(partial)
    if file.size is not None and there > file.size:
        there = 0
    if there != file.size or not partial.exists():
        start, blocks = source.open(file, there)
        with partial.open("r+b" if partial.exists() else "w+b") as out:
            out.truncate(start)
            out.seek(start)
            there = _write(out.fileno(), start, blocks, at)
    if file.size is not None and there != file.size:
        if there > file.size:
            partial.unlink()
        raise Broken(f"{there} bytes came where {file.size} were announced")


def _write(descriptor: int, there: int, blocks: Iterator[bytes], at: Callable[[int], None]) -> int:
    """How many bytes there are at the end. Synced now and then: after a crash of the machine the length tells what came."""
    synced = there
    try:
        for block in blocks:
            with _storing():
                _write_all(descriptor, block)
            there += len(block)
            at(there)
            if there - synced >= _SYNCED:
                with _storing():
                    os.fsync(descriptor)
                synced = there
    finally:
        with _storing():
            os.fsync(descriptor)
    return there


@contextlib.contextmanager
def _storing() -> Iterator[None]:
    """A full disk is not a connection that broke off."""
    try:
        yield
    except OSError as error:
        raise ModelLoadError(f"model_cache: {error.strerror}; say --model-cache") from None


def _write_all(descriptor: int, block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[os.write(descriptor, left) :]


def _wait(failures: int, report: Report, what: str) -> None:
    seconds = min(_LONGEST, _FIRST * 2 ** (failures - 1)) * random.uniform(0.75, 1.25)  # noqa: S311
    report.warn(f"{what}; again in {seconds:.1f} s")
    time.sleep(seconds)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
