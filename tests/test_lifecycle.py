"""Signals, starts and ends of real servers, over every worker class."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from watched import Watched, children, of_session, stat, until

CLASSES = ("asgi", "sync", "gthread", "gevent")
KEEPING = ("asgi", "gthread", "gevent")
each_class = pytest.mark.parametrize("worker_class", CLASSES)
FOREVER = 600


@pytest.fixture
def served(tmp_path):
    """Starts probe servers that are gone by the end of the test."""
    servers = []

    def start(**settings):
        servers.append(Watched(tmp_path, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__()


class Asking:
    """Clients in threads that ask without a pause, on kept connections and on new ones, until they are told to stop."""

    def __init__(self, server):
        self.server = server
        self.stop = threading.Event()
        self.answers = []
        self.pool = ThreadPoolExecutor(4)
        self.clients = [self.pool.submit(self.loop, kept) for kept in (True, True, False, False)]

    def loop(self, kept):
        connection = self.server.client()
        while not self.stop.is_set():
            self.answers.append(self.server.ask(connection))
            if not kept:
                connection.close()
        connection.close()

    def pids(self):
        return {answer["pid"] for answer in self.answers[-20:]}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop.set()
        for client in self.clients:
            client.result()  # raises what a request failed with
        self.pool.shutdown()


@contextmanager
def in_flight(server, path="/slow?seconds=1"):
    """A request that the server has begun with, as the future of its answer."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.get, path)
        until(lambda: server.marks("entered"), "a request in flight")
        yield asked


# Ends.


@each_class
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], ids=lambda each: each.name)
def test_a_signal_to_stop_ends_everything_with_status_0(served, worker_class, number):
    """TERM, INT and QUIT end the server with status 0, and leave no process, no open port and no file."""
    server = served(worker_class=worker_class).ready()
    assert server.ask()["pid"] in server.workers
    assert server.stop(number) == 0
    server.assert_nothing_left()
    assert not server.is_open()
    assert server.log.rstrip().endswith("stopped")


@each_class
def test_term_finishes_what_is_in_flight(served, worker_class):
    """A request that the server has begun with when TERM comes is answered, and the model is closed then."""
    server = served(worker_class=worker_class, workers=1).ready()
    with in_flight(server) as asked:
        server.send(signal.SIGTERM)
        assert asked.result()[0] == 200
    assert server.exit_code() == 0
    assert len(server.marks("closed")) == 1
    server.assert_nothing_left()


@each_class
def test_term_gives_up_after_graceful_timeout(served, worker_class):
    """What takes longer than `graceful_timeout` is cut off, and the server ends with status 0 all the same."""
    server = served(worker_class=worker_class, workers=1, graceful_timeout=0.5).ready()
    with in_flight(server, f"/slow?seconds={FOREVER}") as asked:
        assert server.stop() == 0
        assert asked.exception() or asked.result()[0] == 500
    server.assert_nothing_left()


@each_class
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=lambda each: each.name)
def test_int_and_quit_wait_for_nobody(served, worker_class, number):
    """INT and QUIT do not wait for a request, however long it may take and `graceful_timeout` may be."""
    server = served(worker_class=worker_class, workers=1, graceful_timeout=FOREVER).ready()
    with suppress(ConnectionError), in_flight(server, f"/slow?seconds={FOREVER}") as asked:
        assert server.stop(number) == 0
        asked.result()
    server.assert_nothing_left()


def test_int_shortens_a_term(served):
    """INT after TERM ends the wait for what is in flight."""
    server = served(graceful_timeout=FOREVER).ready()
    with suppress(ConnectionError), in_flight(server, f"/slow?seconds={FOREVER}") as asked:
        server.send(signal.SIGTERM)
        until(lambda: "stopping" in server.log)
        assert server.stop(signal.SIGINT) == 0
        asked.result()
    server.assert_nothing_left()


@each_class
def test_idle_connections_do_not_hold_the_exit_up(served, worker_class):
    """Connections without a request, kept or fresh, are closed at TERM: nothing waits for `keepalive` or `graceful_timeout`."""
    server = served(worker_class=worker_class, keepalive=FOREVER, graceful_timeout=FOREVER).ready()
    kept = server.client()
    server.ask(kept)
    silent = server.connect()
    assert server.stop() == 0
    assert silent.recv(1) == b""
    silent.close()
    kept.close()
    server.assert_nothing_left()


@pytest.mark.parametrize("worker_class", ["asgi", "sync", "gthread"])
def test_who_waits_in_the_backlog_is_answered_at_term(served, worker_class):
    """Connections that the kernel has accepted and no worker has are answered when the server stops, not reset."""
    server = served(worker_class=worker_class, workers=1).ready()
    path = "/block?seconds=0.5"
    with in_flight(server, path) as asked:
        late = [server.connect() for _ in range(3)]
        for each in late:
            each.sendall(b"GET / HTTP/1.1\r\nHost: probe\r\n\r\n")
        server.send(signal.SIGTERM)
        assert asked.result()[0] == 200
        for each in late:
            assert each.recv(1) == b"H"
            each.close()
    assert server.exit_code() == 0


@each_class
def test_a_killed_arbiter_leaves_no_orphan(served, worker_class):
    """When the arbiter is killed, its workers and the custom service go too, whatever they compute."""
    server = served(worker_class=worker_class, workers=1)
    (server.place / "service").write_text("wait")
    server.ready()
    until(lambda: server.marks("service") or server.workers)
    with in_flight(server, f"/block?seconds={FOREVER}") as asked:
        server.stop(signal.SIGKILL)
        assert isinstance(asked.exception(), ConnectionError)
    server.assert_nothing_left()


# Starts.


@each_class
def test_an_open_port_means_ready(served, worker_class, tmp_path):
    """While the model loads, connections are refused; the first one that is accepted is answered."""
    (tmp_path / "gate").touch()
    server = served(worker_class=worker_class)
    until(lambda: len(server.marks("loading")) == 2)
    assert not server.is_open()
    assert "ready" not in server.log
    (tmp_path / "gate").unlink()
    until(server.is_open)
    assert server.ask()["version"] == "1"


def test_the_log_says_when_and_where_it_is_ready(served):
    """One ready line with the address and the command to try it, and a line for each worker with seconds and memory."""
    server = served().ready()
    assert server.log.count("ready at") == 1
    assert f"ready at http://127.0.0.1:{server.port}\ncurl http://127.0.0.1:{server.port}/" in server.log
    assert server.log.count("Probe loaded in") == 2
    assert "MB resident" in server.log


@pytest.mark.parametrize(
    ("worker_class", "failure"),
    [
        *(("asgi", each) for each in ("AttributeError", "SystemExit", "killed")),
        *((each, "RuntimeError") for each in CLASSES),
    ],
)
def test_a_model_that_cannot_load_ends_the_server_with_status_3(served, worker_class, failure, tmp_path):
    """Whatever load() dies of, the server ends with status 3 and nothing is left; an exception's traceback is in the log."""
    (tmp_path / "fail").write_text(failure)
    server = served(worker_class=worker_class)
    assert server.exit_code() == 3
    server.assert_nothing_left()
    if failure != "killed":
        assert server.log.count("Traceback") >= 1
        assert "told to fail" in server.log
    assert "ready" not in server.log


@pytest.mark.parametrize("preload_app", [False, True])
def test_a_constructor_that_raises_ends_the_server_with_status_3(served, preload_app, tmp_path):
    """The same for the constructor, in the worker and, with `preload_app`, in the arbiter."""
    (tmp_path / "fail.construct").write_text("SystemExit")
    server = served(preload_app=preload_app)
    assert server.exit_code() == 3
    server.assert_nothing_left()
    assert "Traceback" in server.log


def test_one_worker_that_cannot_load_is_enough(served, tmp_path):
    """A failure in one worker of several during the start ends them all: nothing is half alive."""
    (tmp_path / "fail.once").touch()
    server = served(workers=3)
    assert server.exit_code() == 3
    server.assert_nothing_left()


@pytest.mark.parametrize("preload_app", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_a_start_can_be_stopped(served, number, preload_app, tmp_path):
    """A signal to stop ends a server whose workers still load, with status 0 and without a wait."""
    (tmp_path / "gate").touch()
    server = served(graceful_timeout=FOREVER, preload_app=preload_app)
    until(lambda: len(server.marks("loading")) == 2)
    assert server.stop(number) == 0
    server.assert_nothing_left()


@pytest.mark.parametrize("worker_class", ["asgi", "sync"])
def test_a_busy_address_is_said_before_anything_loads(served, worker_class, tmp_path):
    """A port in use ends the start at once with status 1 and one line that names it; no model is touched."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = served(worker_class=worker_class, port=port, preload_app=True, pidfile=str(tmp_path / "pid"))
        assert server.exit_code() == 1
    line = server.log.splitlines()[-1]
    assert line.startswith(f"prefork: 127.0.0.1:{port} is in use")
    assert server.marks("constructed") == set()
    assert not (tmp_path / "pid").exists()
    server.assert_nothing_left()


def test_an_address_that_is_taken_while_the_model_loads_ends_the_server(served, tmp_path):
    """The kernel lets two servers bind a port until one listens: the slower one then says so and ends with status 1."""
    (tmp_path / "gate").touch()
    server = served()
    until(lambda: len(server.marks("loading")) == 2)
    with socket.socket() as faster:
        faster.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        faster.bind(("127.0.0.1", server.port))
        faster.listen()
        (tmp_path / "gate").unlink()
        assert server.exit_code() == 1
    assert f"127.0.0.1:{server.port} is in use" in server.log
    server.assert_nothing_left()


# Replacements.


@each_class
def test_hup_replaces_every_worker_and_fails_no_request(served, worker_class):
    """HUP brings new workers with the code as it is now, each before an old one leaves; requests go on meanwhile."""
    server = served(worker_class=worker_class).ready()
    old = server.workers
    with Asking(server) as asking:
        until(lambda: asking.answers)
        server.write_model("2")
        server.send(signal.SIGHUP)
        until(lambda: len(server.workers) == 2 and not server.workers & old, "two new workers")
        until(lambda: asking.pids() <= server.workers)
        assert {answer["version"] for answer in asking.answers} == {"1", "2"}
    assert server.ask()["version"] == "2"
    assert server.stop() == 0
    server.assert_nothing_left()


def test_hup_builds_what_was_preloaded_anew(served, tmp_path):
    """With `preload_app` HUP builds the class again, in the arbiter, with the code as it is now, for new workers."""
    server = served(preload_app=True, model_dir=str(tmp_path)).ready()
    assert server.pid in server.marks("constructed")
    old = server.workers
    server.write_model("2")
    server.send(signal.SIGHUP)
    until(lambda: len(server.workers) == 2 and not server.workers & old)
    assert server.ask()["version"] == "2"
    assert not server.marks("constructed") & server.workers


def test_a_reload_that_fails_changes_nothing(served):
    """When the new code cannot load, its traceback is in the log and the old workers go on; a later HUP can succeed."""
    server = served().ready()
    old = server.workers
    (server.place / "probe_model.py").write_text("raise ValueError('the new code is broken')\n")
    server.send(signal.SIGHUP)
    until(lambda: "the workers of before go on" in server.log)
    until(lambda: server.workers == old)
    assert "the new code is broken" in server.log
    assert server.ask()["version"] == "1"
    server.write_model("3")
    server.send(signal.SIGHUP)
    until(lambda: len(server.workers) == 2 and not server.workers & old)
    assert server.ask()["version"] == "3"


@each_class
def test_a_killed_worker_is_replaced(served, worker_class):
    """A worker that dies is replaced, and the log says what it died of."""
    server = served(worker_class=worker_class).ready()
    victim = server.ask()["pid"]
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in server.workers and len(server.workers) == 2)
    assert f"worker {victim} was killed by SIGKILL" in server.log
    assert server.ask()["pid"] != victim


@each_class
def test_max_requests_replaces_a_worker_without_a_failed_request(served, worker_class):
    """After `max_requests` requests a worker is replaced: another one is ready first, and no request fails."""
    server = served(worker_class=worker_class, max_requests=20, max_requests_jitter=5).ready()
    old = server.workers
    with Asking(server):
        until(lambda: not server.workers & old)
    assert "leaves: max_requests" in server.log


def test_jitter_alone_replaces_nobody(served):
    """`max_requests_jitter` has no effect without `max_requests`."""
    server = served(max_requests_jitter=5, workers=1).ready()
    before = server.workers
    for _ in range(30):
        server.ask()
    assert server.workers == before
    assert "leaves" not in server.log


def sleeps(pid):
    """How often a process has gone to sleep of its own accord: once more when it has dealt with a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_ttin_and_ttou_change_the_number_of_workers(served):
    """TTIN adds a worker, TTOU takes one away, and the last one stays."""
    server = served().ready()
    server.send(signal.SIGTTIN)
    until(lambda: len(server.workers) == 3)
    for left in (2, 1):
        server.send(signal.SIGTTOU)
        until(lambda left=left: len(server.workers) == left)
    before = sleeps(server.pid)
    server.send(signal.SIGTTOU)
    until(lambda: sleeps(server.pid) > before)  # of two signals that wait the kernel gives the other one first
    server.send(signal.SIGTTIN)
    until(lambda: len(server.workers) == 2)
    assert server.stop() == 0
    server.assert_nothing_left()


@each_class
def test_usr1_reopens_the_log_and_disturbs_nobody(served, worker_class, tmp_path):
    """After USR1 the arbiter and its workers write to a new file under the log's name; the same workers go on."""
    path = tmp_path / "error.log"
    server = served(worker_class=worker_class, workers=1, gunicorn={"errorlog": str(path)})
    until(lambda: path.exists() and "ready at" in path.read_text())
    before = server.workers
    path.rename(tmp_path / "error.log.1")
    server.send(signal.SIGUSR1)
    until(path.exists)
    server.get("/boom")
    until(lambda: "the application failed" in path.read_text())
    assert server.workers == before


def test_usr1_does_not_end_a_worker_that_loads(served, tmp_path):
    """USR1 during the start ends nobody."""
    (tmp_path / "gate").touch()
    server = served()
    until(lambda: len(server.marks("loading")) == 2)
    server.send(signal.SIGUSR1)
    (tmp_path / "gate").unlink()
    server.ready()
    assert server.workers == server.marks("loading")


def test_usr2_starts_a_second_server_on_the_same_port(served):
    """After USR2 a new arbiter serves beside the old one; when that one is told to go, the new one stays."""
    server = served(workers=1).ready()
    server.send(signal.SIGUSR2)
    until(lambda: server.log.count("ready at") == 2)
    assert server.stop() == 0
    heir = until(lambda: [pid for pid in of_session(server.pid) if stat(pid)[0] not in of_session(server.pid)])[0]
    assert server.ask()["pid"] in of_session(server.pid)
    os.kill(heir, signal.SIGTERM)
    server.assert_nothing_left()


@pytest.mark.parametrize("worker_class", ["asgi", "sync"])
def test_reload_replaces_the_workers_when_the_code_changes(served, worker_class):
    """With `reload`, changed code is served soon; broken code is told and the old code goes on until it is mended."""
    server = served(worker_class=worker_class, workers=1, reload=True).ready()
    server.write_model("2")
    until(lambda: server.ask()["version"] == "2")
    (server.place / "probe_model.py").write_text("raise ValueError('broken')\n")
    until(lambda: "the workers of before go on" in server.log)
    assert server.ask()["version"] == "2"
    server.write_model("3")
    until(lambda: server.ask()["version"] == "3")


def test_reload_and_preload_together_are_settled_plainly(served):
    """Under `reload` nothing is preloaded, and the log says so."""
    server = served(reload=True, preload_app=True).ready()
    assert server.marks("constructed") == server.workers
    assert "preload_app is off" in server.log


@pytest.mark.parametrize("worker_class", ["asgi", "sync"])
def test_a_worker_that_is_silent_for_timeout_is_replaced(served, worker_class):
    """A worker that does not come round for `timeout` seconds is replaced; the sync worker still answers, in JSON."""
    server = served(worker_class=worker_class, workers=1, timeout=1).ready()
    victim = server.workers
    with in_flight(server, f"/block?seconds={FOREVER}") as asked:
        until(lambda: server.workers and not server.workers & victim)
        if worker_class == "sync":
            status, headers, _ = asked.result()
            assert (status, headers["Content-Type"]) == (500, "application/json")
        else:
            assert isinstance(asked.exception(), ConnectionError)
    assert "WORKER TIMEOUT" in server.log
    assert server.ask()["pid"] not in victim


def test_a_model_may_load_for_longer_than_timeout(served, tmp_path):
    """`timeout` counts from the moment at which a worker serves."""
    (tmp_path / "gate").touch()
    server = served(workers=1, timeout=1)
    (loading,) = until(lambda: server.marks("loading"))
    begun = (tmp_path / f"loading.{loading}").stat().st_mtime
    until(lambda: time.time() > begun + 3)
    (tmp_path / "gate").unlink()
    assert server.ready().workers == {loading}


# The user's own service.


def test_custom_service_runs_in_a_process_of_its_own(served, tmp_path):
    """The hook runs beside the workers, once, and ends with the server."""
    (tmp_path / "service").write_text("wait")
    server = served().ready()
    (service,) = until(lambda: server.marks("service"))
    assert service not in server.workers
    assert stat(service)[0] == server.pid
    assert server.stop() == 0
    server.assert_nothing_left()


def test_custom_service_is_started_again_when_it_dies(served, tmp_path):
    """A service that is killed comes back; one that raises has its traceback in the log."""
    (tmp_path / "service").write_text("wait")
    server = served().ready()
    (first,) = until(lambda: server.marks("service"))
    os.kill(first, signal.SIGKILL)
    second = until(lambda: server.marks("service") - {first})
    (tmp_path / "service").write_text("fail")
    os.kill(*second, signal.SIGKILL)
    until(lambda: "the service was told to fail" in server.log)
    assert server.ask()["version"] == "1"
    assert server.stop() == 0
    server.assert_nothing_left()


def test_hup_starts_custom_service_with_the_new_code(served, tmp_path):
    """HUP replaces the service's process as well."""
    (tmp_path / "service").write_text("wait")
    server = served().ready()
    first = until(lambda: server.marks("service"))
    server.send(signal.SIGHUP)
    until(lambda: server.marks("service") - first)
    until(lambda: not any(map(stat, first)))


# Places.


def test_nothing_is_written_anywhere(served, tmp_path):
    """No process of the server has a file in the temporary directory or in shared memory open or mapped, and none is there."""
    server = served().ready()
    server.ask()
    for pid in {server.pid, *server.workers}:
        links = []
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed, as a connection is
                links.append(str(each.readlink()))
        seen = "\n".join([*links, Path(f"/proc/{pid}/maps").read_text()])
        assert "/dev/shm/" not in seen
        assert str(server.tmp) not in seen
    assert list(server.tmp.iterdir()) == []


def test_the_pidfile_is_the_arbiters_and_goes_with_it(served, tmp_path):
    """`pidfile` has the arbiter's process id while it runs."""
    path = tmp_path / "pid"
    server = served(pidfile=str(path)).ready()
    assert int(path.read_text()) == server.pid
    assert server.stop() == 0
    assert not path.exists()


def test_a_unix_socket_is_served_and_removed(served, tmp_path):
    """`unix:path` listens there, and the path is gone after the end."""
    path = tmp_path / "socket"
    server = served(bind=f"unix:{path}")
    until(lambda: "ready at unix:" in server.log)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET / HTTP/1.1\r\nHost: probe\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
    assert server.stop() == 0
    assert not path.exists()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv6_is_served(served):
    """`[::1]:port` listens on IPv6."""
    server = served(bind="[::1]:0")
    until(lambda: "ready at http://[::1]:" in server.log)
    port = int(server.log.partition("[::1]:")[2].split()[0])
    with socket.create_connection(("::1", port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: probe\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_port_that_the_kernel_chose_is_told(served):
    """With port 0 the ready line and the command to try it have the port that was chosen."""
    server = served(bind="127.0.0.1:0")
    until(lambda: "ready at" in server.log)
    port = int(server.log.partition("ready at http://127.0.0.1:")[2].split()[0])
    assert port
    assert f"curl http://127.0.0.1:{port}/" in server.log


def test_sockets_of_systemd_are_served(tmp_path):
    """A listening socket that is handed over as systemd does it, as descriptor 3, is served."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        hand_over = f"os.dup2({listener.fileno()}, 3); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))"
        script = f"import os, sys; {hand_over}; os.execv(sys.argv[1], sys.argv[1:])"
        os.set_inheritable(listener.fileno(), True)
        before = [sys.executable, "-c", script]
        with Watched(tmp_path, before=before, port=port, pass_fds=(listener.fileno(),)) as server:
            server.ready()
            assert server.ask()["pid"] in server.workers
            assert server.stop() == 0
            server.assert_nothing_left()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make namespaces and change its user")


@needs_root
def test_it_runs_as_process_1_and_reaps_orphans(tmp_path):
    """As the first process of a container it serves, buries children that are nobody's, and ends at TERM with status 0."""
    before = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
    with Watched(tmp_path, before=before) as server:
        server.ready()
        (arbiter,) = children(server.pid)
        inside = ["nsenter", "--target", str(arbiter), "--pid", "--mount"]
        workers = children(arbiter)
        subprocess.run([*inside, "sh", "-c", f"sleep {FOREVER} & exit 0"], check=True)
        (orphan,) = until(lambda: children(arbiter) - workers)
        os.kill(orphan, signal.SIGKILL)
        until(lambda: stat(orphan) is None, "the burial of an orphan")
        assert server.ask()["version"] == "1"
        os.kill(arbiter, signal.SIGTERM)
        assert server.exit_code() == 0
        server.assert_nothing_left()


@pytest.fixture
def place_for_anyone():
    """A directory that every user may write to; pytest's are its own user's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield name


@needs_root
@each_class
def test_it_runs_as_any_user_without_a_home_or_a_writable_directory(place_for_anyone, worker_class):
    """An arbitrary user id, no HOME, a read-only temporary directory: it starts, serves, reloads and ends."""
    before = ["setpriv", "--reuid=1000680000", "--regid=0", "--clear-groups"]
    probe = Path(place_for_anyone)
    with Watched(probe, before=before, env={"TMPDIR": "/proc"}, worker_class=worker_class) as server:
        server.ready()
        old = server.workers
        assert server.ask()["pid"] in old
        server.send(signal.SIGHUP)
        until(lambda: len(server.workers) == 2 and not server.workers & old)
        assert server.stop() == 0
        server.assert_nothing_left()
        assert "rror" not in server.log
