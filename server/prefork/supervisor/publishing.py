"""The run directory: what HTTP workers see of the models, kept so that looking at any moment gives the truth of that moment.

    models/<name>/<version>.<generation>.json   the card of a copy that is ready
    models/<name>/v<version>                    a symbolic link to `<version>.<generation>`, there while the version is ready
    models/<name>/latest                        the same for the highest version that is ready
    models/<name>/known                         the versions that are known and not ready, one a line, each with why after a space
    models/<name>/wanted                        there while no version is ready and one is to be: it loads, or has failed after having served
    returning                                   there while a supervisor loads what one that has died had loaded

A link moves by a rename. A version is never neither ready nor known in between.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from prefork.remote.charge import Card
from prefork.supervisor import known as known_file
from prefork.supervisor.source import order

_LATEST = "latest"
_WANTED = "wanted"
_OWN = ("models", "instances", "desired", "overrides")
_RETURNING = "returning"
_FILES = ("supervisor.sock", "generation", "owner", _RETURNING)


class RunDirectory:
    """The folder that supervisor and workers share. It is there, and private."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def clear(self, *, all_of_it: bool = True) -> None:
        """Remove what a supervisor has made; without `all_of_it` what the next one needs to go on from here stays."""
        stay = () if all_of_it else ("desired", "generation", "owner", "models", _RETURNING)
        if not all_of_it:
            (self.path / _RETURNING).touch()  # first: who finds a name withdrawn waits for it
            self._withdraw_all()
        for name in _OWN:
            if name not in stay:
                shutil.rmtree(self.path / name, ignore_errors=True)
        for name in _FILES:
            if name not in stay:
                (self.path / name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder itself, where nobody else has put anything there."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def returned(self) -> None:
        """All is loaded again that is to be: nobody is to wait for the others."""
        (self.path / _RETURNING).unlink(missing_ok=True)

    def _withdraw_all(self) -> None:
        """What was ready is known and wanted: those who ask for it are to come again."""
        for folder in self.path.glob("models/*/"):
            links = [each for each in folder.iterdir() if each.is_symlink() and each.name.startswith("v")]
            known = _known(folder) | {each.name.removeprefix("v"): "" for each in links}
            self.show(folder.name, {}, known, is_wanted=bool(links) or (folder / _WANTED).exists())
            for each in folder.iterdir():
                if each.name not in (known_file.FILE, _WANTED):
                    each.unlink()

    def folder(self, name: str) -> Path:
        """A model's folder, which is made."""
        folder = self.path / "models" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def overrides(self) -> Path:
        """The folder of the files that loads have brought, which is made."""
        folder = self.path / "overrides"
        folder.mkdir(exist_ok=True)
        return folder

    def next_generation(self) -> int:
        """A number that no generation of this run directory has had, whichever supervisor made it: workers keep cards by it."""
        file = self.path / "generation"
        try:
            number = int(file.read_text()) + 1
        except (FileNotFoundError, ValueError):
            number = 1
        write(file, b"%d\n" % number)
        return number

    def put_card(self, name: str, stem: str, card: Card) -> None:
        """Write a copy's card, before it is shown."""
        write(self.folder(name) / f"{stem}.json", msgspec.json.encode(card))

    def drop_card(self, name: str, stem: str) -> None:
        """Remove a copy's card, once it is shown no more."""
        (self.path / "models" / name / f"{stem}.json").unlink(missing_ok=True)

    def show(self, name: str, ready: Mapping[str, str], known: Mapping[str, str], *, is_wanted: bool = False) -> None:
        """Show these versions of a model as ready, each by its stem, and those as known and not ready, each with why."""
        folder = self.folder(name)
        for version, stem in ready.items():
            _link(folder / f"v{version}", stem)
        if ready:
            _link(folder / _LATEST, ready[max(ready, key=order)])
        if is_wanted:
            (folder / _WANTED).touch()
        write(folder / known_file.FILE, known_file.encode({each: known[each] for each in sorted(known, key=order)}))
        shown = {f"v{version}" for version in ready} | ({_LATEST} if ready else set())
        for each in folder.iterdir():
            if each.is_symlink() and each.name not in shown and (each.name == _LATEST or each.name.startswith("v")):
                each.unlink()
        if not is_wanted:
            (folder / _WANTED).unlink(missing_ok=True)

    def forget(self, name: str) -> None:
        """Remove a model of which nothing is known."""
        shutil.rmtree(self.path / "models" / name, ignore_errors=True)


def write(path: Path, data: bytes) -> None:
    """Write a file whole: who reads it finds what was there before, or all of this."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(data)
    beside.replace(path)


def _known(folder: Path) -> dict[str, str]:
    try:
        return known_file.read(folder)
    except FileNotFoundError:
        return {}


def _link(path: Path, target: str) -> None:
    with contextlib.suppress(OSError):
        if path.readlink() == Path(target):
            return
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(path)
