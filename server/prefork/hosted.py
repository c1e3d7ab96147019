"""The catalogue of models in processes of their own: what the supervisor's run directory shows at this moment.

    RUN_DIR/models/<name>/<version>.<copy>.sock    where a copy is asked; `.p<level>.sock` for each level of priority
    RUN_DIR/models/<name>/<version>.<copy>.json    its card
    RUN_DIR/models/<name>/v<version>, latest       links to `<version>.<copy>`, there exactly while that is ready
    RUN_DIR/models/<name>/known                    versions that are known and not ready, one a line, each with why after a space
    RUN_DIR/models/<name>/wanted                   there while none is ready and one is to be
    RUN_DIR/returning                              there while a supervisor loads what one that has died had loaded

A name is looked up for every request, which is one readlink; what a copy is like is read once.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from prefork.catalogue import Served, unknown
from prefork.errors import BadMetadata, NotFound, PreforkError, Unavailable
from prefork.remote import Card, RemoteInstance
from prefork.remote.away import Away
from prefork.remote.lines import Lines
from prefork.supervisor import known as known_file

_REMEMBERED = 256
"""Versions of models that are kept in mind; one more and the one that was read longest ago is forgotten."""

_card = msgspec.json.Decoder(Card)


class Hosted:
    """The models under a run directory. wanted: the only model, which has to be ready for the server to be ready."""

    is_async = True
    may_block = True

    def __init__(self, run_dir: str, wanted: str = "") -> None:
        self._root = f"{run_dir}/models/"
        self._wanted = wanted
        self._lines = Lines()
        self._served: OrderedDict[tuple[str, str | None], tuple[str, Served]] = OrderedDict()

    def find(self, name: str, version: str | None = None) -> Served:
        """The model of that name, in the latest of its versions that are ready where none is said."""
        known = self._served.get((name, version))
        try:
            copy = self._copy(name, version)
        except Away:
            if known is None:
                raise
            return known[1]  # which waits for it
        return known[1] if known is not None and known[0] == copy else self._read(name, version, copy)

    def main(self) -> Served:
        """The only model, of which a version may not be ready at this moment."""
        if self._wanted:
            return self.find(self._wanted)
        names = self.names()
        known = names or list({name for name, _, _ in self.states()})
        if len(known) != 1:
            have = f"{len(names)} models are served here: {', '.join(names[:20])}" if names else "no model is loaded"
            raise NotFound(f"this path has no model in it, and {have}; ask /v2/models/NAME/infer")
        return self.find(known[0])  # where it is not ready, this says why

    def names(self) -> Sequence[str]:
        """The models of which a version is ready."""
        with suppress(OSError):
            return sorted(each.name for each in os.scandir(self._root) if os.path.lexists(f"{each.path}/latest"))
        return []

    def versions(self, name: str) -> Sequence[str]:
        """Those that are ready, in the order of their numbers."""
        with suppress(OSError, ValueError):
            links = [each.name for each in os.scandir(f"{self._root}{name}") if each.is_symlink()]
            ready = [each[1:] for each in links if each.startswith("v")]
            return sorted(ready, key=lambda each: (len(each), each))
        return []

    def states(self) -> Sequence[tuple[str, str, bool]]:
        """Those that are ready, and those that were or are about to be."""
        with suppress(OSError):
            names = sorted(each.name for each in os.scandir(self._root))
            ready = [(name, version, True) for name in names for version in self.versions(name)]
            others = [(name, version, False) for name in names for version in _known(Path(self._root) / name)]
            return sorted(ready + others)
        return []

    def is_ready(self) -> bool:
        """Whether the only model is; a repository is once its start is over, which an open port says."""
        if not self._wanted:
            return True
        try:
            self._copy(self._wanted, None)
        except PreforkError:
            return False
        return True

    def _copy(self, name: str, version: str | None) -> str:
        try:
            # For every request: a Path costs three times as much as the link.
            return os.readlink(f"{self._root}{name}/{'latest' if version is None else f'v{version}'}")  # noqa: PTH115
        except (OSError, ValueError):
            raise self._refusal(name, version) from None

    def _address(self, name: str, version: str | None, level: int) -> str:
        return f"{self._root}{name}/{self._copy(name, version)}{f'.p{level}' if level else ''}.sock"

    def _read(self, name: str, version: str | None, copy: str) -> Served:
        try:
            card = _card.decode(Path(f"{self._root}{name}/{copy}.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            raise self._refusal(name, version) from None
        # Who asked for the latest is content with what is the latest when a copy has gone meanwhile.
        at = f"{self._root}{name}/{copy}.sock"
        instance = RemoteInstance(partial(self._address, name, version), card, known=at, lines=self._lines)
        metadata = BadMetadata(card.trouble) if card.trouble else card.metadata
        served = Served(instance, metadata, card.described, card.config, is_counted=True)
        self._served[name, version] = (copy, served)
        self._served.move_to_end((name, version))
        while len(self._served) > _REMEMBERED:
            self._served.popitem(last=False)
        return served

    def _refusal(self, name: str, version: str | None) -> PreforkError:
        """Triton's words, which its clients' tests look for."""
        folder = Path(f"{self._root}{name}")
        if "/" in name or "\0" in name or name in {".", ".."} or not folder.is_dir():
            return unknown(name, version)
        known = _known(folder)
        if version is not None and version not in known:
            return unknown(name, version)
        if (folder / "wanted").exists() and (folder.parent.parent / "returning").exists():
            return Away(f"the model '{name}' is not ready at this moment")
        if version is not None:
            why = _because(known[version])
            return Unavailable(f"Request for unknown model: '{name}' version {version} is not at ready state{why}")
        why = _because("; ".join(f"version {number}: {each}" for number, each in known.items() if each))
        if (folder / "wanted").exists():
            error = Unavailable(f"the model '{name}' is not ready at this moment{why}")
            error.headers = (("Retry-After", "1"),)
            return error
        return NotFound(f"Request for unknown model: '{name}' has no available versions{why}")


def _known(folder: Path) -> dict[str, str]:
    """Why each of these versions is not ready; empty where nothing is wrong with it."""
    with suppress(OSError):
        return known_file.read(folder)
    return {}


def _because(why: str) -> str:
    return f": {why}" if why else ""
