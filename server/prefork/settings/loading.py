"""Reads the settings from their sources; the only module that reads the process's environment.

A setting comes from the first of these sources that has it: the command line, GUNICORN_CMD_ARGS, its environment variable,
Seldon's pod annotations, prefork.yaml, the default. Whatever cannot be meant is a SettingError of one line that opens
with the source.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from prefork.settings import cpus, derived, sources
from prefork.settings.hosting import Hosting
from prefork.settings.recycling import Recycling
from prefork.settings.setting import About, Given, reader
from prefork.settings.settings import Settings
from prefork.settings.table import markdown


def abouts() -> dict[str, About]:
    """What is written about each setting, by the name of its field, in the order of the table."""
    hints = get_type_hints(Settings, include_extras=True)
    found = {name: get_args(hint) for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    parts = (Recycling.__struct_fields__, Hosting.__struct_fields__)  # the first has the fields of the second as well
    found = dict(sorted(found.items(), key=lambda each: sum(each[0] in part for part in parts)))
    return {
        name: msgspec.structs.replace(about, read=about.read or reader(hint)) for name, (hint, about) in found.items()
    }


def load(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    *,
    root: str | Path = "/",
    defaults: Mapping[str, Any] | None = None,
    variables_first: Sequence[str] = (),
) -> Settings:
    """Resolve every setting, or raise SettingError.

    flags: by field name, as text or typed, None for one that was not given; `assignments` is a list of `name=value`.
    environ, cwd: the process's own where None; root: where `/proc`, `/sys` and `/etc/podinfo` are found.
    defaults: a command's own, under every source; variables_first: the settings whose variable beats the flag.
    """
    environ = os.environ if environ is None else environ
    flags = dict(flags or {})
    assignments = flags.pop("assignments", None) or ()
    known = abouts()
    layers = sources.layers(
        sources.from_flags(flags, known),
        environ,
        known,
        cwd=Path(cwd or Path.cwd()),
        root=Path(root),
        variables_first=variables_first,
    )
    own = {name: Given(f"{name}: ", value) for name, value in (defaults or {}).items()}
    values = {name: given.read(known[name]) for name, given in ChainMap(*layers, own).items()}
    values["parameters"] = derived.parameters(values.get("parameters", {}), layers, assignments)
    values["thread_variables"] = cpus.said(environ)
    values["notes"] = tuple(sources.unread(environ, known))
    return Settings(**derived.settle(values, layers, environ, Path(root)))


def apply_thread_budget(settings: Settings, environ: MutableMapping[str, str] | None = None) -> None:
    """Set the thread-count variables that are not set, so that the workers share the CPUs.

    It has to run before numpy is imported, which fixes OpenBLAS's threads, and before the workers are forked.
    """
    environ = os.environ if environ is None else environ
    environ.update(cpus.thread_budget(cpus.available(), settings.workers, environ))


def threads_here() -> int:
    """The threads that numerical libraries have in this process: OMP_NUM_THREADS, else its CPUs."""
    return _said_threads() or max(1, int(cpus.available()))


def thread_share(settings: Settings) -> int:
    """The threads that one worker's numerical libraries have: OMP_NUM_THREADS, else its share of the CPUs."""
    return _said_threads() or max(1, int(cpus.available() / settings.workers))


def _said_threads() -> int:
    """OMP_NUM_THREADS, of a list the first, as that is for the outermost level; 0 where it is no number."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(said) if said.isdecimal() else 0


def set_variable(name: str, value: str, *, unless_set: bool = False) -> str | None:
    """Set a variable of this process for good, for a library that reads it while it is imported, and give what it was before.

    unless_set: leave one that is there.
    """
    before = os.environ.get(name)
    if before is None or not unless_set:
        os.environ[name] = value
    return before


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def table() -> str:
    """Markdown: every setting with its key in prefork.yaml, its flags, its variables, its default and its meaning."""
    return markdown(abouts(), msgspec.structs.asdict(Settings()))
