"""What of this process would not survive a fork, in words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

import msgspec

from prefork.guard import contexts, threads
from prefork.guard.threads import Thread

_OWNERS = (
    (r"tensorflow", "TensorFlow"),
    (r"onnxruntime", "ONNX Runtime"),
    (r"libgomp", "OpenMP"),
    (r"libcuda|libcudart|libnvidia", "CUDA"),
    (r"torch|libc10", "torch"),
    (r"arrow", "Arrow"),
    (r"grpc", "gRPC"),
)


class Culprit(msgspec.Struct, frozen=True):
    """One thing that does not survive.

    who: whose it is, the same in every process that builds the same class; what: how the message says it.
    tids: its threads.
    """

    who: str
    what: str
    tids: tuple[int, ...] = ()


def culprits() -> list[Culprit]:
    """All of them, the surest first."""
    return [*_contexts(), *_by_owner(each for each in threads.others() if not each.survives)]


def _contexts() -> Iterator[Culprit]:
    shown = contexts.cuda()
    if shown:
        yield Culprit("CUDA", f"an initialised CUDA context ({shown})")
    if contexts.tensorflow():
        yield Culprit("TensorFlow", "a live context of TensorFlow")


def _by_owner(found: Iterable[Thread]) -> Iterator[Culprit]:
    groups: dict[str, list[Thread]] = {}
    for thread in found:
        groups.setdefault(_who(thread), []).append(thread)
    for who, group in groups.items():
        yield Culprit(who, _what(who, group), tuple(each.tid for each in group))


def _who(thread: Thread) -> str:
    library = _base(thread.library)
    if thread.python or threads.is_pythons(library):
        return "Python"
    return next((name for pattern, name in _OWNERS if re.search(pattern, library)), library)


def _what(who: str, group: list[Thread]) -> str:
    count = "a live thread" if len(group) == 1 else f"{len(group)} live threads"
    if who == "Python":
        shown = [each.python or each.name for each in group]
        return f"{count} of Python ({', '.join(shown[:3])}{', ...' if len(group) > 3 else ''})"
    library = _base(group[0].library)
    names = sorted({each.name for each in group})
    if not library:
        return f"{count} of a library that cannot be told ({', '.join(names)})"
    return f"{count} of {who}" + (f" ({library})" if who != library else "")


def _base(path: str) -> str:
    return os.path.basename(path)  # noqa: PTH119 - it may be no path
