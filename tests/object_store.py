"""A server of files on the loopback that speaks plain HTTP and as much of S3 as reading needs, and does what goes wrong.

Plain: `/name`. S3: `/bucket/key`, with `?list-type=2` at the bucket. What was asked for stands in `asked`.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

CHANGED = "Wed, 21 Oct 2026 07:28:00 GMT"


class Store(ThreadingHTTPServer):
    """files: content by path without the first slash; the fields after it are what is to go wrong."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, str, str]] = []
        """Method, path with query, and Range of each request."""
        self.knows_ranges = True
        self.cuts: list[int] = []
        """The bytes after which the connection of each of the next answers breaks off."""
        self.before_cut: Callable[[], object] = lambda: None
        self.refusals: list[int] = []
        """The statuses of the next answers to GET."""
        self.damages = 0
        """The number of the next bodies whose first byte comes wrong."""
        self.changes: dict[str, bytes] = {}
        """New contents that files get right after they have been read."""
        self.after = 0
        """Bytes after which every body waits for `open`."""
        self.held = threading.Event()
        self.open = threading.Event()
        self.open.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def etag(self, path: str) -> str:
        return self.etags.get(path, f'"{hashlib.md5(self.files[path]).hexdigest()}"')

    def ranges(self) -> list[str]:
        """The Range of each GET of a file."""
        return [asked for method, path, asked in self.asked if method == "GET" and "list-type" not in path]

    def handle_error(self, *_: Any) -> None:
        """Clients that are killed are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def log_message(self, *_: Any) -> None:
        """Nothing: `asked` has it."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        if self.server.refusals:
            self._note()
            self.send_error(self.server.refusals.pop(0))
            return
        self._answer(body=True)

    def _note(self) -> None:
        self.server.asked.append((self.command, self.path, self.headers.get("Range", "")))

    def _answer(self, *, body: bool) -> None:
        self._note()
        parts = urlsplit(self.path)
        path, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query)
        if "list-type" in query:
            self._list(path.rstrip("/"), query.get("prefix", [""])[0], query.get("delimiter", [""])[0])
        elif path in self.server.files:
            self._send(path, body=body)
        else:
            self._start(404, {"Content-Length": "0"})

    def _list(self, bucket: str, prefix: str, delimiter: str) -> None:
        keys = [path.partition("/")[2] for path in self.server.files if path.startswith(f"{bucket}/{prefix}")]
        folders = {prefix + key[len(prefix) :].partition("/")[0] + "/" for key in keys if "/" in key[len(prefix) :]}
        items = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-10-21T07:28:00.000Z</LastModified>"
            f"<ETag>{escape(self.server.etag(f'{bucket}/{key}'))}</ETag>"
            f"<Size>{len(self.server.files[f'{bucket}/{key}'])}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for key in keys
            if not delimiter or delimiter not in key[len(prefix) :]
        ]
        common = [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders if delimiter]
        text = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(items) + len(common)}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{''.join(items + common)}</ListBucketResult>"
        ).encode()
        self._start(200, {"Content-Type": "application/xml", "Content-Length": str(len(text))})
        self.wfile.write(text)

    def _send(self, path: str, *, body: bool) -> None:
        content, etag = self.server.files[path], self.server.etag(path)
        headers = {"ETag": etag, "Last-Modified": CHANGED} if etag else {}
        status, first, last = 200, 0, len(content)
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if match and self.server.knows_ranges and self.headers.get("If-Range", etag) == etag:
            status, first, last = 206, int(match[1]), min(int(match[2] or len(content)) + 1, len(content))
            headers["Content-Range"] = f"bytes {first}-{last - 1}/{len(content)}"
        self._start(status, {**headers, "Content-Length": str(last - first), **self.server.headers})
        if body:
            self._body(content[first:last])

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _body(self, content: bytes) -> None:
        if self.server.damages:
            self.server.damages -= 1
            content = bytes([content[0] ^ 1]) + content[1:]
        if self.server.cuts:
            self.wfile.write(content[: self.server.cuts.pop(0)])
            self.wfile.flush()
            self.server.before_cut()
            self.close_connection = True
            return
        self.wfile.write(content[: self.server.after])
        self.wfile.flush()
        if not self.server.open.is_set():
            self.server.held.set()
            self.server.open.wait(60)
        self.wfile.write(content[self.server.after :])
        path = unquote(urlsplit(self.path).path).lstrip("/")
        self.server.files |= {path: self.server.changes.pop(path)} if path in self.server.changes else {}


@contextmanager
def storing() -> Iterator[Store]:
    """A store that serves until the end."""
    with Store() as store:
        thread = threading.Thread(target=store.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield store
        finally:
            store.open.set()
            store.shutdown()
            thread.join()
