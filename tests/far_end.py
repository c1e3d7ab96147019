"""A far end of a worker's requests that does to each connection just what a test says."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import aclosing

from prefork.frames.codec import encode_answer
from prefork.frames.layout import LAST, STAYS
from prefork.payload import Kind, ModelSpec, Payload
from prefork.remote import Card, RemoteInstance

CARD = Card(spec=ModelSpec("m"), described=ModelSpec("m"))
ANSWERED = encode_answer(Payload(Kind.TEXT, "well")).whole(LAST)
STAYING = encode_answer(Payload(Kind.TEXT, "well")).whole(LAST | STAYS)
MOST = 1 << 20


def _on_thread(instance, asked):
    return [answer.value for answer in instance.infer(asked)]


async def _on_loop(instance, asked):
    async with aclosing(instance.infer_async(asked)) as answers:
        return [answer.value async for answer in answers]


async def _for_one(instance, asked):
    return [(await instance.answer_async(asked)).value]


WAYS = {
    "thread": _on_thread,
    "loop": lambda instance, asked: asyncio.run(_on_loop(instance, asked)),
    "only": lambda instance, asked: asyncio.run(_for_one(instance, asked)),
}
"""How an instance is asked, for the answers' values: on a thread, on an event loop, or there for the only answer."""


class Far:
    """The far end, which does for each connection what it is told to. seen: how many there were."""

    def __init__(self, path, *acts):
        self.path = str(path)
        self.seen = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.thread = threading.Thread(target=self._run, args=(acts,))
        self.thread.start()

    def _run(self, acts):
        for act in acts:
            sock, _ = self.listener.accept()
            with sock:
                self.seen += 1
                act(sock)

    def instance(self, card=CARD, **more):
        return RemoteInstance(lambda _level: self.path, card, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thread.join(30)
        self.listener.close()


def unread(sock):
    """Go without having read anything."""
    sock.recv(1, socket.MSG_PEEK)


def read(sock):
    """Read the request, and go."""
    sock.recv(MOST)


def answer(sock):
    """Read the request and answer it."""
    sock.recv(MOST)
    sock.sendall(ANSWERED)


def saying(data):
    """Read the request and say that."""

    def act(sock):
        sock.recv(MOST)
        sock.sendall(data)

    return act


def staying(*acts):
    """Read the request, answer it, and stay for those acts."""

    def act(sock):
        sock.recv(MOST)
        sock.sendall(STAYING)
        for each in acts:
            each(sock)

    return act
