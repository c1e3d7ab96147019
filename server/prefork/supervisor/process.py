"""One instance process: started, listened to, watched, and ended with everything that it has started.

What it says comes as JSON lines over its control descriptor, what it prints through pipes. Its death is an event of the
kernel; it is over once the process is reaped, its descendants are killed, and its last line has been written.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from prefork.errors import ModelLoadError
from prefork.remote.charge import Card, Charge
from prefork.supervisor import kernel, mark, strays
from prefork.supervisor.conversation import Conversation, Event
from prefork.supervisor.death import Death, reap, starvations
from prefork.supervisor.lines import Lines, Output, to_stderr
from prefork.supervisor.roster import Roster
from prefork.supervisor.spawn import spawn

CONTROL = 3
_CLOSE = 2.0
"""Seconds that a process has to leave by itself when it is asked to."""
_TERM = 0.5
"""Seconds that TERM leaves before KILL: it is for what the model has started, as the process itself does not heed it."""
_LAST_WORDS = 1.0
_KEPT = 20
"""Lines of output that are remembered, to say what a process died of."""
_STUBBORN = 10.0


class LoadFailed(ModelLoadError):
    """An instance could not load. `trace` is its traceback, where it could give one."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is to be: the interpreter, its variables, its charge, the sockets to accept from, its mark.

    label: how it is called in the log, `name/version place`.
    """

    python: str
    environment: dict[str, str]
    charge: Charge
    listeners: tuple[int, ...]
    label: str
    mark: str
    program: tuple[str, ...] = ("-P", "-m", "prefork.remote")


class InstanceProcess:
    """A process that runs. Raises LoadFailed where it cannot be started.

    known: the ids of all such processes; this one adds and removes itself. on_stuck is called when it says that a
    request does not come back.
    """

    def __init__(
        self, task: Task, known: Roster, on_stuck: Callable[[], None], report: Callable[[bytes], None] = to_stderr
    ) -> None:
        loop = asyncio.get_running_loop()
        self.label = task.label
        self.mark = task.mark
        self._known = known
        self._limit = task.charge.config.memory_limit
        self._starved = starvations()
        self._asked = False
        self._on_stuck = on_stuck
        self.is_stuck = False
        self.is_ready = False
        self.card: asyncio.Future[Card] = loop.create_future()
        self.drained = asyncio.Event()
        self.ended: asyncio.Future[Death] = loop.create_future()
        self._tail: collections.deque[str] = collections.deque(maxlen=_KEPT)
        self._start(task, report, loop)

    def _start(self, task: Task, report: Callable[[bytes], None], loop: asyncio.AbstractEventLoop) -> None:
        ours, theirs = socket.socketpair()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        numbers = range(CONTROL + 1, CONTROL + 1 + len(task.listeners))
        given = {1: out_end, 2: err_end, CONTROL: theirs.fileno(), **dict(zip(numbers, task.listeners, strict=True))}
        try:
            self.pid = spawn((task.python, *task.program), task.environment, given)
        except OSError as error:
            for each in (out, err):
                os.close(each)
            ours.close()
            raise LoadFailed(f"{task.python} cannot be started: {error.strerror or error}") from None
        finally:
            os.close(out_end)
            os.close(err_end)
            theirs.close()
        mark.put(self.pid, task.mark)
        self._known.add(self.pid, f"{task.charge.config.name}/{task.charge.version}")
        prefix = f"[{task.label}] "
        self._outputs = [Output(each, Lines(prefix, report, self._tail), loop) for each in (out, err)]
        self._talk = Conversation(ours, self._heard)
        self._talk.say(msgspec.json.encode(msgspec.structs.replace(task.charge, listeners=tuple(numbers))))
        self._unwatch = kernel.watch(os.pidfd_open(self.pid), self._died)

    @property
    def tail(self) -> str:
        """The last lines that it has printed."""
        return "\n".join(self._tail)

    async def loaded(self, seconds: float) -> Card:
        """Wait until it is ready, at most so long; 0 is for ever. Raises LoadFailed; the process still is to be ended then."""
        waiting: set[asyncio.Future[Any]] = {self.card, self.ended}
        await asyncio.wait(waiting, timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED)
        if self.card.done() and not self.card.cancelled():
            card = self.card.result()
            self.is_ready = True
            return card
        if self.ended.done():
            raise LoadFailed(
                f"its process (pid {self.pid}) {self.ended.result().words} while it was loading{self._last_line()}"
            )
        self.tell("stacks")
        raise LoadFailed(f"loading has taken more than {seconds:g} s")

    @property
    def end_words(self) -> str:
        """How it has ended, once it has, and why where it has said so."""
        death = self.ended.result()
        return f"{death.words}{self._last_line() if death.has_said_why else ''}"

    async def tried(self, seconds: float) -> None:
        """See whether it lives for so long now that it is ready. Raises LoadFailed where it does not."""
        if await self._ends_within(seconds):
            raise LoadFailed(
                f"its process (pid {self.pid}) {self.ended.result().words} as soon as it was ready{self._last_line()}"
            )

    def tell(self, what: str) -> None:
        """Have it `serve`, `drain`, `close` or write its `stacks`; one that is gone does not hear it."""
        self._talk.say(msgspec.json.encode({"do": what}))

    async def drain(self, until: float, *, whole: bool = True) -> bool:
        """Let it finish what it is at, until a moment of the loop's clock; whether it has. `whole`: also all that waits."""
        self._talk.say(msgspec.json.encode({"do": "drain", "backlog": whole}))
        done = asyncio.ensure_future(self.drained.wait())
        left = max(0.0, until - asyncio.get_running_loop().time())
        waiting: set[asyncio.Future[Any]] = {done, self.ended}
        await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        return self.drained.is_set()

    async def end(self, patience: float = _CLOSE) -> Death | None:
        """Ask it to leave, then TERM, then KILL for the whole group; None for one that even that does not end."""
        self._asked = True
        self.tell("close")
        for seconds, how in ((patience, signal.SIGTERM), (_TERM, signal.SIGKILL)):
            if not await self._ends_within(seconds):
                self._signal(how)
        await self._ends_within(_STUBBORN)
        return self.ended.result() if self.ended.done() else None

    async def kill(self) -> Death | None:
        """End it at once."""
        self.kill_now()
        await self._ends_within(_STUBBORN)
        return self.ended.result() if self.ended.done() else None

    def kill_now(self) -> None:
        """Send KILL to the whole group, and do not wait."""
        self._asked = True
        self._signal(signal.SIGKILL)

    def _signal(self, how: signal.Signals) -> None:
        if self.pid in self._known:  # once it is reaped its id may be somebody else's
            kernel.kill_group(self.pid, how)

    async def _ends_within(self, seconds: float) -> bool:
        if not self.ended.done() and seconds > 0:
            await asyncio.wait({self.ended}, timeout=seconds)
        return self.ended.done()

    def _last_line(self) -> str:
        return f": {self._tail[-1]}" if self._tail else ""

    def _heard(self, event: Event) -> None:
        if event.event == "ready" and event.card is not None:
            if not self.card.done():
                self.card.set_result(event.card)
        elif event.event == "failed" and not self.card.done():
            self.card.set_exception(LoadFailed(event.message, event.traceback))
        elif event.event == "drained":
            self.drained.set()
        elif event.event == "stuck" and not self.is_stuck:
            self.is_stuck = True
            self._on_stuck()

    def _died(self) -> None:
        found = reap(self.pid)
        if found is None:
            return
        self._unwatch()
        self._known.discard(self.pid)
        code, peak = found
        starved = starvations() > self._starved
        death = Death(code, peak, self._limit, self._asked, starved)
        # The group first: a child that holds a client's connection keeps that client waiting.
        kernel.kill_group(self.pid, signal.SIGKILL)
        self._burial = asyncio.ensure_future(self._bury(death))

    async def _bury(self, death: Death) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._talk.closed.wait(), _LAST_WORDS)
        await strays.sweep(self.pid, self.mark, self._known)
        for each in self._outputs:
            each.close()
        self._talk.close()
        if self.card.done():
            self.card.exception()
        else:
            self.card.cancel()
        self.ended.set_result(death)
