"""A probe server in a session of its own, and what can be seen of it from outside: answers, processes, files, exit status."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from running import free_port

HERE = Path(__file__).parent
PROBE = HERE / "probe.py"
DEADLINE = 20.0


def until(condition, what="it", seconds=DEADLINE):
    """The first true value of `condition()`, or a failure once the deadline is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


def stat(pid):
    """(parent, session, state) of a process; None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[1]), int(fields[3]), fields[0]


def of_session(session):
    """The processes of a session, zombies among them."""
    return {pid for pid, (_, seen, _) in processes() if seen == session}


def children(parent):
    """The children of a process, zombies among them."""
    return {pid for pid, (seen, _, _) in processes() if seen == parent}


def processes():
    found = ((int(each.name), stat(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit())
    return ((pid, seen) for pid, seen in found if seen)


class Watched:
    """A probe server. `place` is its $PROBE_DIR; its temporary directory is in there too."""

    def __init__(self, place, *, before=(), env=None, pass_fds=(), **settings):
        self.place = Path(place)
        self.port = settings.pop("port", None) or free_port()
        self.tmp = self.place / "tmp"
        self.tmp.mkdir(exist_ok=True)
        self.log_path = self.place / "log"
        if not (self.place / "probe_model.py").exists():
            self.write_model("1")
        settings = {"model": "probe:Probe", "bind": f"127.0.0.1:{self.port}", "workers": 2, **settings}
        self.settings = settings
        paths = os.pathsep.join([str(HERE.parent / "server"), str(HERE)])
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": paths,
            "PROBE_DIR": str(self.place),
            "TMPDIR": str(self.tmp),
            "PYTHONDONTWRITEBYTECODE": "1",  # the cache cannot tell two sources of one size in one second apart
            **(env or {}),
        }
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, str(PROBE), json.dumps(settings)],
                env=self.env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=pass_fds,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in of_session(self.process.pid):
            os.kill(pid, signal.SIGKILL)

    # What it did.

    @property
    def log(self):
        return self.log_path.read_text()

    def marks(self, what):
        """The processes that have left a mark."""
        return {int(each.suffix[1:]) for each in self.place.glob(f"{what}.*") if each.suffix[1:].isdigit()}

    @property
    def workers(self):
        """The arbiter's children, without the custom service."""
        return children(self.pid) - self.marks("service")

    @property
    def pid(self):
        return self.process.pid

    def write_model(self, version):
        (self.place / "probe_model.py").write_text(f"VERSION = {version!r}\n")

    # What it answers.

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)

    def is_open(self):
        try:
            self.connect().close()
        except ConnectionRefusedError:
            return False
        return True

    def ready(self):
        """Wait until every worker has loaded and the arbiter knows."""
        until(lambda: self.process.poll() is not None or self.is_open(), "an open port")
        assert self.process.poll() is None, self.log
        until(lambda: self.log.count("loaded in") >= self.settings["workers"], "all workers")
        until(lambda: "ready at" in self.log, "the ready line")
        return self

    def get(self, path="/", connection=None):
        """(status, headers, body) of a request on a connection of its own, or on the one that is given."""
        own = connection or self.client()
        own.request("GET", path)
        answer = own.getresponse()
        seen = answer.status, dict(answer.getheaders()), answer.read()
        if connection is None:
            own.close()
        return seen

    def client(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)

    def ask(self, connection=None):
        """The probe's answer: its pid and version."""
        status, _, body = self.get("/", connection)
        assert status == 200
        return json.loads(body)

    # How it ends.

    def send(self, number):
        os.kill(self.pid, number)

    def exit_code(self):
        return self.process.wait(DEADLINE)

    def stop(self, number=signal.SIGTERM):
        """Its exit status after a signal."""
        self.send(number)
        return self.exit_code()

    def assert_nothing_left(self):
        """No process, not even a zombie, and no file."""
        until(lambda: not of_session(self.pid), "the end of every process")
        assert list(self.tmp.iterdir()) == []
