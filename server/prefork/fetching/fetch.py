"""An address into the store: asked what it holds, downloaded where that is new, served from the store where it is not.

Runs in a process of its own (`python -m prefork.fetching`): what the libraries of the clouds leave behind, threads and a
hundred megabytes of modules, does not stay in a server that forks.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from prefork.errors import ModelLoadError
from prefork.fetching.cache import Cache, Entry, Kept
from prefork.fetching.download import download, patiently
from prefork.fetching.location import Location
from prefork.fetching.progress import amount
from prefork.fetching.report import Report
from prefork.fetching.source import Listed, Listing, Source, is_final, reason

_ROUNDS = 3
"""Times that a source may change while it is downloaded."""


def fetch(location: Location, cache: Cache, report: Report) -> Path:
    """The path in the store of what the address holds now. Raises ModelLoadError."""
    with cache.lock(location.key, lambda: report.say(f"{location.shown}: another process downloads it; waiting")):
        old = cache.entry(location)
        whole = old is not None and cache.is_whole(old)
        if old and whole and location.sha256 and _pin(old) == location.sha256:
            return cache.path(old)
        source = Source(location)
        try:
            return _Fetching(location, cache, report, source, old).run(whole=whole)
        except ModelLoadError:
            raise
        except Exception as error:
            if old and whole and not location.sha256 and not is_final(error):
                report.warn(f"{location.shown}: {reason(error)}; the copy in {cache.folder} is served")
                return cache.path(old)
            raise ModelLoadError(f"{location.shown}: {reason(error)}") from error


def _pin(entry: Entry) -> str:
    return "" if entry.is_folder else entry.files[0].sha256


class _Fetching:
    """One address while it is fetched. old: what it gave before."""

    def __init__(self, location: Location, cache: Cache, report: Report, source: Source, old: Entry | None) -> None:
        self._location = location
        self._cache = cache
        self._report = report
        self._source = source
        self._known = {each.name: each for each in old.files} if old else {}
        self._old = old

    def run(self, *, whole: bool) -> Path:
        listing = self._list()
        for _ in range(_ROUNDS):
            if self._old and whole and self._is_unchanged(listing):
                self._check_pin(_pin(self._old))
                return self._cache.path(self._old)
            entry = self._download(listing)
            again = self._list()
            if listing.is_like(again):
                path = self._cache.commit(self._location, entry)
                self._cache.forget(self._location, but=set())
                return path
            self._report.warn(f"{self._location.shown}: it has changed meanwhile")
            listing, whole = again, False
        raise ModelLoadError(f"{self._location.shown}: it changes faster than it can be downloaded")

    def _list(self) -> Listing:
        listing = patiently(self._source.listing, self._report, self._location.shown)
        if self._location.sha256 and listing.is_folder:
            raise ModelLoadError(f"{self._location.shown}: #sha256= is for a single file, and this is a folder")
        return listing

    def _is_unchanged(self, listing: Listing) -> bool:
        if self._old is None or self._old.is_folder != listing.is_folder:
            return False
        return set(self._known) == {each.name for each in listing.files} and all(map(self._is_known, listing.files))

    def _is_known(self, file: Listed) -> bool:
        known = self._known.get(file.name)
        return known is not None and known.version == file.version != ""

    def _download(self, listing: Listing) -> Entry:
        there = {each.name: sha256 for each in listing.files if (sha256 := self._there(each))}
        for sha256 in there.values():
            self._check_pin(sha256)
        missing = [each for each in listing.files if each.name not in there]
        partials = {each.name: self._partial(each) for each in missing}
        self._cache.forget(self._location, but=set(partials.values()))
        self._announce(listing, missing, list(partials.values()))
        done = sum(each.size or 0 for each in listing.files if each.name in there)
        kept = [self._kept(each, there[each.name]) for each in listing.files if each.name in there]
        for each in missing:
            kept.append(self._one(each, partials[each.name], done))
            done += kept[-1].size
        self._known |= {each.name: each for each in kept}
        entry = Entry(self._location.shown, self._location.name, listing.is_folder, tuple(kept))
        return msgspec.structs.replace(entry, files=tuple(sorted(kept, key=lambda each: each.name)))

    def _there(self, file: Listed) -> str:
        """The checksum of a file whose content is in the store, or empty."""
        sha256 = self._known[file.name].sha256 if self._is_known(file) else file.digests.get("sha256", "")
        return sha256 if sha256 and self._cache.has(sha256) else ""

    def _partial(self, file: Listed) -> Path:
        partial = self._cache.partial(self._location, f"{file.name}\n{file.version}")
        if not file.version:
            partial.unlink(missing_ok=True)
        return partial

    def _announce(self, listing: Listing, missing: list[Listed], partials: list[Path]) -> None:
        found = sum(each.stat().st_size for each in partials if each.exists())
        total = listing.size
        needed = sum(each.size or 0 for each in missing) - found
        free = self._cache.free()
        if needed > free:
            raise ModelLoadError(
                f"{self._location.shown}: {amount(needed)} are to be downloaded, and {self._cache.folder} has {amount(free)} left; "
                "say --model-cache"
            )
        before = sum(each.size or 0 for each in listing.files if each not in missing)
        resumed = f", {amount(found)} of it are there from before" if found else ""
        size = "" if total is None else f" ({amount(total - before)}{resumed})"
        self._report.say(f"{self._location.shown}: downloading {_files(len(missing))}{size}")
        self._report.expect(total, before + found)

    def _one(self, file: Listed, partial: Path, done: int) -> Kept:
        sha256 = download(self._source, file, partial, self._report, done)
        if self._location.sha256 and sha256 != self._location.sha256:
            partial.unlink()
            self._check_pin(sha256)
        self._cache.keep(partial, sha256)
        return self._kept(file, sha256)

    def _kept(self, file: Listed, sha256: str) -> Kept:
        return Kept(file.name, self._cache.size(sha256), file.version, sha256)

    def _check_pin(self, found: str) -> None:
        if self._location.sha256 and found != self._location.sha256:
            raise ModelLoadError(
                f"{self._location.shown}: its SHA-256 is {found}, and {self._location.sha256} was asked for"
            )


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
