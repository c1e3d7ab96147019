"""The main of a model's process. It is told everything by the supervisor, and ends when that does.

Over descriptor 3 come JSON lines: first the Charge, then `{"do": ...}` of `serve`, `drain`, `close`, `stacks`. Back go
`{"event": ...}` of `loading`, `ready`, `failed`, `stuck`, `drained`. Signals of a terminal, and TERM, mean nothing here.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from prefork import forks, standard
from prefork.errors import ModelLoadError, StartupError, Unavailable
from prefork.frames.arena import Mappings
from prefork.instance import LocalInstance
from prefork.remote import service
from prefork.remote.async_host import AsyncHost
from prefork.remote.batch_host import BatchHost
from prefork.remote.building import build
from prefork.remote.charge import Charge
from prefork.remote.cycles import Cycles
from prefork.remote.doors import give_up, room
from prefork.remote.host import Host
from prefork.remote.limits import Limits
from prefork.remote.peer import Peer
from prefork.remote.signals import deaf
from prefork.remote.starting import is_near, lift_memory, limit_memory
from prefork.remote.status import FAILED, STARVED

log = logging.getLogger("prefork")

CONTROL = 3
_STDERR = 2
_PR_SET_PDEATHSIG = 1
_IGNORED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
)
_GLANCE = 0.02
_MOMENT = 0.3
"""Seconds in which the ends of streams are written, before connections are cut."""
_LOOK = 1.0
"""Seconds between two looks at requests that nobody waits for any more."""


class Serving(Protocol):
    """A host: threads, a loop, or batches."""

    busy: dict[int, Peer]
    mappings: Mappings

    def prepare(self) -> None:
        """Start what will serve. Raises ModelLoadError."""
        ...

    def start(self) -> None:
        """Begin to accept."""
        ...

    def drain(self, *, whole: bool = True) -> None:
        """Serve what is under way, and what waits; then end."""
        ...

    def is_over(self) -> bool:
        """Whether it has ended."""
        ...


class Order(msgspec.Struct, frozen=True):
    """What the supervisor wants. backlog: of a drain, whether what waits is meant too."""

    do: str
    backlog: bool = True


class Control:
    """The supervisor's end of the line."""

    def __init__(self, descriptor: int = CONTROL) -> None:
        self._sock = socket.socket(fileno=descriptor)
        self._file = self._sock.makefile("rb")
        self._lock = threading.Lock()
        self.orders: queue.SimpleQueue[Order] = queue.SimpleQueue()

    def charge(self) -> Charge:
        """The first line. Ends this process when there is none."""
        line = self._file.readline()
        if not line:
            os._exit(0)
        return msgspec.json.decode(line, type=Charge)

    def listen(self) -> None:
        """Take orders from now on; the end of the line is the end of this process."""
        threading.Thread(target=self._read, name="control", daemon=True).start()

    def say(self, event: str, **more: Any) -> None:
        """Tell the supervisor."""
        with self._lock, suppress(OSError):
            self._sock.sendall(msgspec.json.encode({"event": event, **more}) + b"\n")

    def _read(self) -> None:
        try:
            for line in self._file:
                order = msgspec.json.decode(line, type=Order)
                if order.do == "stacks":
                    faulthandler.dump_traceback(_STDERR, all_threads=True)
                else:
                    self.orders.put(order)
        except MemoryError:
            os._exit(STARVED)
        finally:  # nobody is left to be heard: neither is there for whom to go on
            os._exit(0)


def main() -> None:
    """Load the model, serve it, and leave."""
    try:
        _main()
    except (
        MemoryError,
        SystemError,
    ):  # the latter is Python's own for want of memory; whatever else there is to say needs memory too
        os._exit(STARVED)


def _main() -> None:
    standard.keep()
    deaf()
    forks.watch()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    control = Control()
    charge = control.charge()
    if charge.parent and os.getppid() != charge.parent:
        os._exit(0)
    control.listen()
    control.say("loading")
    instance, host = _built(control, charge)
    try:
        _serve(control, host, instance, charge)
    except BaseException as error:  # noqa: BLE001 - whoever is left would be half a process
        give_up(error)
    _leave(0)


def _settle(charge: Charge) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.chdir(charge.directory or charge.folder or ".")
    limit_memory(charge.config.memory_limit)


def _built(control: Control, charge: Charge) -> tuple[LocalInstance, Serving]:
    try:
        _settle(charge)
        instance, card = build(charge)
        host = _host(instance, msgspec.structs.replace(charge, config=card.config))
        host.prepare()
    except BaseException as error:  # noqa: BLE001 - a constructor may call sys.exit() too
        lift_memory()
        forks.end(error)
        control.say("failed", message=_message(error, charge), traceback=_trace(error))
        _leave(FAILED)
    gc.collect()
    gc.freeze()  # what the model has loaded is looked through no more
    control.say("ready", card=msgspec.to_builtins(card), memory=_memory())
    return instance, host


def _host(instance: LocalInstance, charge: Charge) -> Serving:
    listeners = [socket.socket(fileno=number) for number in charge.listeners]
    for each in listeners:
        each.setblocking(False)  # noqa: FBT003 - the signature is socket's
    config = charge.config
    threads = 1 if instance.is_async else max(1, config.threads)
    limits = Limits(charge.max_frame, config.memory_limit, room(config, len(listeners), threads))
    if instance.is_async:
        return AsyncHost(instance, listeners, limits)
    if config.batching is not None and not instance.sends and instance.spec.is_batched:
        return BatchHost(instance, listeners, config.batching, threads, limits)
    return Host(instance, listeners, threads, limits)


def _serve(control: Control, host: Serving, instance: LocalInstance, charge: Charge) -> None:
    watch, cycles = _Watch(control, host, charge.timeout), Cycles(host.busy)
    is_draining = has_said = False
    while True:
        try:
            order = control.orders.get(timeout=_GLANCE if is_draining and not has_said else _LOOK)
        except queue.Empty:
            order = None
        if order is not None and order.do == "serve":
            host.start()
            service.start(instance.custom_service, charge.place)
        elif order is not None and order.do == "drain":
            is_draining = True
            host.drain(whole=order.backlog)
        elif order is not None and order.do == "close":
            _end(host, instance)
            return
        if is_draining and not has_said and host.is_over():
            has_said = True
            control.say("drained")
        watch.look()
        if order is None and not is_draining:
            cycles.look()
        host.mappings.tidy()
        standard.mend()


def _end(host: Serving, instance: LocalInstance) -> None:
    """What is not finished ends with an error now; then the model is unloaded."""
    host.drain(whole=False)
    if instance.end_streams():
        _wait_until(lambda: not host.busy)
    for peer in list(host.busy.values()):
        peer.interrupt(Unavailable("the model is being unloaded"))
    instance.close()


def _wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + _MOMENT
    while not is_so() and time.monotonic() < until:
        time.sleep(_GLANCE)


class _Watch:
    """Sees to requests that nobody waits for any more and that do not come back."""

    def __init__(self, control: Control, host: Serving, seconds: float) -> None:
        self._control = control
        self._host = host
        self._seconds = seconds
        self._gone: dict[int, float] = {}

    def look(self) -> None:
        """Report the first that has been at it for too long."""
        busy = dict(self._host.busy)
        gone = {id(peer) for peer in busy.values() if peer.is_gone()}
        now = time.monotonic()
        self._gone = {each: self._gone.get(each, now) for each in gone}
        if self._seconds and any(now - since > self._seconds for since in self._gone.values()):
            log.error(
                "a request that nobody waits for does not come back; this process is replaced. What every thread does:"
            )
            faulthandler.dump_traceback(_STDERR, all_threads=True)
            self._control.say("stuck")
            self._seconds = 0.0


def _message(error: BaseException, charge: Charge) -> str:
    words, limit = _words(error), charge.config.memory_limit
    is_starved = limit and (
        isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError) or is_near(limit)
    )
    return f"{words} (memory_limit is {limit} bytes)" if is_starved and "memory_limit" not in words else words


def _words(error: BaseException) -> str:
    if isinstance(error, StartupError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"the model called sys.exit({error.code!r})"
    return f"{type(error).__name__}: {error}"


def _trace(error: BaseException) -> str:
    if isinstance(error, ModelLoadError) and error.__cause__ is None:
        return ""
    return "".join(traceback.format_exception(error))


def _memory() -> int:
    """Bytes that this process has: its own, and its part of what it shares (PSS)."""
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.split()[0]) * 1024
    return 0


def _leave(status: int) -> Any:
    """At once: what the user's libraries would still do on leaving is nobody's concern any more, and may hang."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(status)
