"""What becomes of a supervisor, and of all that it has started, when the arbiter is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from running import SOURCE, wait_until
from supervised import lives, processes_of

ARBITER = """
import sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from supervised import start, single
running = start(Path({run!r}), single(parameters={{"spawn": "daemon", "pids": {pids!r}}}), first={first!r})
print(running.process.pid, flush=True)
time.sleep(600)
"""

HANGS = """
import os
from pathlib import Path
from prefork.supervisor.control import Control
async def hang(self, request):
    Path({file!r}).touch()
    os.read(os.pipe()[0], 1)
Control._index = hang
"""


@contextmanager
def arbiter(tmp_path, first=""):
    """A process with a supervisor, whose model has a daemon, and the supervisor's id; both are killed at the end."""
    told = {"run": str(tmp_path / "run"), "pids": str(tmp_path / "daemon"), "first": first}
    source = ARBITER.format(paths=[str(Path(__file__).parent), str(SOURCE)], **told)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        try:
            wait_until((tmp_path / "run/models/m/latest").is_symlink, "the model")
            yield process, pid
        finally:
            process.kill()
            if lives(pid):
                os.kill(pid, signal.SIGKILL)


def test_everything_goes_when_the_arbiter_is_killed(tmp_path):
    """At once, daemons of a model too, and the run directory is left empty."""
    with arbiter(tmp_path) as (process, pid):
        assert len(processes_of(tmp_path / "run")) == 2
        process.kill()
        wait_until(lambda: not lives(pid), "the supervisor to go")
    assert processes_of(tmp_path / "run") == []
    assert list((tmp_path / "run").iterdir()) == []


def test_everything_goes_even_where_the_supervisor_hangs(tmp_path):
    """A loop that waits for a file for ever keeps nobody: no instance, no daemon of a model, not the supervisor."""
    file = tmp_path / "hangs"
    with arbiter(tmp_path, HANGS.format(file=str(file))) as (process, pid), socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(tmp_path / "run/supervisor.sock"))
        asking.sendall(b'{"op": "index"}\n')
        wait_until(file.exists, "the supervisor to hang")
        process.kill()
        wait_until(lambda: not lives(pid), "the supervisor to go")
    assert processes_of(tmp_path / "run") == []
