"""A small instance process for tests of the supervisor: it speaks the control protocol, and does what it is told.

What it does on loading is said by the model's `parameters`, and by `behaviour.json` in the version's folder, which goes over them:
writes (a folder, for the charge under the number of its place), fail (a message), exit (a status), hang (for ever), print (a text), deaf (it heeds no order),
spawn (a child in the `group`, in a `session` of its own, or a `daemon` without parents, files and variables, its id in the file `pids`),
waits_for (a file that has to appear first), short_lived (it leaves as soon as it is ready).

A client says one line, and gets one: `pid`, `version`, `env NAME`, `hold FILE` (until the file is there), `die SIGNAL`,
`leave STATUS` (it prints why first), `stuck` (never answers and says so).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

CONTROL = socket.socket(fileno=3)


def say(event, **more):
    CONTROL.sendall(json.dumps({"event": event, **more}).encode() + b"\n")


class Orders:
    """What the supervisor says; it may be asked for in the middle of a request."""

    def __init__(self):
        self.text = b""
        self.is_draining = False
        self.serves = False

    def line(self):
        while b"\n" not in self.text:
            data = CONTROL.recv(65536)
            if not data:
                os._exit(0)
            self.text += data
        line, _, self.text = self.text.partition(b"\n")
        return json.loads(line)

    def take(self):
        """Take the orders that are there; whether to leave."""
        while b"\n" in self.text or select.select([CONTROL], [], [], 0)[0]:
            order = self.line()
            if order["do"] == "close" and not DEAF:
                return True
            if order["do"] == "drain":
                self.is_draining = True
            if order["do"] == "serve":
                self.serves = True
            if order["do"] == "stacks":
                write("here are the stacks\n")
        return False


def answer(connection, orders):
    file = connection.makefile("rwb")
    word, _, rest = file.readline().decode().strip().partition(" ")
    if not word:
        return
    if word == "hold":
        while not Path(rest).exists():
            if orders.take():
                file.write(b"closed\n")
                file.flush()
                os._exit(0)
            time.sleep(0.005)
        said = f"held by {os.getpid()}"
    elif word == "die":
        os.kill(os.getpid(), getattr(signal, rest))
    elif word == "leave":
        write("for this reason\n")
        os._exit(int(rest))
    elif word == "stuck":
        say("stuck")
        while True:
            time.sleep(60)
    else:
        said = {
            "pid": lambda: str(os.getpid()),
            "version": lambda: CHARGE.get("version", "1"),
            "env": lambda: os.environ.get(rest, ""),
        }[word]()
    file.write(said.encode() + b"\n")
    file.flush()


def serve(listeners, orders):
    while True:
        select.select([CONTROL, *(listeners if orders.serves else [])], [], [], 0.02 if orders.is_draining else None)
        if orders.take():
            return
        for each in listeners if orders.serves else []:
            try:
                connection, _ = each.accept()
            except BlockingIOError:
                continue
            connection.setblocking(True)
            with suppress(OSError), connection:
                answer(connection, orders)
            break
        else:
            if orders.is_draining and not select.select(listeners, [], [], 0)[0]:
                orders.is_draining = False
                orders.serves = False
                say("drained")


def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


DAEMON = """
import os, sys
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, sys.argv[1])
os.closerange(0, 1024)
os.execve(sys.argv[2], ["sleep", "1000"], {})
"""


def spawn(how, pids):
    if how == "daemon":
        pids.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-S", "-c", DAEMON, str(pids), shutil.which("sleep")], check=True)
        while not pids.exists():
            time.sleep(0.005)
        return
    child = subprocess.Popen(["sleep", "1000"], start_new_session=how == "session")
    pids.write_text(str(child.pid))


def load(told):
    write(told.get("print", "loaded") + told.get("end", "\n"))
    if "writes" in told:
        Path(told["writes"], str(CHARGE.get("place", 0))).write_text(json.dumps(CHARGE))
    if "spawn" in told:
        spawn(told["spawn"], Path(told["pids"]))
    if "waits_for" in told:
        while not Path(told["waits_for"]).exists():
            time.sleep(0.005)
    if told.get("hang"):
        while True:
            Orders.take(ORDERS)
            time.sleep(0.01)
    if "exit" in told:
        os._exit(told["exit"])
    if "fail" in told:
        say("failed", message=told["fail"], traceback=f"Traceback: {told['fail']}")
        os._exit(3)


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
ORDERS = Orders()
CHARGE = ORDERS.line()
TOLD = dict(CHARGE["config"].get("parameters", {}))
behaviour = Path(CHARGE.get("folder", "") or "/nowhere", "behaviour.json")
if behaviour.exists():
    TOLD.update(json.loads(behaviour.read_text()))
DEAF = TOLD.get("deaf", False)
say("loading")
load(TOLD)
spec = {"name": CHARGE["config"]["name"], "version": CHARGE.get("version", "1")}
say("ready", card={"spec": spec, "described": spec, "loaded": 0.5, "config": CHARGE["config"]}, memory=1)
if TOLD.get("short_lived"):
    os._exit(9)
SOCKETS = [socket.socket(fileno=number) for number in CHARGE["listeners"]]
serve(SOCKETS, ORDERS)
sys.stdout.flush()
os._exit(0)
