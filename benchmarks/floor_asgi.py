"""The floor: the least that gunicorn's ASGI worker can do for the measured work, with no framework and no checks."""

import asyncio
import os

import numpy as np
import orjson
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn_h1c import H1CProtocol
from work import work


class Parser(H1CProtocol):
    """gunicorn's parser, but for its fault of losing the next request.

    A request that arrives before gunicorn has put the finished one away is kept by the parser up to 64 KiB; when it is
    longer, gunicorn closes the connection without an answer. A third of the medium bodies would fail.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tail = []

    def feed(self, data):
        if self.is_complete:
            self.tail.append(data)
        else:
            super().feed(data)

    def remaining(self):
        return super().remaining() + b"".join(self.tail)

    def reset(self):
        self.tail.clear()
        super().reset()


ASGIProtocol._check_h1c_protocol_available()
ASGIProtocol._h1c_protocol_class = Parser

JSON = [(b"content-type", b"application/json")]
OCTETS = [(b"content-type", b"application/octet-stream")]


async def read(receive):
    """The whole body."""
    message = await receive()
    chunks = [message["body"]]
    while message.get("more_body"):
        message = await receive()
        chunks.append(message["body"])
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def answer_json(body):
    scores = work(np.array(orjson.loads(body)["data"]["ndarray"]))
    return orjson.dumps({"data": {"ndarray": scores}}, option=orjson.OPT_SERIALIZE_NUMPY)


def answer_binary(body, rows):
    """Raw float32 in and out, with the number of rows in the query."""
    return work(np.frombuffer(body, np.float32).reshape(rows, -1)).tobytes()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body, headers = await read(receive), JSON
    match scope["path"]:
        case "/binary":
            answer, headers = answer_binary(body, int(scope["query_string"])), OCTETS
        case "/sleep":
            await asyncio.sleep(0.02)
            answer = body
        case "/pid":
            answer = orjson.dumps({"data": {"ndarray": [[os.getpid()]]}})
        case _:
            answer = answer_json(body)
    length = (b"content-length", str(len(answer)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": answer})
