"""How connections fall on workers: the rule with a clock of our own, then real connections on real workers."""

from __future__ import annotations

import pathlib
import random
import selectors
import socket
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefork.processes.balance import ACCEPTING, LOADED, PATIENCE, Board, Gate
from watched import Watched, until


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Desk:
    """A worker of the simulation."""

    def __init__(self, board, clock):
        self.slot = board.take()
        self.slot.say(LOADED | ACCEPTING)
        self.gate = Gate(self.slot, clock)

    def come_round(self):
        """Accept if it may; whether it did."""
        self.slot.turn()
        may = self.gate.may_accept()
        self.slot.connections += may
        return may


@pytest.fixture
def clock():
    return Clock()


def desks(count, clock):
    board = Board()
    return [Desk(board, clock) for _ in range(count)]


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 100), st.integers().map(random.Random))
def test_whoever_wakes_first_the_shares_are_even(count, connections, chance):
    """Whatever the order in which workers come round, none ends up with more than 1.25 times its share, rounded up."""
    workers = desks(count, Clock())
    for _ in range(connections):
        while not chance.choice(workers).come_round():
            pass
    assert max(each.slot.connections for each in workers) <= -(-connections * 5 // (4 * count))


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), min_size=2, max_size=6), st.integers().map(random.Random))
def test_new_connections_fill_up_those_who_have_fewer(before, chance):
    """After many connections have gone, those with the fewest get the new ones until all are level."""
    workers = desks(len(before), Clock())
    for worker, count in zip(workers, before, strict=True):
        worker.slot.connections = count
    for _ in range(sum(max(before) - count for count in before)):
        while not chance.choice(workers).come_round():
            pass
    assert max(each.slot.connections for each in workers) <= max(before) + 1 + max(before) // 7


def test_a_single_worker_always_accepts(clock):
    """There is nobody to wait for."""
    (only,) = desks(1, clock)
    assert all(only.come_round() for _ in range(10))


def test_one_that_does_not_accept_is_not_waited_for(clock):
    """A worker that loads, or leaves, or is gone has no part in the count."""
    ahead, idle = desks(2, clock)
    ahead.slot.connections = 1
    assert not ahead.come_round()
    idle.slot.unsay(ACCEPTING)
    assert ahead.come_round()
    idle.slot.say(ACCEPTING)
    assert not ahead.come_round()
    idle.slot.free()
    assert ahead.come_round()


def test_a_stuck_worker_delays_one_connection_once(clock):
    """A worker that leaves a connection waiting is given up after PATIENCE, and until it makes a turn."""
    ahead, stuck = desks(2, clock)
    ahead.slot.connections = 1
    assert not ahead.come_round()
    clock.now += PATIENCE / 2
    assert not ahead.come_round()
    clock.now += PATIENCE
    assert ahead.come_round()
    assert ahead.come_round()
    stuck.slot.turn()
    assert not ahead.come_round()


def test_a_worker_owes_nothing_while_nobody_waits(clock):
    """The wait for a worker begins anew with each connection that waits: time in which none did does not count."""
    ahead, _ = desks(2, clock)
    ahead.slot.connections = 1
    assert not ahead.come_round()
    ahead.gate.calm()
    clock.now += 10 * PATIENCE
    assert not ahead.come_round()


def test_slots_are_used_again():
    """A freed slot has nothing of its worker left and is the next one's."""
    board = Board()
    first, second = board.take(), board.take()
    first.say(ACCEPTING)
    first.connections = 7
    first.turn()
    first.changed()
    first.free()
    again = board.take()
    assert again.at == first.at != second.at
    assert (again.connections, again.changes, again.has(ACCEPTING)) == (0, 0, False)
    assert list(board.accepting()) == []


def test_the_board_is_bounded():
    """A worker too many is refused rather than written over another's slot."""
    board = Board()
    for _ in range(1024):
        board.take()
    with pytest.raises(RuntimeError, match="1024"):
        board.take()


@given(st.text())
def test_the_summary_comes_back(text):
    """What a worker writes for the user is what the arbiter reads, cut where it is too long."""
    board = Board()
    board.summary = "before"
    board.summary = text
    assert text.encode(errors="ignore").startswith(board.summary.encode())


# Real workers.

ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def open_at_once(server, count):
    """`count` connections opened without waiting for one another; each with the process that answers on it."""
    clients = []
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", server.port))
            selector.register(client, selectors.EVENT_WRITE)
            clients.append(client)
        while selector.get_map():
            for key, _ in selector.select():
                key.fileobj.sendall(ASK)
                selector.unregister(key.fileobj)
    return [(client, answerer(client)) for client in clients]


def answerer(client):
    client.settimeout(10)
    got = b""
    while not got.endswith(b"}"):
        got += client.recv(4096)
    return int(got.partition(b'"pid": ')[2].partition(b",")[0])


def close(clients, server):
    """Close connections. gthread's threads notice it in their own time; the ASGI worker has to bear what comes at once."""
    for client, _ in clients:
        client.close()
    if server.settings["worker_class"] == "gthread":
        until(lambda: not half_closed(server.port), "the server's end of closed connections")


def half_closed(port):
    """The server's connections whose clients have closed their end (state CLOSE_WAIT, 08)."""
    with pathlib.Path("/proc/net/tcp").open() as table:
        lines = [line.split() for line in table][1:]
    return [line for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "08"]


def largest_share(clients, workers):
    return max(Counter(pid for _, pid in clients).values()) * workers / len(clients)


@pytest.mark.alone
@pytest.mark.parametrize("worker_class", ["asgi", "gthread"])
@pytest.mark.parametrize("workers", [2, 4])
def test_kept_connections_fall_evenly(tmp_path, workers, worker_class):
    """16 and 64 connections at once over 2 and 4 workers: none has more than 1.25 times its share, then and after half went."""
    chance = random.Random(workers)
    with Watched(tmp_path, workers=workers, worker_class=worker_class, threads=4) as server:
        server.ready()
        for count in (16, 64) * 5:
            clients = open_at_once(server, count)
            assert largest_share(clients, workers) <= 1.25
            chance.shuffle(clients)
            close(clients[: count // 2], server)
            clients = clients[count // 2 :] + open_at_once(server, count // 2)
            assert largest_share(clients, workers) <= 1.25
            close(clients, server)


@pytest.mark.alone
def test_a_worker_that_is_busy_with_its_model_keeps_nobody_out(tmp_path):
    """While one worker's loop is blocked by its model, connections go to the other, and to both again afterwards."""
    with Watched(tmp_path, workers=2) as server:
        server.ready()
        with closing(server.connect()) as blocked:
            blocked.sendall(ASK)
            busy = answerer(blocked)
            blocked.sendall(b"GET /block?seconds=2 HTTP/1.1\r\nHost: a\r\n\r\n")
            until(lambda: server.marks("entered"))
            clients = [open_at_once(server, 1)[0] for _ in range(5)]
            assert busy not in {pid for _, pid in clients}
            assert answerer(blocked) == busy
            until(lambda: clients.append(open_at_once(server, 1)[0]) or clients[-1][1] == busy)
            for client, _ in clients:
                client.close()
