"""What `prefork check` found, as data and as a page for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from prefork.check.pickles import Pickled

_WIDTH = 12


class Stage(msgspec.Struct, frozen=True):
    """One stage of a model's life in a process of its own: `start`, `import`, `constructor`, `load()`, `predict`.

    resident: bytes in memory behind it; seconds: how long it took.
    """

    name: str
    resident: int
    seconds: float


class Found(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A model as it is found. Sizes are bytes.

    style: how its predict takes its input; inputs: by name, where it says them; tried: what was done with it.
    imports: installed packages that its import brought in, with their versions. failed: what ended the examination.
    """

    model: str
    file: str = ""
    signature: str = ""
    style: str = ""
    inputs: list[str] = []
    hooks: list[str] = []
    imports: dict[str, str] = {}
    pickles: list[Pickled] = []
    stages: list[Stage] = []
    tried: str = ""
    failed: str = ""
    preload: Preload | None = None
    workers: int = 0
    each_without: int = 0
    base: int = 0

    @property
    def total_without(self) -> int:
        """What the master and all workers have together without preloading."""
        return self.base + self.workers * self.each_without


class Preload(msgspec.Struct, omit_defaults=True):
    """The verdict on `preload_app`. refused: the guard's message; shared, private: bytes once, and in each worker.

    objects: bytes of the Python objects that the class has built: as much more in each worker, once it has used them all.
    """

    refused: str = ""
    note: str = ""
    shared: int = 0
    private: int = 0
    objects: int = 0


def page(found: Found) -> str:
    """The findings as a short table."""
    return "".join(f"{name:<{_WIDTH}}{text}\n" for name, text in _rows(found))


def _rows(found: Found) -> Iterator[tuple[str, str]]:
    yield "model", found.model + (f"  ({found.file})" if found.file else "")
    if found.signature:
        yield "predict", f"{found.signature}  {found.style}"
    if found.inputs:
        yield "inputs", ", ".join(found.inputs)
    if found.hooks:
        yield "hooks", ", ".join(found.hooks)
    if found.imports:
        yield "imports", ", ".join(f"{name} {version}".strip() for name, version in found.imports.items())
    for each in found.pickles:
        yield "pickled", _pickled(each)
    if found.stages:
        yield "memory", _stages(found.stages)
    if found.tried:
        yield "tried", found.tried
    if found.failed:
        yield "failed", found.failed
    yield from _sizes(found)


def _pickled(each: Pickled) -> str:
    written = ", ".join(each.written)
    if each.fits:
        return f"{each.path}: scikit-learn {written}, as installed"
    installed = f"{each.installed} is installed" if each.installed else "which is not installed"
    return f"{each.path}: scikit-learn {written}, but {installed}: it may fail or answer otherwise; install that one, or train again"


def _stages(stages: list[Stage]) -> str:
    first, *rest = stages
    told = [f"{first.resident >> 20} MB"]
    for before, stage in zip(stages, rest, strict=False):
        told.append(f"{stage.name} {(stage.resident - before.resident) / (1 << 20):+.0f} MB in {stage.seconds:.2f} s")
    return ", ".join(told)


def _sizes(found: Found) -> Iterator[tuple[str, str]]:
    if found.each_without:
        yield (
            f"{found.workers} workers",
            f"about {found.total_without >> 20} MB: {found.base >> 20} shared, {found.each_without >> 20} each",
        )
    preload = found.preload
    if preload is None:
        return
    if preload.refused:
        yield "preload", f"no. {preload.refused}"
        return
    total = preload.shared + found.workers * preload.private
    yield (
        "preload",
        f"yes, then about {total >> 20} MB: {preload.shared >> 20} shared, {preload.private >> 20} each"
        + _growth(preload, found.workers, total),
    )
    if preload.note:
        yield "", preload.note


def _growth(preload: Preload, workers: int, total: int) -> str:
    if preload.objects >> 20 == 0:
        return ""
    return (
        f"; up to {(total + workers * preload.objects) >> 20} MB, once each worker has used all of its Python objects "
        f"({preload.objects >> 20} MB), which a fork does not share for long. Arrays stay shared"
    )
