"""A real supervisor in a process of its own, with stand-ins for instances, and what its clients do with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import msgspec

from prefork.repository.config import ModelConfig
from prefork.supervisor import kernel, mark
from prefork.supervisor.orders import Orders, Single
from running import SOURCE, wait_until

STAND_IN = Path(__file__).with_name("stand_in.py")


def single(name="m", version="1", **config):
    return Single(config=ModelConfig(name=name, class_="M", **config), version=version)


class Supervised:
    """A supervisor that runs: its run directory, its log, its control socket."""

    def __init__(self, run: Path, process: subprocess.Popen[bytes], log: Path):
        self.run = run
        self.process = process
        self._log = log

    @property
    def log(self):
        return self._log.read_text(errors="replace")

    def wait_open(self):
        """Wait until it can be asked."""

        def is_open():
            assert self.process.poll() is None, self.log
            with socket.socket(socket.AF_UNIX) as sock:
                return sock.connect_ex(str(self.run / "supervisor.sock")) == 0

        wait_until(is_open, "the control socket")
        return self

    def ask(self, op, **more):
        """The answer to one request."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            sock.connect(str(self.run / "supervisor.sock"))
            sock.sendall(json.dumps({"op": op, **more}).encode() + b"\n")
            return json.loads(sock.makefile().readline())

    def later(self, op, **more):
        """The same, and whoever wants the answer waits for it."""
        return Later(lambda: self.ask(op, **more))

    def settle(self):
        assert self.ask("wait_settled")["settled"]
        return self

    def index(self):
        return {(row["name"], row.get("version", "")): row for row in self.ask("index")["models"]}

    def state(self, name="m", version="1"):
        return self.index().get((name, version), {}).get("state")

    def version(self, name="m", number="1"):
        """What `status` says of one version."""
        models = {each["name"]: each for each in self.ask("status")["models"]}
        return {each["version"]: each for each in models[name]["versions"]}[number]

    def pids(self, name="m", number="1"):
        generations = self.version(name, number)["generations"]
        return [each["pid"] for one in generations for place in one["instances"] for each in place["processes"]]

    def link(self, name="m", version=""):
        """What a link of the run directory says, or None."""
        path = self.run / "models" / name / (f"v{version}" if version else "latest")
        return str(path.readlink()) if path.is_symlink() else None

    def known(self, name="m"):
        return [each.partition(" ")[0] for each in (self.run / "models" / name / "known").read_text().splitlines()]

    def connect(self, name="m", version="", level=""):
        """A connection to a model, as a worker makes one."""
        stem = (self.run / "models" / name / (f"v{version}" if version else "latest")).readlink()
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        try:
            sock.connect(str(self.run / "models" / name / f"{stem}{level}.sock"))
        except OSError:
            sock.close()
            raise
        return sock

    def say(self, line, name="m", version="", level=""):
        """What a model answers to one line; empty where its process has gone."""
        with self.connect(name, version, level) as sock:
            return heard(sock, line)

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(30)


class Later:
    def __init__(self, call):
        self._box = []
        self._thread = threading.Thread(target=lambda: self._box.append(call()))
        self._thread.start()

    @property
    def is_done(self):
        return bool(self._box)

    def result(self):
        self._thread.join(60)
        return self._box[0]


def heard(sock, line):
    sock.sendall(line.encode() + b"\n")
    return sock.makefile().readline().strip()


def lives(pid):
    found = kernel.fields(pid)
    return found is not None and found.state != "Z"


def start(run: Path, *singles, program=("-P", str(STAND_IN)), parent=None, first="", **orders):
    """A supervisor that is a child of this process, whose parent this one is unless it says otherwise. first: code that it runs before."""
    run.mkdir(mode=0o700, exist_ok=True)
    told = Orders(run_dir=str(run), parent=os.getpid() if parent is None else parent, singles=singles, **orders)
    mine, its = os.pipe()
    log = run.with_name(f"{run.name}.log")
    code = f"{first}\nimport sys\nfrom prefork.supervisor.main import main\nsys.exit(main(sys.argv[1:]))"
    module = ("-c", code) if first else ("-m", "prefork.supervisor")
    command = [sys.executable, *module, str(mine), *program]
    # Where the main thread hangs with a signal pending, CPython 3.11 has every traced function of another thread begin for ever.
    env = {name: value for name, value in os.environ.items() if not (first and name.startswith("COVERAGE_"))}
    env["PYTHONPATH"] = str(SOURCE)
    with log.open("ab") as out, os.fdopen(its, "wb") as orders_out:
        process = subprocess.Popen(command, pass_fds=[mine], stdout=out, stderr=out, env=env)
        os.close(mine)
        orders_out.write(msgspec.json.encode(told) + b"\n")
    return Supervised(run, process, log)


@contextmanager
def supervisor(tmp_path: Path, *singles, **orders):
    """A supervisor that listens; at the end nothing of it may be left."""
    run = tmp_path / "run"
    running = start(run, *singles, **orders)
    try:
        running.wait_open()
        yield running
        running.stop()
    except BaseException:
        sys.stdout.write(running.log)
        raise
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
    assert processes_of(run) == []
    assert list(run.iterdir()) == []
    assert "Traceback (most recent call last)" not in running.log


_LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
lease = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def hanging(path: Path):
    """Whoever opens the file hangs, as on a network that does not answer, until the end or the call of what this gives.

    A lease does it: the kernel has who opens the file wait until its holder has agreed, for 45 seconds at most.
    """
    command = [sys.executable, "-c", _LEASE, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        try:
            yield holder.kill
        finally:
            holder.kill()


def processes_of(run: Path):
    """The ids of everything that was started for a run directory, daemons too."""
    return [pid for pid, found in kernel.processes() if found.state != "Z" and mark.is_under(pid, f"{run.resolve()}:")]
