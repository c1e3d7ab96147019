"""How the arguments of a Seldon hook are passed, decided once from its signature.

A hook names any of `X, names` by position and `meta` by keyword, and may leave them out; never is one called twice to find
out. A hook whose signature nobody knows (a builtin) gets everything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from prefork.model.hooks import Hook


class Arguments(msgspec.Struct, frozen=True):
    """What a hook takes of what there is: the first `positional` values, and whether the keyword.

    fits: whether the call can succeed at all.
    """

    positional: int
    keyword: bool
    fits: bool = True


def arguments(hook: Hook, count: int, keyword: str) -> Arguments:
    """What `hook` takes of `count` positional values and one by the name `keyword`."""
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        return Arguments(count, keyword=True)
    named = any(p.name == keyword and p.kind is not p.POSITIONAL_ONLY for p in parameters)
    rest = [p for p in parameters if p.name != keyword or p.kind is p.POSITIONAL_ONLY]
    slots = [p for p in rest if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    takes = count if any(p.kind is p.VAR_POSITIONAL for p in rest) else min(len(slots), count)
    needed = [p for p in slots[count:] if p.default is p.empty]
    needed += [p for p in rest if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in rest)
    return Arguments(takes, keyword=named or open_ended, fits=takes > 0 and not needed)


def caller(hook: Hook) -> Callable[[Any, list[Any], Any], Any]:
    """Calls a `predict`-like hook with X, the names and the meta, as many of them as it takes."""
    takes = arguments(hook, 2, "meta")
    if takes.positional >= 2:
        if takes.keyword:
            return lambda x, names, meta: hook(x, names, meta=meta)
        return lambda x, names, _meta: hook(x, names)
    if takes.keyword:
        return lambda x, _names, meta: hook(x, meta=meta)
    return lambda x, _names, _meta: hook(x)


def list_caller(hook: Hook) -> Callable[[list[Any], list[Any]], Any]:
    """Calls an `aggregate` hook with the list of Xs and the list of their names, if it takes that."""
    if arguments(hook, 2, "").positional >= 2:
        return hook
    return lambda xs, _names: hook(xs)


def feedback_caller(hook: Hook) -> Callable[[Any, list[Any], float, Any, int | None], Any]:
    """Calls a `send_feedback` hook: features, names, reward, truth, as many as it takes, and `routing` by keyword.

    A fifth argument of another name is given the routing by position.
    """
    takes = arguments(hook, 4, "routing")
    if takes.keyword:
        return lambda *values: hook(*values[: takes.positional], routing=values[4])
    count = arguments(hook, 5, "").positional
    return lambda *values: hook(*values[:count])


def takes_nothing(hook: Hook) -> bool:
    """Whether a hook can be called without an argument."""
    try:
        inspect.signature(hook).bind()
    except (TypeError, ValueError):
        return False
    return True
