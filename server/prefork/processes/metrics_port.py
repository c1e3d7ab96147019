"""The metrics on a port of their own: a process that is forked from the arbiter and only reads the ledger.

It answers whatever the workers do, also while they load or drain.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from prefork.metrics import Ledger, page
from prefork.metrics.custom import labels
from prefork.processes.listener import AddressError
from prefork.settings import Settings

_PATIENCE = 10.0
"""Seconds that a client has to send its request, and again to read the answer."""


class MetricsPort:
    """The port that the settings name. `open` takes it, before the fork; `serve` answers, in the child."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self._ledger = ledger
        self._settings = settings
        self._server: ThreadingHTTPServer | None = None

    def open(self) -> None:
        """Listen. Raises AddressError."""
        host, port = _host(self._settings), self._settings.metrics_port
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = kind((host, port), self._handler())
        except OSError as error:
            why = f"{host}:{port}, where the metrics are to be, cannot be listened on: {error.strerror or error}"
            raise AddressError(f"{why}; choose another port with --metrics-port, 0 for none") from None

    def close(self) -> None:
        """Give the port up in this process."""
        if self._server is not None:
            self._server.server_close()
            self._server = None

    def serve(self) -> None:
        """Answer until the process ends. Raises AddressError where the port was not open yet and cannot be."""
        if self._server is None:
            self.open()
        assert self._server is not None
        self._server.serve_forever()

    def page(self, accept: str) -> tuple[str, bytes]:
        """The content type and the body."""
        settings = self._settings
        return page(self._ledger, labels(settings), accept, with_worker_id=settings.metrics_worker_id)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = "/" + self._settings.metrics_endpoint.lstrip("/")
        return type("Handler", (_Handler,), {"endpoint": endpoint, "port": self})


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer asks the resolver for its own name, which may take seconds


class _Server6(_Server):
    address_family = 10  # AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    endpoint: str
    port: MetricsPort

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == self.endpoint:
            self._answer(200, *self.port.page(self.headers.get("Accept", "")))
        else:
            self._answer(404, "text/plain", f"the metrics are at {self.endpoint}\n".encode())

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Nothing: a scrape is no news."""


def _host(settings: Settings) -> str:
    bind = settings.bind.partition(",")[0]
    host = settings.address if bind.startswith(("unix:", "fd://")) else bind.rpartition(":")[0].strip("[]")
    return host or settings.address or "127.0.0.1"
