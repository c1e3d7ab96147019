"""A client on a model in this process, for tests of one's own model: no socket, no worker, the real front.

with Client(Iris, front="asgi") as client:
    assert client.post("/predict", json={"data": {"ndarray": [[5.1, 3.5, 1.4, 0.2]]}}).status_code == 200
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, Literal

import httpx

from prefork import application
from prefork.compat import finder
from prefork.model.loader import construct
from prefork.settings import Settings

finder.install()  # a test may import seldon_core before there is a Client
_FRONTS = {"asgi": "asgi", "wsgi": "sync"}


class Client(httpx.Client):
    """An httpx client on a model behind one of the fronts.

    model: a class, or an object that is built already; its `load()` runs here. parameters: for the constructor.
    settings: any other field of `Settings`, such as `threads=0` or `max_body_size=1024`.
    """

    def __init__(
        self,
        model: Any,
        front: Literal["asgi", "wsgi"] = "asgi",
        *,
        parameters: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        chosen = Settings(worker_class=_FRONTS[front], **settings)  # type: ignore[arg-type]
        user_object = construct(model, dict(parameters or {})) if isinstance(model, type) else model
        self.front = application.serve(application.wrap(user_object, chosen), chosen)
        transport: httpx.BaseTransport
        transport = _AsgiTransport(self.front.app) if front == "asgi" else httpx.WSGITransport(self.front.app)
        super().__init__(transport=transport, base_url="http://testserver", headers={"accept-encoding": "identity"})

    def close(self) -> None:
        """Unload the model and close the transport."""
        super().close()
        self.front.close()

    def __exit__(self, *details: Any) -> None:  # noqa: PYI036 - httpx annotates three, and this passes them on
        super().__exit__(*details)
        self.front.close()


class _AsgiTransport(httpx.BaseTransport):
    """Runs an ASGI application on an event loop in a thread of its own, as a worker does."""

    def __init__(self, app: Any) -> None:
        self._inner = httpx.ASGITransport(app)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run_coroutine_threadsafe(self._handle(request), self._loop).result()

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        content = request.read()
        asked = httpx.Request(request.method, request.url, headers=request.headers, content=content)
        answer = await self._inner.handle_async_request(asked)
        # The bytes as they were sent: the outer client undoes the content coding.
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        body = b"".join([part async for part in answer.stream])
        return httpx.Response(answer.status_code, headers=answer.headers, content=body)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
