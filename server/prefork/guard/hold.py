"""One thread for every OpenMP runtime and for torch while the class is built in the master, and all of them after the fork.

A runtime is held as soon as it is mapped: after each library that Python or ctypes opens, before any code of it is called.
So the environment's OMP_NUM_THREADS, which a runtime reads once and for all threads to come, keeps its value. MKL's
variable beats that number in torch; MKL reads it when it first computes, so it says 1 meanwhile.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib.machinery import ExtensionFileLoader
from types import TracebackType
from typing import Any, Self

from prefork.guard import openmp
from prefork.settings import variables

_HELD = {"MKL_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
"""ONNX Runtime reads its variable when it is imported, and starts a thread then that only sends reports."""


class Hold:
    """Entered in the master around the building of the class; `give_back` is for each child."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._had: dict[str, int] = {}
        self._torch = 0
        self._busy = False
        self._until = ExitStack()

    def __enter__(self) -> Self:
        self._until.enter_context(variables(_HELD))
        self._until.enter_context(_after(ExtensionFileLoader, "create_module", self.take))
        self._until.enter_context(_after(ctypes.CDLL, "__init__", self.take))
        self.take()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.take()
        self._until.close()

    def take(self) -> None:
        """Hold what is mapped by now and was not held yet."""
        if self._busy:  # asking a runtime opens it with ctypes
            return
        self._busy = True
        try:
            self._take_runtimes()
            self._take_torch()
        finally:
            self._busy = False

    def give_back(self) -> None:
        """Let every runtime of this process, and torch, have as many threads as before: the budget, or what the user set."""
        for path in openmp.runtimes():
            had = self._had.get(path, 0)
            if had:
                openmp.set_threads(path, had)
        torch = sys.modules.get("torch")
        if torch is not None and self._torch:
            torch.set_num_threads(self._torch)

    def _take_runtimes(self) -> None:
        for path in openmp.runtimes() - self._had.keys():
            self._had[path] = openmp.threads(path)
            if self._had[path]:
                openmp.set_threads(path, 1)

    def _take_torch(self) -> None:
        # While torch is being imported it has no set_num_threads yet, and has computed nothing.
        set_threads = getattr(sys.modules.get("torch"), "set_num_threads", None)
        if self._torch or set_threads is None:
            return
        had = sys.modules["torch"].get_num_threads()
        self._torch = had if had > 1 else self._budget
        set_threads(1)


@contextmanager
def _after(owner: Any, name: str, call: Callable[[], None]) -> Iterator[None]:
    """Have `call` called behind each call of a method, as long as this is entered."""
    method = getattr(owner, name)

    @wraps(method)
    def calls(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        call()
        return result

    setattr(owner, name, calls)
    try:
        yield
    finally:
        setattr(owner, name, method)
