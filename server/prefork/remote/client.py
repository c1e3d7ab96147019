"""The worker's end: an Instance whose far end is a process that takes connections from a Unix socket.

One request at a time is one connection, which may stay for the next. Hanging up cancels. The listening socket is the version's, its
backlog is the queue: when it is full there is a refusal at once. A request of large tensors lends the other side an arena, which
the answer may use as well.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from prefork.batch.ask import full
from prefork.batch.plan import level
from prefork.errors import DeadlineExceeded, NotFound, PreforkError, Unavailable
from prefork.frames.arena import Arenas
from prefork.frames.codec import encode_request
from prefork.frames.layout import BadFrame
from prefork.payload import ModelSpec, Payload
from prefork.remote import away, blocking, onloop
from prefork.remote.away import Away
from prefork.remote.charge import Card
from prefork.remote.lines import Line, Lines
from prefork.remote.talk import UNHEARD, Died, Talk, was_read
from prefork.remote.turn import Behind, Turn, limits
from prefork.remote.wire import Arrived, Cut
from prefork.single import wrong_count

_TRIES = 3
"""How often a request is sent of which the model has seen nothing: its process had just gone."""

_KIND = (int(socket.AF_UNIX), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
_LONGEST_PATH = 100
_SOON = (("Retry-After", "1"),)
_AGAIN = (*UNHEARD, Behind)
_DEAD = (Died, Cut, BadFrame)


class RemoteInstance:
    """A model in other processes.

    address: where its socket is now, for a level of priority (0 where there are none); it may raise PreforkError.
    most: bytes of an answer's tensors. known: where it was when its card was read, which is tried before the address is asked for.
    lines: connections that stay.
    """

    is_async = True
    tells_cost = True
    """Whether each answer has its cost."""

    def __init__(
        self,
        address: Callable[[int], str],
        card: Card,
        most: int = 1 << 32,
        known: str = "",
        lines: Lines | None = None,
    ) -> None:
        self._address = address
        self._card = card
        self._most = most
        self._raw = card.spec.raw
        self._arenas = Arenas()
        self._lines = Lines() if lines is None else lines
        batching = card.config.batching
        self._policy = batching if batching is not None and batching.priority_levels else None
        self._timed = batching if limits(batching) else None
        self._known = "" if self._policy is not None else known

    @property
    def spec(self) -> ModelSpec:
        """What the model takes."""
        return self._card.spec

    def infer(self, request: Payload) -> Iterator[Payload]:
        """The answers as they come; this thread waits for them. Raises PreforkError only."""
        talk, turn = self._talk(request), self._turn(request)
        while True:
            sock = away.wait(self._connect, talk, request)
            try:
                blocking.limit(sock, request.deadline)
                talk.send(sock)
                while not talk.is_over:
                    answer = talk.took(_frame_now(sock, talk, turn, request.deadline))
                    if answer is not None:
                        yield answer
                        del answer
            except _AGAIN as error:
                self._retry(talk, error)
            except TimeoutError:
                raise _late(sock) from None
            except _DEAD:
                raise self._died() from None
            else:
                return
            finally:
                talk.leave(sock, request)

    async def answer_async(self, request: Payload) -> Payload:
        """The only answer, on the running event loop. Raises PreforkError; where there are none or several, of status 500."""
        talk, turn = self._talk(request, may_stay=True), self._turn(request)
        found: Payload | None = None
        while True:
            line = await away.wait_async(self._line, talk, request)
            try:
                if not talk.begin(line.sock):
                    await talk.send_async(line.sock)
                while not talk.is_over:
                    read = partial(line.frame, talk.incoming)
                    answer = talk.took(await (read() if turn is None else turn.frame(line.sock, read)))
                    if answer is not None:
                        if found is not None:
                            raise wrong_count("several")
                        found = answer
            except _AGAIN as error:
                self._retry(talk, error)
            except _DEAD:
                raise self._died() from None
            else:
                break
            finally:
                self._leave(line, talk, request)
        if found is None:
            raise wrong_count("none")
        return found

    async def infer_async(self, request: Payload) -> AsyncIterator[Payload]:
        """The answers as they come, on the running event loop. Raises PreforkError only."""
        talk, turn = self._talk(request), self._turn(request)
        while True:
            sock = await away.wait_async(self._connect, talk, request)
            try:
                if not talk.begin(sock):
                    await talk.send_async(sock)
                while not talk.is_over:
                    read = partial(onloop.frame, sock, talk.incoming)
                    answer = talk.took(await (read() if turn is None else turn.frame(sock, read)))
                    if answer is not None:
                        yield answer
                        del answer
            except _AGAIN as error:
                self._retry(talk, error)
            except _DEAD:
                raise self._died() from None
            else:
                return
            finally:
                talk.leave(sock, request)

    def ready(self) -> bool:
        """Whether there is a version that can be asked."""
        try:
            self._address(0)
        except PreforkError:
            return False
        return True

    def close(self) -> None:
        """Give up the memory that was shared."""
        self._arenas.close()
        self._lines.leave(self._known)

    def _talk(self, request: Payload, *, may_stay: bool = False) -> Talk:
        frame = encode_request(request, time.monotonic(), request.deadline, whole=request.method in self._raw)
        return Talk(frame, request, self._arenas, self._most, may_stay=may_stay)

    def _turn(self, request: Payload) -> Turn | None:
        return None if self._timed is None else Turn(self._timed, request.parameters)

    def _retry(self, talk: Talk, error: Exception) -> None:
        """Have another try, if the model has seen nothing of the request. Raises Unavailable."""
        if isinstance(error, Behind):
            talk.afresh()
            return
        self._lines.leave(self._known)  # to the same process
        if talk.has_answered or talk.tries == _TRIES:
            raise self._died() from None
        talk.again()

    def _line(self, talk: Talk, request: Payload) -> Line:
        line = self._lines.take(self._known)
        if line is None:
            return Line(self._connect(talk, request), self._known)
        try:
            talk.prepare()
        except BaseException:
            self._lines.keep(line)
            raise
        return line

    def _leave(self, line: Line, talk: Talk, request: Payload) -> None:
        talk.end(line.sock, request)
        if talk.stays:
            self._lines.keep(line)
        else:
            line.close()

    def _connect(self, talk: Talk, request: Payload) -> socket.SocketType:
        talk.prepare()
        try:
            if self._known and talk.tries == 1:
                sock = self._connected(self._known)
                if sock is not None:
                    return sock
            return self._found(request)
        except BaseException as error:
            talk.put_back()
            if isinstance(error, NotFound) and talk.tries > 1:  # it was there when the request came
                raise self._unloaded() from None
            raise

    def _found(self, request: Payload) -> socket.SocketType:
        urgency = level(request.parameters or {}, self._policy) if self._policy is not None else 0
        for _ in range(_TRIES):
            sock = self._connected(self._address(urgency))
            if sock is not None:
                return sock
        raise Away(f"the model {self._card.spec.name} is not there at this moment")

    def _connected(self, path: str) -> socket.SocketType | None:
        """A connection; None when there is nobody any more."""
        # A socket without the part that is written in Python. It is looked up now: gevent may have put its own there.
        sock = socket.SocketType(*_KIND)
        try:
            if len(path) <= _LONGEST_PATH:
                sock.connect(path)
            else:
                _connect_through_folder(sock, path)
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
        except BlockingIOError:
            sock.close()
            raise self._full() from None
        except OSError as error:
            sock.close()
            raise self._unavailable(f"cannot be reached: {error}") from None
        return sock

    def _full(self) -> Unavailable:
        if self._card.config.batching is not None:
            return full()
        return self._unavailable("has as many requests waiting as it takes (max_queue)")

    def _died(self) -> Unavailable:
        try:
            self._address(0)
        except NotFound:
            return self._unloaded()
        except PreforkError:
            pass
        return self._unavailable("has lost the process that computed this request")

    def _unloaded(self) -> Unavailable:
        return Unavailable(f"the model {self._card.spec.name} was unloaded before it had answered this request")

    def _unavailable(self, what: str) -> Unavailable:
        error = Unavailable(f"the model {self._card.spec.name} {what}")
        error.headers = _SOON
        return error


def _connect_through_folder(sock: socket.SocketType, path: str) -> None:
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


def _frame_now(sock: socket.SocketType, talk: Talk, turn: Turn | None, deadline: float) -> Arrived:
    if turn is not None:
        return turn.frame_now(sock, talk.incoming, deadline)
    return blocking.frame(sock, talk.incoming, deadline)


def _late(sock: socket.SocketType) -> PreforkError:
    if was_read(sock):
        return DeadlineExceeded("the model did not answer in the time for this request")
    error = Unavailable("the time for this request was up before the model was free for it")
    error.headers = _SOON
    return error
