"""The line of the user's code that a process was at, out of what faulthandler wrote of its stacks."""

from __future__ import annotations

import os
import re

from prefork.model.ownership import Ownership

_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')
_INTERRUPTED = "Current thread"


def place(stacks: str, ownership: Ownership) -> str:
    """`Iris.py:7 in load`: the innermost line of the user's on the stack of the thread that calls the user's code.

    The innermost line of all where none is the user's; empty where there is no stack.
    """
    threads = [each.splitlines() for each in stacks.split("\n\n")]
    chosen = [lines for lines in threads if any(_is_owned(line, ownership) for line in lines)]
    chosen = chosen or [lines for lines in threads if lines and _INTERRUPTED in lines[0]] or threads
    frames = [match.groupdict() for match in map(_FRAME.match, chosen[0]) if match]
    own = next((frame for frame in frames if ownership.owns(frame["file"])), None)
    own = own or next(iter(frames), None)
    if own is None:
        return ""
    path = os.path.relpath(own["file"])
    return f"{own['file'] if path.startswith('..') else path}:{own['line']} in {own['function']}"


def _is_owned(line: str, ownership: Ownership) -> bool:
    match = _FRAME.match(line)
    return match is not None and ownership.owns(match["file"])
