"""Whose fault it is that a model cannot be loaded: whether there is a traceback that a person wants to see."""

from __future__ import annotations

import os
import traceback
from types import TracebackType

import prefork
from prefork.errors import ModelLoadError

_OURS = tuple(
    os.path.join(os.path.realpath(os.path.dirname(file)), folder)  # noqa: PTH118, PTH120 - compared with other texts
    for file, folder in ((prefork.__file__, ""), (os.__file__, "importlib" + os.sep))
)
"""Where the code is that a failing import goes through before it comes to anybody's."""


def of_users_code(error: BaseException) -> BaseException | None:
    """The exception whose traceback leads into code that is not ours, or None where the message says all that there is."""
    if not isinstance(error, ModelLoadError):
        return error
    inner = error.__cause__
    if inner is None:
        return None
    return inner if isinstance(inner, SyntaxError) or _leaves(inner.__traceback__) else None


def _leaves(trace: TracebackType | None) -> bool:
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))
    return any(not file.startswith("<frozen ") and not os.path.realpath(file).startswith(_OURS) for file in files)
