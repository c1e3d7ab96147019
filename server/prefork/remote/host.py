"""The model's end: threads that take one connection each from the listening sockets, ask the model and answer.

Several processes take from the same sockets, so whoever is free is next. The most urgent socket comes first. What has hung up, or
whose time was up while it waited, is never computed.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from prefork.errors import PreforkError, Unavailable
from prefork.instance import Instance
from prefork.model.reschedule import Reschedule
from prefork.payload import Cost, Payload
from prefork.remote.peer import Peer, SharedMappings

log = logging.getLogger("prefork")

_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_BREATH = 0.05


class Doors:
    """The listening sockets of an instance, the most urgent first, for one thread.

    Level-triggered and exclusive: of all threads and processes that wait, the kernel wakes one for a connection.
    """

    def __init__(self, listeners: Sequence[socket.socket], wake: int) -> None:
        self._listeners = listeners
        self._poll = select.epoll()
        for each in listeners:
            self._poll.register(each, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        self._poll.register(wake, select.EPOLLIN)

    def accept(self) -> socket.socket | None:
        """A connection that waits; None when there is none."""
        for each in self._listeners:
            try:
                found, _ = each.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
                time.sleep(_BREATH)  # whoever has descriptors gives some back
                continue
            found.setblocking(True)
            return found
        return None

    def wait(self, seconds: float | None = None) -> None:
        """Until there is a connection, somebody wakes this, or so long."""
        self._poll.poll(seconds)

    def close(self) -> None:
        """Wait for nothing more."""
        self._poll.close()


class Wake:
    """What wakes every thread that waits at its doors, for good."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.is_set = False

    def set(self) -> None:
        """Wake them."""
        self.is_set = True
        os.eventfd_write(self.descriptor, 1)


class Host:
    """Serves an instance on `threads` threads. most: bytes of a request's tensors."""

    def __init__(self, instance: Instance, listeners: Sequence[socket.socket], threads: int, most: int) -> None:
        self._instance = instance
        self._listeners = listeners
        self._most = most
        self._mappings = SharedMappings()
        self._draining = Wake()
        self._takes_rest = True
        self._again: deque[Peer] = deque()
        self.busy: dict[int, Peer] = {}
        """By thread, the connection that it serves."""
        self._threads = [threading.Thread(target=self._serve, name=f"model-{n}", daemon=True) for n in range(threads)]

    def start(self) -> None:
        """Begin to accept."""
        for each in self._threads:
            each.start()

    def drain(self, *, whole: bool = True) -> None:
        """Serve what is under way and, if the whole of it is meant, what waits; then end."""
        self._takes_rest = whole
        self._draining.set()

    def is_over(self) -> bool:
        """Whether all threads have ended."""
        return not any(each.is_alive() for each in self._threads)

    def _serve(self) -> None:
        doors = Doors(self._listeners, self._draining.descriptor)
        me = threading.get_ident()
        while self._takes_rest or not self._draining.is_set:
            peer = self._next(doors)
            if peer is None:
                if self._draining.is_set:
                    break
                doors.wait()
                continue
            self.busy[me] = peer
            try:
                self._talk(peer)
            except Exception:
                log.exception("a request was not answered")  # the thread has to go on for the others
                peer.close()
            finally:
                del self.busy[me], peer
        doors.close()

    def _next(self, doors: Doors) -> Peer | None:
        sock = doors.accept()
        if sock is not None:
            return Peer(sock, self._mappings, self._most)
        try:
            return self._again.popleft()
        except IndexError:
            return None

    def _talk(self, peer: Peer) -> None:
        if peer.asked is None and not peer.read():
            return
        if peer.is_gone():
            peer.close()
            return
        assert peer.asked is not None
        if time.monotonic() >= peer.asked.deadline:
            peer.fail(late())
            return
        try:
            answer(self._instance, peer)
        except Reschedule:
            self._again.append(peer)


def answer(instance: Instance, peer: Peer) -> None:
    """Ask the instance, and answer. Raises Reschedule for a request that the model has handed back."""
    assert peer.asked is not None
    request = peer.asked.payload
    begun = time.monotonic()
    answers = instance.infer(request)
    is_stream = instance.spec.streams and request.method == "predict"
    cost = Cost(int((begun - peer.arrived) * 1e9), 0, rows(request))
    del request
    try:
        if is_stream:
            _stream(answers, peer, cost, begun)
        else:
            _one(answers, peer, cost, begun)
    except PreforkError as error:
        error.__traceback__ = None  # its frames hold the request
        peer.fail(error)
    except OSError:
        peer.close()
    finally:
        close = getattr(answers, "close", None)
        if close is not None:
            close()


def _one(answers: Iterator[Payload], peer: Peer, cost: Cost, begun: float) -> None:
    box = list(_first(answers))
    cost.compute_ns = int((time.monotonic() - begun) * 1e9)
    if not box:
        peer.end()
        return
    box[0].cost = cost
    second = next(answers, None)
    if second is None:
        peer.asked = None
        peer.only(box)
    else:  # a model that says only now that it streams
        peer.part(box.pop())
        peer.part(second)
        del second
        _stream(answers, peer, None, begun)


def _first(answers: Iterator[Payload]) -> Iterator[Payload]:
    for each in answers:
        yield each
        return


def _stream(answers: Iterator[Payload], peer: Peer, cost: Cost | None, begun: float) -> None:
    for each in answers:
        if cost is not None:
            cost.compute_ns = int((time.monotonic() - begun) * 1e9)
            each.cost, cost = cost, None
        if peer.is_gone():
            peer.close()
            return
        peer.part(each)
    peer.end()


def rows(request: Payload) -> int:
    """Rows of a request, as statistics count them: of the first axis of what may be a batch, else 1."""
    value = request.value
    if isinstance(value, dict):
        value = next((each for each in value.values() if hasattr(each, "shape")), None)
    shape: Sequence[int] = getattr(value, "shape", ())
    return shape[0] if len(shape) > 1 else 1


def late() -> Unavailable:
    """The refusal of a request whose time was up while it waited."""
    error = Unavailable("the time for this request was up before the model was free for it")
    error.headers = (("Retry-After", "1"),)
    return error
