"""The model's end for an asynchronous model: one event loop takes every connection as it comes, up to `MOST_AT_ONCE`."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from prefork.errors import PreforkError
from prefork.failure import failure
from prefork.frames.arena import Mappings
from prefork.frames.codec import encode_answer
from prefork.instance import LocalInstance
from prefork.model.reschedule import Reschedule
from prefork.payload import Payload
from prefork.remote.ahead import Ahead
from prefork.remote.doors import BREATH, Doors, Short, give_up
from prefork.remote.failing import late, told
from prefork.remote.hangups import Hangups
from prefork.remote.host import cost_of
from prefork.remote.limits import Limits
from prefork.remote.loops import of_model
from prefork.remote.peer import Peer
from prefork.remote.starting import start_all

log = logging.getLogger("prefork")

MOST_AT_ONCE = 1024


class AsyncHost:
    """Serves an instance on an event loop in a thread of its own."""

    def __init__(self, instance: LocalInstance, listeners: Sequence[socket.socket], limits: Limits) -> None:
        self._instance = instance
        self._doors = Doors(listeners, room=limits.room)
        self._limits = limits
        self.mappings = Mappings()
        self._loop = of_model()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = False
        self._is_draining = False
        self._is_drained = False
        self._takes_rest = True
        self.busy: dict[int, Peer] = {}
        """By number, the connections that are served."""
        self._may_go = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model-loop", daemon=True)

    def prepare(self) -> None:
        """Start the thread, which waits. Raises ModelLoadError where there can be no more."""
        start_all([self._thread])

    def start(self) -> None:
        """Begin to accept."""
        self._may_go.set()

    def drain(self, *, whole: bool = True) -> None:
        """Serve what is under way and, if the whole of it is meant, what waits; then end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._drain, whole)
        self._may_go.set()

    def is_over(self) -> bool:
        """Whether the loop has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._may_go.wait()
        asyncio.set_event_loop(self._loop)
        try:
            self._hangups = Hangups(self._loop)
            self._loop.call_soon(self._open)
            self._loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - a sys.exit() in a task of the user's, for one
            give_up(error)
        if not self._is_drained:
            give_up(RuntimeError("the model's code has stopped its event loop"))
        self._doors.close()

    def _open(self) -> None:
        if not self._is_open and not self._is_draining:
            self._is_open = True
            self._loop.add_reader(self._doors.fileno(), self._accept)
            self._accept()  # what the doors hold already shows no more outside

    def _pause(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._doors.fileno())

    def _accept(self) -> None:
        try:
            while len(self._tasks) < MOST_AT_ONCE:
                sock = self._doors.take(0)
                if sock is None:
                    return
                self._begin(sock)
        except Short:
            self._loop.call_later(BREATH, self._open)
        except OSError as error:
            give_up(error)
        self._pause()

    def _begin(self, sock: socket.SocketType) -> None:
        sock.setblocking(False)  # noqa: FBT003 - the signature is socket's
        peer = Peer(sock, self.mappings, self._limits.frame)
        task = self._loop.create_task(self._serve(peer, again=self._doors.has_stayed))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._is_draining:
            self._go_on()
        elif len(self._tasks) == MOST_AT_ONCE - 1:
            self._open()

    def _drain(self, whole: bool) -> None:  # noqa: FBT001 - call_soon_threadsafe takes no keywords
        self._is_draining, self._takes_rest = True, whole
        self._pause()
        self._go_on()

    def _go_on(self) -> None:
        if self._takes_rest:
            self._accept()
        if not self._tasks:
            self._is_drained = True
            self._loop.stop()

    async def _serve(self, peer: Peer, *, again: bool) -> None:
        try:
            if not (peer.looks() or await peer.read_async()):
                return
        except Exception:  # noqa: BLE001 - `looks` has told the other side what it could
            peer.close()
            return
        if peer.is_late:
            await peer.fail_async(late())
            return
        if peer.is_left:
            peer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self.busy[id(peer)] = peer
        number = self._hangups.watch(peer.sock, task.cancel, again=again)
        try:
            await self._answer(peer)
        except asyncio.CancelledError as error:
            if task.cancelling():  # its client has gone
                peer.close()
            else:
                await peer.fail_async(told(failure(error), self._limits))
        except OSError:
            peer.close()
        except BaseException as error:  # the loop has to go on for the others
            log.exception("a request was not answered")
            await peer.fail_async(told(failure(error), self._limits))
        finally:
            self._hangups.forget(number)
            self.busy.pop(id(peer), None)
            if peer.stays:
                self._doors.keep(peer.sock)

    async def _answer(self, peer: Peer) -> None:
        assert peer.asked is not None
        try:
            if self._instance.sends and peer.asked.payload.method == "predict":
                await self._deliver(peer)
                return
            try:
                await self._ask(peer)
            except Reschedule:
                await asyncio.sleep(0)
                await self._ask(peer)
        except PreforkError as error:
            await peer.fail_async(told(error, self._limits))

    async def _deliver(self, peer: Peer) -> None:
        """A part is encoded by who sends it, and may be changed by then."""
        assert peer.asked is not None
        talk = self._instance.open(peer.asked.payload, lambda part: encode_answer(part).whole())
        async with aclosing(talk.on_loop()) as parts:
            async for frame in parts:
                await peer.part_async(frame)
        await peer.end_async()

    async def _ask(self, peer: Peer) -> None:
        assert peer.asked is not None
        cost, begun = cost_of(peer), time.monotonic_ns()
        is_stream = self._instance.spec.streams and peer.asked.payload.method == "predict"
        answers = self._instance.infer_async(peer.asked.payload)
        try:
            first = await anext(answers, None)
            if first is not None:
                cost.compute_ns = time.monotonic_ns() - begun
                first.cost = cost
                if not is_stream:
                    await self._one(first, answers, peer)
                    return
                await _part(peer, first)
            await _stream(answers, peer)
        finally:
            await answers.aclose()  # type: ignore[attr-defined]

    async def _one(self, first: Payload, answers: AsyncIterator[Payload], peer: Peer) -> None:
        ahead = Ahead(answers)
        try:
            if ahead.is_there and ahead.item is None:
                await peer.only_async(first, stays=not self._is_draining and self._doors.have_room())
                return
            # A model that says only now that it streams: what it has said is not kept until it says more.
            await _part(peer, first)
            second = await ahead
        finally:
            ahead.cancel()
        if second is not None:
            await _part(peer, second)
        await _stream(answers, peer)


async def _stream(answers: AsyncIterator[Payload], peer: Peer) -> None:
    async for each in answers:
        await _part(peer, each)
    await peer.end_async()


async def _part(peer: Peer, answer: Payload) -> None:
    frame = encode_answer(answer).whole()
    answer.value = None
    await peer.part_async(frame)
