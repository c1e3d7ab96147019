"""Finds the hooks of a user's object by duck typing, and tells what kind of function each is.

A method that a class merely inherits from SeldonComponent, ours or the real one, is no hook: it only raises.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Hook = Callable[..., Any]


def found(user_object: object, name: str) -> Hook | None:
    """The object's own hook of that name, or None."""
    hook = getattr(user_object, name, None)
    return hook if callable(hook) and not is_default(hook) else None


def is_default(hook: Any) -> bool:
    """Whether it is SeldonComponent's method of that name, which only says that there is none."""
    function = getattr(hook, "__func__", hook)
    qualified = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None) or ""
    return qualified.startswith("SeldonComponent.") and module.endswith(".user_model")


def is_unimplemented(error: BaseException) -> bool:
    """Whether it is a SeldonNotImplementedError, ours or the real package's."""
    return any(cls.__name__ == "SeldonNotImplementedError" for cls in type(error).__mro__)


def is_from_default(error: BaseException) -> bool:
    """Whether the exception was raised inside one of SeldonComponent's own methods."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_qualname.startswith("SeldonComponent.")


def is_async(hook: Hook) -> bool:
    """Whether it is an `async def`, generating or not, behind partials and callable objects too."""
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in _faces(hook))


def is_stream(hook: Hook) -> bool:
    """Whether it is a generator function, synchronous or asynchronous."""
    return any(inspect.isgeneratorfunction(f) or inspect.isasyncgenfunction(f) for f in _faces(hook))


def _faces(hook: Hook) -> tuple[Any, ...]:
    while isinstance(hook, functools.partial):
        hook = hook.func
    return hook, getattr(hook, "__call__", None)  # noqa: B004 - the method itself is wanted
