"""The answers of models that send them: read and written on one event loop, so that no model thread waits for a client."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import aclosing

from prefork.conversation import Conversation
from prefork.errors import PreforkError
from prefork.frames.codec import encode_answer
from prefork.payload import Payload
from prefork.remote.doors import give_up
from prefork.remote.failing import told
from prefork.remote.hangups import Hangups
from prefork.remote.limits import Limits
from prefork.remote.loops import new_loop
from prefork.remote.peer import Peer
from prefork.remote.starting import start_all

log = logging.getLogger("prefork")


class Post:
    """Carries what conversations send to their peers. busy: the connections that are served, by number."""

    def __init__(self, busy: dict[int, Peer], limits: Limits) -> None:
        self._busy = busy
        self._limits = limits
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hangups: Hangups | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def prepare(self) -> None:
        """Start the loop. Raises ModelLoadError where there can be no more threads."""
        self._running()

    @staticmethod
    def encode(answer: Payload) -> bytes:
        """A part as its frame, in the thread that sends it. Raises BadAnswer."""
        return encode_answer(answer).whole()

    def take(self, peer: Peer, talk: Conversation) -> None:
        """Carry the parts of a conversation, which is about to be asked, from now on."""
        peer.sock.setblocking(False)  # noqa: FBT003 - the signature is socket's
        self._running().call_soon_threadsafe(self._carry, peer, talk)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                loop = new_loop()
                self._hangups = Hangups(loop)
                start_all([threading.Thread(target=self._run, args=(loop,), name="model-post", daemon=True)])
                self._loop = loop
            return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - nobody would be answered any more
            give_up(error)

    def _carry(self, peer: Peer, talk: Conversation) -> None:
        assert self._loop is not None
        assert self._hangups is not None
        number = self._hangups.watch(peer.sock, talk.outbox.leave)
        task = self._loop.create_task(self._deliver(peer, talk, number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, peer: Peer, talk: Conversation, number: int) -> None:
        try:
            await deliver(peer, talk, self._limits)
        finally:
            if self._hangups is not None:
                self._hangups.forget(number)
            self._busy.pop(id(peer), None)


async def deliver(peer: Peer, talk: Conversation, limits: Limits) -> None:
    """Send the parts of a conversation that somebody else asks, to its end."""
    try:
        async with aclosing(talk.parts()) as parts:
            async for frame in parts:
                await peer.part_async(frame)
        await peer.end_async()
    except PreforkError as error:
        await peer.fail_async(told(error, limits))
    except OSError:
        peer.close()
    except Exception:
        log.exception("a request was not answered")
        peer.close()
