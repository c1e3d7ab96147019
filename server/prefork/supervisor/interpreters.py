"""Whether another interpreter can run an instance: it exists, it runs, and it has the very Prefork that this process is.

That is asked when a model loads, so that no request meets the answer. A good interpreter is asked once, until it changes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import prefork
from prefork.errors import ModelLoadError
from prefork.supervisor import kernel
from prefork.supervisor.death import Death, reap
from prefork.supervisor.roster import Roster
from prefork.supervisor.spawn import spawn

_PATIENCE = 30.0
_QUESTION = "import prefork, prefork.remote; print(prefork.__version__)"


class Interpreters:
    """Those that were found good. known: see `InstanceProcess`."""

    def __init__(self, known: Roster) -> None:
        self._known = known
        self._good: set[tuple[str, int]] = set()

    async def check(self, path: str, environment: dict[str, str]) -> None:
        """Raises ModelLoadError, which says what is wrong with it and what to do."""
        if path == sys.executable:
            return
        mark = _mark(path)
        if mark in self._good:
            return
        death, said = await self._ask(path, environment)
        version = said.strip().splitlines()[-1:] or [""]
        if death.code != 0:
            raise ModelLoadError(
                f"python: {path} {_trouble(death, said)}; prefork {prefork.__version__} has to be installed there"
            )
        if version[0] != prefork.__version__:
            raise ModelLoadError(
                f"python: {path} has prefork {version[0]}, and the server is {prefork.__version__}: they have to be the same"
            )
        self._good.add(mark)

    async def _ask(self, path: str, environment: dict[str, str]) -> tuple[Death, str]:
        mine, its = os.pipe()
        os.set_blocking(mine, False)
        try:
            pid = spawn((path, "-P", "-c", _QUESTION), environment, {1: its, 2: its})
        except OSError as error:
            os.close(mine)
            raise ModelLoadError(f"python: {path} cannot be started: {error.strerror or error}") from None
        finally:
            os.close(its)
        self._known.add(pid)
        try:
            await asyncio.wait({asyncio.ensure_future(kernel.ended(pid))}, timeout=_PATIENCE)
        finally:
            kernel.kill_group(pid, signal.SIGKILL)
            await kernel.ended(pid)
            code, peak = reap(pid) or (0, 0)
            self._known.discard(pid)
            said = _read(mine)
        return Death(code, peak), said


def _mark(path: str) -> tuple[str, int]:
    return path, Path(path).stat().st_mtime_ns


def _trouble(death: Death, said: str) -> str:
    lines = said.strip().splitlines()
    if death.code == -signal.SIGKILL:
        return f"has not answered within {_PATIENCE:g} s"
    return f"{death.words}: {lines[-1]}" if lines else death.words


def _read(descriptor: int) -> str:
    try:
        return os.read(descriptor, 1 << 16).decode(errors="replace")
    except BlockingIOError:
        return ""
    finally:
        os.close(descriptor)
