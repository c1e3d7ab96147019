"""The benchmark of recycling: its clients see what there is to see, and its table says it."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import contextmanager

from benchmarks import recycle, servers
from benchmarks.recycle import Seen
from running import wait_until


def test_steady_requests_with_a_reload_meanwhile():
    """Every request that was due is there with its time, on kept connections and on new ones; the replaced workers are counted."""
    with servers.running(servers.prefork("pid", "Pid", workers=2)) as up:
        recycle.settle(up)
        seen = recycle.watch(up, rate=40, seconds=2, hups=1)
        wait_until(lambda: recycle.replaced(up) == 2, "both workers to be replaced")
    assert len(seen.requests) == 80
    assert min(due for _, due in seen.requests) == 0
    assert not seen.failures


@contextmanager
def hanging_up(said):
    """A server that says something to each connection and closes it at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(65536)
                    client.sendall(said)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        yield servers.Running(servers.Server("broken", lambda _: []), port, 0)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def client(up, **how):
    seen = Seen()
    one = recycle.Client(up, seen, 0.0, 0.0, 3, **how)
    one.run()
    return seen.failures


def test_each_failure_is_counted_by_its_kind():
    """A connection that is closed without an answer is a reset, an answer that is not 200 its status."""
    with hanging_up(b"") as up:
        assert client(up, keeps=True) == {"reset": 3}
    with hanging_up(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n") as up:
        assert client(up, keeps=False) == {"503": 3}


def test_a_kept_connection_that_was_closed_while_it_was_idle_is_no_failure():
    """Clients look before they send: the next request has a new connection."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"  # which does not say that the connection is closed
    with hanging_up(answer) as up:
        line = http.client.HTTPConnection("127.0.0.1", up.port, timeout=30)
        line.request("GET", "/")
        line.getresponse().read()
        assert line.sock.recv(1) == b""
        assert recycle.is_closed(line)
        line.close()


def test_the_row_of_a_run():
    """Counts, milliseconds, and how many times the p99 of the run beside it the slowest request took."""
    quiet = Seen(requests=[(0.02, 0.0)] * 100)
    busy = Seen(requests=[(0.02, 0.0)] * 99 + [(0.05, 1.0)], replaced=7)
    busy.failures.update({"reset": 1, "503": 2})
    expected = ["busy", "100", "7", "3", "1", "20", "50", "50", "2.5 (goal: under 3)"]
    assert recycle.row("busy", busy, quiet) == expected
    assert recycle.row("quiet", quiet, None)[-1] == ""
