"""The model's end for an asynchronous model: one event loop takes every connection as it comes, up to `MOST_AT_ONCE`."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Sequence

from prefork.errors import PreforkError
from prefork.frames.codec import encode_answer
from prefork.instance import Instance
from prefork.model.reschedule import Reschedule
from prefork.payload import Cost, Payload
from prefork.remote import onloop
from prefork.remote.host import late, rows
from prefork.remote.peer import Peer, SharedMappings
from prefork.remote.wire import Send

log = logging.getLogger("prefork")

MOST_AT_ONCE = 1024
READ_SECONDS = 1
"""The whole loop waits while a worker sends what it has begun, which it has in memory."""


class AsyncHost:
    """Serves an instance on an event loop in a thread of its own. most: bytes of a request's tensors."""

    def __init__(self, instance: Instance, listeners: Sequence[socket.socket], most: int) -> None:
        self._instance = instance
        self._listeners = listeners
        self._most = most
        self._mappings = SharedMappings()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._takes_rest = True
        self.busy: dict[int, Peer] = {}
        """By number, the connections that are served."""
        self._thread = threading.Thread(target=self._run, name="model-loop", daemon=True)

    def start(self) -> None:
        """Begin to accept."""
        self._thread.start()

    def drain(self, *, whole: bool = True) -> None:
        """Serve what is under way and, if the whole of it is meant, what waits; then end."""
        self._loop.call_soon_threadsafe(self._drain, whole)

    def is_over(self) -> bool:
        """Whether the loop has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._open()
        self._loop.run_forever()
        self._loop.close()

    def _open(self) -> None:
        for each in self._listeners:
            self._loop.add_reader(each, self._accept)

    def _pause(self) -> None:
        for each in self._listeners:
            self._loop.remove_reader(each)

    def _accept(self) -> None:
        for each in self._listeners:
            while len(self._tasks) < MOST_AT_ONCE:
                try:
                    sock, _ = each.accept()
                except (BlockingIOError, ConnectionAbortedError):
                    break
                sock.setblocking(True)
                task = self._loop.create_task(self._serve(Peer(sock, self._mappings, self._most, READ_SECONDS)))
                self._tasks.add(task)
                task.add_done_callback(self._done)
        if len(self._tasks) >= MOST_AT_ONCE:
            self._pause()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._is_draining:
            if self._takes_rest:
                self._accept()
            if not self._tasks:
                self._loop.stop()
        elif len(self._tasks) == MOST_AT_ONCE - 1:
            self._open()

    def _drain(self, whole: bool) -> None:  # noqa: FBT001 - call_soon_threadsafe takes no keywords
        self._is_draining, self._takes_rest = True, whole
        self._pause()
        if whole:
            self._accept()
        if not self._tasks:
            self._loop.stop()

    async def _serve(self, peer: Peer) -> None:
        if not peer.read():
            return
        assert peer.asked is not None
        if time.monotonic() >= peer.asked.deadline:
            peer.fail(late())
            return
        task = asyncio.current_task()
        assert task is not None
        self.busy[id(peer)] = peer
        self._loop.add_reader(peer.sock, self._look, peer, task)
        try:
            await self._answer(peer)
        except asyncio.CancelledError:
            peer.close()
        except Exception:
            log.exception("a request was not answered")
            peer.close()
        finally:
            del self.busy[id(peer)]
            self._unwatch(peer)

    async def _answer(self, peer: Peer) -> None:
        assert peer.asked is not None
        request = peer.asked.payload
        try:
            await self._ask(peer, request)
        except Reschedule:
            await asyncio.sleep(0)
            await self._ask(peer, request)

    async def _ask(self, peer: Peer, request: Payload) -> None:
        begun = time.monotonic()
        cost = Cost(int((begun - peer.arrived) * 1e9), 0, rows(request))
        answers = self._instance.infer_async(request)
        try:
            if self._instance.spec.streams and request.method == "predict":
                await self._stream(answers, peer, cost, begun)
            else:
                await self._one(answers, peer, cost, begun)
        except PreforkError as error:
            self._unwatch(peer)
            peer.fail(error)
        except OSError:
            self._unwatch(peer)
            peer.close()
        finally:
            await answers.aclose()  # type: ignore[attr-defined]

    async def _one(self, answers: AsyncIterator[Payload], peer: Peer, cost: Cost, begun: float) -> None:
        first = await anext(answers, None)
        cost.compute_ns = int((time.monotonic() - begun) * 1e9)
        if first is None:
            self._unwatch(peer)
            peer.end()
            return
        first.cost = cost
        second = await anext(answers, None)
        if second is None:
            self._unwatch(peer)
            box = [first]
            del first
            peer.only(box)
            return
        await self._part(peer, first)
        await self._part(peer, second)
        await self._stream(answers, peer, None, begun)

    async def _stream(self, answers: AsyncIterator[Payload], peer: Peer, cost: Cost | None, begun: float) -> None:
        async for each in answers:
            if cost is not None:
                cost.compute_ns = int((time.monotonic() - begun) * 1e9)
                each.cost, cost = cost, None
            await self._part(peer, each)
        self._unwatch(peer)
        peer.end()

    async def _part(self, peer: Peer, answer: Payload) -> None:
        frame = encode_answer(answer)
        peer.sock.setblocking(False)
        try:
            await onloop.do(Send(frame.inline()), peer.sock)
        finally:
            peer.sock.setblocking(True)

    def _look(self, peer: Peer, task: asyncio.Task[None]) -> None:
        if peer.is_gone():
            self._unwatch(peer)
            task.cancel()

    def _unwatch(self, peer: Peer) -> None:
        if peer.sock.fileno() >= 0:
            self._loop.remove_reader(peer.sock)
