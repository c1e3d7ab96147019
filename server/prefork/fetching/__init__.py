"""Models from elsewhere: an address becomes a path of this machine, and nothing that is not whole is ever one."""

from __future__ import annotations

from pathlib import Path

from prefork.errors import ModelLoadError
from prefork.fetching.digests import digests_of
from prefork.fetching.location import Location, is_remote, read
from prefork.fetching.process import fetched
from prefork.fetching.progress import Progress

__all__ = ["Progress", "is_remote", "local"]


def local(address: str, *, cache: str | Path, progress: Progress | None = None) -> Path:
    """The path of a file or folder that an address means, downloaded into the store `cache` where it is not there yet.

    A path or a `file://` is returned as it is, if there is something. `#sha256=` at the end checks a single file.
    progress: shows the download; one of its own where None. Blocks; may be called from several threads and processes at once.
    Raises ModelLoadError: no such thing, a checksum that differs, an extra that is missing, a source that cannot be reached
    while there is no whole copy of it.
    """
    location = read(address)
    progress = Progress(location.shown) if progress is None else progress
    with progress:
        if location.is_remote:
            return fetched(location, Path(cache), progress)
        return _checked(location, progress)


def _checked(location: Location, progress: Progress) -> Path:
    path = Path(location.address)
    try:
        status = path.stat()
    except OSError as error:
        raise ModelLoadError(f"{location.shown}: {error.strerror}") from None
    if not location.sha256:
        return path
    if not path.is_file():
        raise ModelLoadError(f"{location.shown}: #sha256= is for a single file, and this is a folder")
    progress.expect(status.st_size)
    found = digests_of(path, ["sha256"], progress.advance)["sha256"]
    if found != location.sha256:
        raise ModelLoadError(f"{location.shown}: its SHA-256 is {found}, and {location.sha256} was asked for")
    return path
