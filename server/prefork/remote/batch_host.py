"""The model's end for a model that batches: connections are taken as long as the batch has room, and answered together."""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from collections.abc import Sequence

from prefork.batch.ask import Ask, Terms
from prefork.batch.batcher import Batcher
from prefork.errors import BadAnswer, PreforkError
from prefork.frames.arena import Mappings
from prefork.instance import LocalInstance
from prefork.payload import Payload
from prefork.remote.doors import BREATH, Doors, Short, Wake, give_up
from prefork.remote.failing import late, told
from prefork.remote.limits import Limits
from prefork.remote.peer import Peer
from prefork.remote.starting import start_all
from prefork.repository.config import Batching

log = logging.getLogger("prefork")


class PeerReply:
    """The way back to a connection, as the batch loop wants it."""

    def __init__(self, peer: Peer, busy: dict[int, Peer], limits: Limits, doors: Doors) -> None:
        self._peer = peer
        self._doors = doors
        self._busy = busy
        self._limits = limits
        busy[id(peer)] = peer

    def is_cancelled(self) -> bool:
        """Whether the other side has hung up."""
        return self._peer.is_gone()

    def answer(self, answer: Payload, *, last: bool) -> None:
        """Send one answer; one that cannot cross is the error instead."""
        try:
            if last:
                self._peer.only(answer, stays=self._doors.have_room())
                self._forget()
                if self._peer.stays:
                    self._doors.keep(self._peer.sock)
            else:
                self._peer.part(answer)
        except BadAnswer as error:
            self.fail(error)
        except OSError:
            self._peer.close()

    def end(self) -> None:
        """Nothing more comes."""
        self._peer.end()
        self._forget()

    def fail(self, error: PreforkError) -> None:
        """Send the error."""
        self._peer.fail(told(error, self._limits))
        self._forget()

    def _forget(self) -> None:
        self._busy.pop(id(self._peer), None)


class SocketIntake:
    """The connections that wait at the doors, as an Intake."""

    def __init__(self, listeners: Sequence[socket.socket], terms: Terms, busy: dict[int, Peer], limits: Limits) -> None:
        self._wake = Wake()
        self._doors = Doors(listeners, self._wake.descriptor, limits.room)
        self._terms = terms
        self._busy = busy
        self._limits = limits
        self.mappings = Mappings()
        self._takes_rest = True

    @property
    def is_closed(self) -> bool:
        """Whether only what waits already is given out."""
        return self._wake.is_set

    def close(self, *, takes_rest: bool) -> None:
        """Give out what waits, if that is wanted, and nothing more."""
        self._takes_rest = takes_rest
        self._wake.set()

    def clear(self) -> None:
        """Hang up those that wait here in vain."""
        self._doors.clear()

    def take(self, until: float) -> Ask | None:
        """See `Intake`."""
        while self._takes_rest or not self.is_closed:
            left = 0.0 if self.is_closed else max(0.0, until - time.monotonic())
            sock = self._accepted(None if left == math.inf else left)
            if sock is None:
                if self.is_closed or time.monotonic() >= until:
                    return None
                continue
            ask = self._ask(Peer(sock, self.mappings, self._limits.frame))
            if ask is not None:
                return ask
        return None

    def _accepted(self, seconds: float | None) -> socket.SocketType | None:
        try:
            return self._doors.take(seconds)
        except Short:
            time.sleep(BREATH)
            return None
        except OSError as error:
            return give_up(error)

    def _ask(self, peer: Peer) -> Ask | None:
        if not peer.read():
            return None
        assert peer.asked is not None
        if peer.is_late:
            peer.fail(late())
            return None
        if peer.is_left:
            peer.close()
            return None
        payload, arrived, deadline = peer.asked
        reply = PeerReply(peer, self._busy, self._limits, self._doors)
        try:
            return self._terms.ask(payload, reply, arrived=min(arrived, time.monotonic()), deadline=deadline)
        except PreforkError as error:
            reply.fail(error)
            return None


class BatchHost:
    """Serves an instance in batches, on `threads` threads."""

    def __init__(
        self,
        instance: LocalInstance,
        listeners: Sequence[socket.socket],
        policy: Batching,
        threads: int,
        limits: Limits,
    ) -> None:
        self.busy: dict[int, Peer] = {}
        self._intake = SocketIntake(listeners, Terms(policy, instance.spec), self.busy, limits)
        self.mappings = self._intake.mappings
        self._may_go = threading.Event()
        self._batcher = Batcher(self._intake, instance, policy)
        self._threads = [threading.Thread(target=self._run, name=f"model-{n}", daemon=True) for n in range(threads)]

    def prepare(self) -> None:
        """Start the threads, which wait. Raises ModelLoadError where there can be no more."""
        start_all(self._threads)

    def start(self) -> None:
        """Begin to accept."""
        self._may_go.set()

    def drain(self, *, whole: bool = True) -> None:
        """Serve what is under way and, if the whole of it is meant, what waits; then end."""
        self._intake.close(takes_rest=whole)
        self._may_go.set()

    def is_over(self) -> bool:
        """Whether all threads have ended."""
        return not any(each.is_alive() for each in self._threads)

    def _run(self) -> None:
        self._may_go.wait()
        try:
            self._batcher.run()
        except BaseException as error:  # noqa: BLE001 - a thread that has ended silently would serve nothing
            give_up(error)
        self._intake.clear()
