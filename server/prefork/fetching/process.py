"""The near end of a fetching process: it is started, its reports become progress and lines of the log, and it is over."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from prefork.errors import ModelLoadError
from prefork.fetching.location import Location
from prefork.fetching.progress import Progress
from prefork.fetching.report import Event

log = logging.getLogger("prefork")


class Order(msgspec.Struct, frozen=True):
    """What is to be fetched. An address may hold a password: it goes through a pipe, not on a command line."""

    address: str
    cache: str


def fetched(location: Location, cache: Path, progress: Progress) -> Path:
    """Have the address fetched in a process of its own. Raises ModelLoadError with what that process says."""
    pin = f"#sha256={location.sha256}" if location.sha256 else ""
    order = Order(location.address + pin, str(cache.absolute()))
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "prefork.fetching"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
            return Path(_follow(process.stdout, location, progress))
        except BrokenPipeError:
            raise _gone(location) from None
        finally:
            # It may be in the middle, when this is an exception; what it has stays for the next one.
            process.kill()


def _follow(lines: Iterable[bytes], location: Location, progress: Progress) -> str:
    """The path that it ends with."""
    for line in lines:
        event = msgspec.json.decode(line, type=Event)
        if event.kind == "expect":
            progress.expect(event.total, event.number)
        elif event.kind == "at":
            progress.at(event.number)
        elif event.kind == "say":
            progress.clear()
            log.log(event.level, "%s", event.text)
        elif event.kind == "failed":
            raise ModelLoadError(event.text)
        else:
            return event.text
    raise _gone(location)


def _gone(location: Location) -> ModelLoadError:
    return ModelLoadError(f"{location.shown}: the process that downloads it has died; what it had is resumed next time")
