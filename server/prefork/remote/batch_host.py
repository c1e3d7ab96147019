"""The model's end for a model that batches: connections are taken as long as the batch has room, and answered together."""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from prefork.batch.ask import Ask, Terms
from prefork.batch.batcher import Batcher
from prefork.errors import BadAnswer, PreforkError
from prefork.instance import Instance
from prefork.payload import Payload
from prefork.remote.host import Doors, Wake, late
from prefork.remote.peer import Peer, SharedMappings
from prefork.repository.config import Batching

log = logging.getLogger("prefork")


class PeerReply:
    """The way back to a connection, as the batch loop wants it."""

    def __init__(self, peer: Peer, busy: dict[int, Peer]) -> None:
        self._peer = peer
        self._busy = busy
        busy[id(peer)] = peer

    def is_cancelled(self) -> bool:
        """Whether the other side has hung up."""
        return self._peer.is_gone()

    def answer(self, answer: Payload, *, last: bool) -> None:
        """Send one answer; one that cannot cross is the error instead."""
        try:
            if last:
                self._forget()
                self._peer.asked = None
                self._peer.only([answer])
            else:
                self._peer.part(answer)
        except BadAnswer as error:
            self._peer.fail(error)
        except OSError:
            self._peer.close()

    def end(self) -> None:
        """Nothing more comes."""
        self._forget()
        self._peer.end()

    def fail(self, error: PreforkError) -> None:
        """Send the error."""
        self._forget()
        self._peer.fail(error)

    def _forget(self) -> None:
        self._busy.pop(id(self._peer), None)


class SocketIntake:
    """The connections that wait at the doors, as an Intake."""

    def __init__(self, listeners: Sequence[socket.socket], terms: Terms, most: int, busy: dict[int, Peer]) -> None:
        self._wake = Wake()
        self._doors = Doors(listeners, self._wake.descriptor)
        self._terms = terms
        self._most = most
        self._busy = busy
        self._mappings = SharedMappings()
        self._takes_rest = True

    @property
    def is_closed(self) -> bool:
        """Whether only what waits already is given out."""
        return self._wake.is_set

    def close(self, *, takes_rest: bool) -> None:
        """Give out what waits, if that is wanted, and nothing more."""
        self._takes_rest = takes_rest
        self._wake.set()

    def take(self, until: float) -> Ask | None:
        """See `Intake`."""
        while self._takes_rest or not self.is_closed:
            sock = self._doors.accept()
            if sock is not None:
                ask = self._ask(Peer(sock, self._mappings, self._most))
                if ask is not None:
                    return ask
                continue
            left = until - time.monotonic()
            if self.is_closed or left <= 0:
                return None
            self._doors.wait(None if left == math.inf else left)
        return None

    def _ask(self, peer: Peer) -> Ask | None:
        if not peer.read():
            return None
        assert peer.asked is not None
        if peer.is_gone():
            peer.close()
            return None
        if time.monotonic() >= peer.asked.deadline:
            peer.fail(late())
            return None
        try:
            reply = PeerReply(peer, self._busy)
            return self._terms.ask(peer.asked.payload, reply, arrived=peer.arrived, deadline=peer.asked.deadline)
        except PreforkError as error:
            peer.fail(error)
            return None


class BatchHost:
    """Serves an instance in batches, on `threads` threads."""

    def __init__(
        self, instance: Instance, listeners: Sequence[socket.socket], policy: Batching, threads: int, most: int
    ) -> None:
        self.busy: dict[int, Peer] = {}
        self._intake = SocketIntake(listeners, Terms(policy, instance.spec), most, self.busy)
        self._batcher = Batcher(self._intake, instance, policy)
        self._threads = [threading.Thread(target=self._run, name=f"model-{n}", daemon=True) for n in range(threads)]

    def start(self) -> None:
        """Begin to accept."""
        for each in self._threads:
            each.start()

    def drain(self, *, whole: bool = True) -> None:
        """Serve what is under way and, if the whole of it is meant, what waits; then end."""
        self._intake.close(takes_rest=whole)

    def is_over(self) -> bool:
        """Whether all threads have ended."""
        return not any(each.is_alive() for each in self._threads)

    def _run(self) -> None:
        with suppress(SystemExit):
            self._batcher.run()
