"""The model's end: threads that take one connection each from the listening sockets, ask the model and answer.

Several processes take from the same sockets, so whoever is free is next. The most urgent socket comes first. What has hung up, or
whose time was up while it waited, is never computed.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from prefork.errors import PreforkError
from prefork.failure import failure
from prefork.frames.arena import Mappings
from prefork.instance import LocalInstance, gives_more
from prefork.model.reschedule import Reschedule
from prefork.payload import Cost, Payload, rows
from prefork.remote.doors import BREATH, Doors, Short, Wake, give_up
from prefork.remote.failing import late, told
from prefork.remote.limits import Limits
from prefork.remote.peer import Peer
from prefork.remote.post import Post
from prefork.remote.starting import start_all

log = logging.getLogger("prefork")


class Host:
    """Serves an instance on `threads` threads."""

    def __init__(
        self, instance: LocalInstance, listeners: Sequence[socket.socket], threads: int, limits: Limits
    ) -> None:
        self._instance = instance
        self._listeners = listeners
        self._limits = limits
        self.mappings = Mappings()
        self._draining = Wake()
        self._may_go = threading.Event()
        self._takes_rest = True
        self._again: deque[partial[None]] = deque()
        self.busy: dict[int, Peer] = {}
        """By number, the connections that are served."""
        self._post = Post(self.busy, limits)
        self._threads = [threading.Thread(target=self._run, name=f"model-{n}", daemon=True) for n in range(threads)]

    def prepare(self) -> None:
        """Start the threads, which wait. Raises ModelLoadError where there can be no more."""
        start_all(self._threads)
        if self._instance.sends:
            self._post.prepare()

    def start(self) -> None:
        """Begin to accept."""
        self._may_go.set()

    def drain(self, *, whole: bool = True) -> None:
        """Serve what is under way and, if the whole of it is meant, what waits; then end."""
        self._takes_rest = whole
        self._draining.set()
        self._may_go.set()

    def is_over(self) -> bool:
        """Whether all is answered and all threads have ended."""
        return not self.busy and not any(each.is_alive() for each in self._threads)

    def _run(self) -> None:
        self._may_go.wait()
        doors = Doors(self._listeners, self._draining.descriptor, self._limits.room)
        try:
            self._serve(doors)
        except BaseException as error:  # noqa: BLE001 - a thread that has ended silently would serve nothing
            give_up(error)
        finally:
            doors.close()

    def _serve(self, doors: Doors) -> None:
        while True:
            try:
                sock = doors.take(0 if self._again else None) if self._takes_rest else None
            except Short:
                time.sleep(BREATH)
                continue
            if sock is not None:
                self._begin(sock, doors)
            elif self._again:
                self._go_on()
            elif self._draining.is_set:
                return

    def _go_on(self) -> None:
        try:
            run = self._again.popleft()
        except IndexError:  # another thread was faster
            return
        run()

    def _begin(self, sock: socket.SocketType, doors: Doors) -> None:
        peer = Peer(sock, self.mappings, self._limits.frame)
        if not peer.read():
            return
        if peer.is_late:
            peer.fail(late())
        elif peer.is_left:
            peer.close()
        else:
            self.busy[id(peer)] = peer
            self._ask(peer, doors)

    def _ask(self, peer: Peer, doors: Doors) -> None:
        """Ask for the first time, or once more."""
        assert peer.asked is not None
        if self._instance.sends and peer.asked.payload.method == "predict":
            talk = self._instance.open(peer.asked.payload, self._post.encode)
            self._post.take(peer, talk)
            self._converse(talk)
            return
        try:
            answer(self._instance, peer, self._limits, doors)
        except Reschedule:
            self._again.append(partial(self._ask, peer, doors))
            return
        except BaseException as error:  # the thread has to go on for the others
            log.exception("a request was not answered")
            peer.fail(told(failure(error), self._limits))
        self.busy.pop(id(peer), None)
        if peer.stays:
            doors.keep(peer.sock)

    def _converse(self, talk: Any) -> None:
        if talk.ask():
            self._again.append(partial(self._converse, talk))


def answer(instance: LocalInstance, peer: Peer, limits: Limits, doors: Doors) -> None:
    """Ask the instance, and answer. Raises Reschedule for a request that the model has handed back."""
    assert peer.asked is not None
    request = peer.asked.payload
    cost, begun = cost_of(peer), time.monotonic_ns()
    answers = instance.infer(request)
    is_stream = instance.spec.streams and request.method == "predict"
    del request
    try:
        first = next(answers, None)
        if first is not None:
            cost.compute_ns = time.monotonic_ns() - begun
            first.cost = cost
        second = None
        if not is_stream and first is not None and not gives_more(answers):
            second = next(answers, None)
            if second is None:
                peer.only(first, stays=doors.have_room())
                return
        _stream((first, second), answers, peer)
    except PreforkError as error:
        peer.fail(told(error, limits))
    except OSError:
        peer.close()
    finally:
        close = getattr(answers, "close", None)
        if close is not None:
            close()


def _stream(begin: tuple[Payload | None, ...], rest: Iterator[Payload], peer: Peer) -> None:
    for each in begin:
        if each is not None:
            peer.part(each)
    for each in rest:
        peer.part(each)
    peer.end()


def cost_of(peer: Peer) -> Cost:
    """What is known of a request's cost when the model is about to be asked."""
    assert peer.asked is not None
    waited = max(0, int((time.monotonic() - peer.asked.sent) * 1e9))
    return Cost(waited, 0, rows(peer.asked.payload))
