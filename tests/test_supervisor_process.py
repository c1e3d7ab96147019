"""One model's processes under a supervisor: started, watched, replaced, ended, and what is left of them: nothing."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import struct
import sys
import termios
from pathlib import Path

import msgspec
import pytest

import prefork
from prefork.payload import ModelSpec
from prefork.remote.charge import Card, Charge
from prefork.repository.config import Batching
from running import wait_until
from supervised import heard, lives, single, start, supervisor


@pytest.fixture
def file(tmp_path):
    """A file that a stand-in may wait for."""
    return tmp_path / "file"


def test_a_model_is_ready_once_all_its_instances_are(tmp_path, file):
    """Until then it is known; then a link shows it, and its card tells what it is."""
    told = single(instances=2, parameters={"waits_for": str(file)})
    with supervisor(tmp_path, told) as running:
        wait_until(lambda: running.log.count("[m/1 ") == 2, "both to load")
        assert (running.state(), running.link(), running.known()) == ("LOADING", None, ["1"])
        file.touch()
        running.settle()
        assert (running.state(), running.link(), running.known()) == ("READY", "1.1", [])
        assert running.link(version="1") == "1.1"
        card = msgspec.json.decode((running.run / "models/m/1.1.json").read_bytes(), type=Card)
        assert card == Card(spec=ModelSpec("m"), described=ModelSpec("m"), loaded=0.5, generation=1, config=told.config)
        assert len(set(running.pids())) == 2
        assert int(running.say("pid")) in running.pids()


def test_an_instance_is_told_all_it_needs(tmp_path):
    """Its place, its device, its parent, its sockets, how long a request may hang."""
    told = single(devices=(3, "cpu"), instances=2, environment={"A": "b"}, parameters={"writes": str(tmp_path)})
    with supervisor(tmp_path, told, timeout=7.5) as running:
        running.settle()
        charges = [msgspec.json.decode((tmp_path / str(place)).read_bytes(), type=Charge) for place in range(4)]
        assert [(each.place, each.device) for each in charges] == [(0, 3), (1, 3), (2, "cpu"), (3, "cpu")]
        assert {(each.parent, each.listeners, each.timeout) for each in charges} == {(running.process.pid, (4,), 7.5)}
        assert charges[0].config == told.config
        assert running.say("env A") == "b"


def test_an_instance_has_a_group_of_its_own_and_no_descriptor_of_its_supervisors(tmp_path):
    """Standard input is empty, output goes to the supervisor, 3 is the control socket, then come the listening sockets."""
    with supervisor(tmp_path, single(), single("other")) as running:
        running.settle()
        pid = running.pids()[0]
        assert os.getpgid(pid) == os.getsid(pid) == pid
        kinds = {int(each.name): str(each.readlink()).partition(":")[0] for each in Path(f"/proc/{pid}/fd").iterdir()}
        assert kinds == {0: "/dev/null", 1: "pipe", 2: "pipe", 3: "socket", 4: "socket"}


def test_an_instance_that_dies_is_replaced_and_who_waits_is_served(tmp_path, file):
    """The request that it computed ends; those in the queue are answered by the next one."""
    with supervisor(tmp_path, single()) as running:
        running.settle()
        before = running.pids()
        with running.connect() as first, running.connect() as second:
            second.sendall(b"pid\n")
            assert heard(first, "die SIGKILL") == ""
            after = int(second.makefile().readline())
        assert after not in before
        found = running.version()
        assert found["restarts"] == 1
        place = found["generations"][0]["instances"][0]
        assert place["last_death"].startswith(
            f"instance 0 (pid {before[0]}) was killed by SIGKILL, perhaps out of memory"
        )
        assert (found["state"], found["reason"]) == ("READY", "")


def test_while_no_instance_is_there_the_reason_is_told_and_the_queue_stays(tmp_path, file):
    """The index says what happened; the link stays, as who joins the queue will be served."""
    file.touch()
    with supervisor(tmp_path, single(parameters={"waits_for": str(file)})) as running:
        running.settle()
        file.unlink()
        assert running.say("die SIGSEGV") == ""
        wait_until(lambda: running.state() == "LOADING", "the death to be seen")
        assert "was killed by SIGSEGV" in running.index()["m", "1"]["reason"]
        assert running.link() == "1.1"
        with running.connect() as waiting:
            waiting.sendall(b"pid\n")
            file.touch()
            assert waiting.makefile().readline().strip().isdecimal()
        assert running.state() == "READY"


def test_a_process_that_could_serve_no_more_has_said_why(tmp_path):
    """Its last line is the reason, in the index too."""
    with supervisor(tmp_path, single()) as running:
        running.settle()
        (pid,) = running.pids()
        assert running.say("leave 70") == ""
        wait_until(lambda: running.version()["restarts"] == 1 and running.state() == "READY", "the replacement")
        place = running.version()["generations"][0]["instances"][0]
        assert place["last_death"] == f"instance 0 (pid {pid}) could serve no more and has ended: for this reason"


def test_a_replacement_that_cannot_load_takes_the_name_away_until_one_can(tmp_path):
    """The queue is refused, the reason is told, and the model comes back by itself once it loads again."""
    folder = tmp_path / "version"
    folder.mkdir()
    told = msgspec.structs.replace(single(), folder=str(folder))
    with supervisor(tmp_path, told) as running:
        running.settle()
        (folder / "behaviour.json").write_text('{"fail": "no disk"}')
        with running.connect() as first, running.connect() as second:
            assert heard(first, "die SIGKILL") == ""
            with pytest.raises(ConnectionResetError):
                heard(second, "pid")
        wait_until(lambda: running.state() == "UNAVAILABLE", "the failure")
        assert "could not be replaced: no disk" in running.index()["m", "1"]["reason"]
        assert (running.link(), running.known()) == (None, ["1"])
        assert "could not be replaced: no disk" in (running.run / "models/m/known").read_text()
        assert (running.run / "models/m/wanted").exists()
        (folder / "behaviour.json").unlink()
        wait_until(lambda: running.state() == "READY", "the model to come back")
        assert running.say("pid").isdecimal()
        assert not (running.run / "models/m/wanted").exists()


def test_a_model_that_dies_as_soon_as_it_is_ready_fails_until_one_lives(tmp_path):
    """After three such deaths the next process has to live for a moment first, so that nobody waits for one that will not."""
    folder = tmp_path / "version"
    folder.mkdir()
    told = msgspec.structs.replace(single(), folder=str(folder))
    with supervisor(tmp_path, told) as running:
        running.settle()
        (folder / "behaviour.json").write_text('{"short_lived": true}')
        assert running.say("die SIGKILL") == ""
        wait_until(lambda: running.state() == "UNAVAILABLE", "the failure")
        assert re.search(
            r"could not be replaced: its process \(pid \d+\) left with status 9 as soon as it was ready: loaded",
            running.index()["m", "1"]["reason"],
        )
        assert running.link() is None
        (folder / "behaviour.json").unlink()
        wait_until(lambda: running.state() == "READY", "the model to come back")
        assert running.say("pid").isdecimal()


@pytest.mark.parametrize(
    ("parameters", "reason", "trace"),
    [
        ({"fail": "boom"}, "boom", "Traceback: boom"),
        (
            {"exit": 5, "print": "last words"},
            r"its process \(pid \d+\) left with status 5 while it was loading: last words",
            "last words",
        ),
    ],
)
def test_a_model_that_cannot_load_fails_with_its_reason_and_is_not_tried_again(tmp_path, parameters, reason, trace):
    """The others are served; nothing of it is left; its traceback, or what it printed last, is kept."""
    bad = single("bad", parameters=parameters, instances=2)
    with supervisor(tmp_path, bad, single("good")) as running:
        failures = running.ask("wait_settled")["failures"]
        assert list(failures) == ["bad"]
        pattern = rf"load failed for model 'bad': version 1 is at UNAVAILABLE state: {reason}"
        assert re.fullmatch(pattern, failures["bad"])
        assert running.state("good") == "READY"
        assert running.state("bad") == "UNAVAILABLE"
        assert running.version("bad")["trace"] == trace
        assert running.pids("bad") == []
        assert running.log.count("bad/1: loading") == 1


def test_a_load_that_hangs_is_ended_after_its_time(tmp_path):
    """It is asked for its stacks first, which are part of the reason's trace."""
    with supervisor(tmp_path, single(load_timeout=0.3, parameters={"hang": True})) as running:
        failures = running.ask("wait_settled")["failures"]
        assert "loading has taken more than 0.3 s" in failures["m"]
        assert "here are the stacks" in running.version()["trace"]


def test_term_ends_a_load_that_hangs(tmp_path):
    """Nobody waits for the load's own time."""
    with supervisor(tmp_path, single(parameters={"hang": True})) as running:
        wait_until(lambda: "[m/1 0] loaded" in running.log, "the load to hang")
        assert running.stop() == 0


@pytest.mark.parametrize("spawn", ["group", "session", "daemon"])
def test_what_an_instance_has_started_dies_with_it(tmp_path, file, spawn):
    """Its children, and daemons that have left its group and emptied their environment, when it dies and when it is unloaded."""
    told = single(parameters={"spawn": spawn, "pids": str(file)})
    with supervisor(tmp_path, told, control="explicit") as running:
        running.settle()
        first = int(file.read_text())
        running.say("die SIGKILL")
        wait_until(lambda: running.version()["restarts"] == 1 and running.state() == "READY", "the replacement")
        second = int(file.read_text())
        assert (lives(first), lives(second)) == (False, True)
        running.ask("unload", name="m")
        assert not lives(second)


def test_an_unload_lets_requests_finish_and_answers_once_the_processes_are_gone(tmp_path, file):
    """Those in the queue too; new ones find no name, and the version is known. What came back is told."""
    with supervisor(tmp_path, single(), control="explicit") as running:
        running.settle()
        pid = running.pids()[0]
        with running.connect() as first, running.connect() as second:
            first.sendall(b"hold %s\n" % str(file).encode())
            second.sendall(b"pid\n")
            unload = running.later("unload", name="m")
            wait_until(lambda: running.link() is None, "the name to go")
            assert (running.state(), running.known()) == ("UNLOADING", ["1"])
            assert not (running.run / "models/m/1.1.sock").exists()
            assert not unload.is_done
            file.touch()
            assert first.makefile().readline() == f"held by {pid}\n"
            assert second.makefile().readline() == f"{pid}\n"
        found = unload.result()["unloaded"]
        assert not lives(pid)
        assert found["memory_before"] > 1 << 20
        assert found["memory_after"] == 0
        assert (found["processes"], found["gpu_memory_before"]) == (1, found["gpu_memory_after"])
        assert running.index()["m", "1"] == {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}


def test_a_request_that_outlasts_the_unload_is_ended_by_its_instance(tmp_path):
    """After `unload_timeout` the instance is told to close, which ends its streams with an error."""
    with supervisor(tmp_path, single(unload_timeout=0.2), control="explicit") as running:
        running.settle()
        with running.connect() as busy:
            busy.sendall(b"hold /nowhere/to/be/found\n")
            assert running.ask("unload", name="m")["ok"]
            assert busy.makefile().readline() == "closed\n"


def test_an_instance_that_heeds_nothing_is_killed(tmp_path):
    """Asked, told by TERM, and then killed, each within its time."""
    with supervisor(tmp_path, single(parameters={"deaf": True}), control="explicit") as running:
        running.settle()
        pid = running.pids()[0]
        assert running.ask("unload", name="m")["ok"]
        assert not lives(pid)


def test_a_stuck_instance_goes_once_its_replacement_is_ready(tmp_path):
    """Meanwhile it is there, and the model is ready."""
    with supervisor(tmp_path, single()) as running:
        running.settle()
        before = running.pids()[0]
        with running.connect() as hung:
            hung.sendall(b"stuck\n")
            after = int(running.say("pid"))
            assert after != before
            wait_until(lambda: running.pids() == [after], "the stuck one to go")
            assert hung.makefile().readline() == ""
        assert running.log.index(f"(pid {after},") < running.log.index(f"pid {before} has left")


def test_instances_are_renewed_one_after_the_other_without_a_gap(tmp_path, file):
    """Each lets its request finish; who has the queue's address notices nothing."""
    with supervisor(tmp_path, single(instances=2)) as running:
        running.settle()
        before = set(running.pids())
        with running.connect() as busy:
            busy.sendall(b"hold %s\n" % str(file).encode())
            assert running.ask("renew", name="m") == {"ok": True}
            assert running.link() == "1.1"
            assert int(running.say("pid")) not in before
            file.touch()
            assert busy.makefile().readline().startswith("held by")
        wait_until(lambda: len(running.pids()) == 2, "the old ones to leave")
        assert set(running.pids()).isdisjoint(before)
        assert running.ask("renew", name="nobody")["status"] == 404


def test_output_carries_the_models_name_and_is_whole(tmp_path):
    """A long line comes in pieces; the last one needs no end."""
    told = single(parameters={"print": "a\n" + "x" * 9000, "end": "", "exit": 1}, instances=1)
    with supervisor(tmp_path, told) as running:
        running.settle()
        lines = [line for line in running.log.splitlines() if line.startswith("[m/1 0] ")]
        assert lines == ["[m/1 0] a", "[m/1 0] " + "x" * 8192, "[m/1 0] " + "x" * 808]


def test_each_level_of_priority_has_a_queue(tmp_path):
    """The default level answers under the plain name and under its own."""
    told = single(batching=Batching(priority_levels=3, default_priority=2))
    with supervisor(tmp_path, told) as running:
        running.settle()
        assert {running.say("pid", level=level) for level in ("", ".p1", ".p2", ".p3")} == {str(running.pids()[0])}


def test_the_queue_takes_as_many_as_it_says(tmp_path, file):
    """One more is refused at once."""
    with supervisor(tmp_path, single(max_queue=2)) as running:
        running.settle()
        with running.connect() as busy:
            busy.sendall(b"hold %s\n" % str(file).encode())
            wait_until(lambda: taken(busy), "the request to be read")
            waiting = [running.connect() for _ in range(2)]
            stem = running.link()
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as refused:
                with pytest.raises(BlockingIOError):
                    refused.connect(str(running.run / "models/m" / f"{stem}.sock"))
            file.touch()
            for each in waiting:
                each.close()


def taken(sock):
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4))) == (0,)


def test_paths_may_be_longer_than_a_socket_takes(tmp_path):
    """The kernel's limit is 107 bytes, a name's 200."""
    name = "n" * 200
    with supervisor(tmp_path, single(name)) as running:
        assert running.settle().state(name) == "READY"
        assert (running.run / "models" / name / "1.1.sock").is_socket()


def test_an_interpreter_is_checked_when_the_model_loads(tmp_path):
    """That it is there, that it runs, and that it has the same Prefork; no instance is started before."""
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho 0.0.1\n")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho ModuleNotFoundError: prefork >&2\nexit 1\n")
    good = tmp_path / "good"
    good.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for each in (other, broken, good):
        each.chmod(0o755)
    paths = {"other": other, "broken": broken, "good": good, "missing": tmp_path / "missing"}
    with supervisor(tmp_path, *(single(name, python=str(path)) for name, path in paths.items())) as running:
        failures = running.ask("wait_settled")["failures"]
        assert sorted(failures) == ["broken", "missing", "other"]
        assert f"{other} has prefork 0.0.1, and the server is {prefork.__version__}" in failures["other"]
        assert f"{broken} left with status 1: ModuleNotFoundError: prefork" in failures["broken"]
        assert f"there is no {tmp_path}/missing" in failures["missing"]


def test_an_allocator_that_is_missing_fails_the_load(tmp_path):
    """Before any process is started."""
    with supervisor(tmp_path, single(allocator="jemalloc", environment={"LD_PRELOAD": ""})) as running:
        failures = running.ask("wait_settled")["failures"]
        if failures:
            assert "the package is libjemalloc2" in failures["m"]
        else:  # a machine that has it
            assert "libjemalloc" in running.say("env LD_PRELOAD")


def test_the_second_term_ends_everything_at_once(tmp_path):
    """The first waits for what is in flight."""
    with supervisor(tmp_path, single(), graceful_timeout=60.0) as running:
        running.settle()
        with running.connect() as busy:
            busy.sendall(b"hold /nowhere/to/be/found\n")
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: running.link() is None, "the drain to begin")
            assert running.process.poll() is None
            assert running.stop() == 0
            assert busy.makefile().readline() == ""


def test_term_lets_requests_finish_within_the_graceful_timeout(tmp_path, file):
    """The model's own `unload_timeout` does not count then."""
    with supervisor(tmp_path, single(unload_timeout=0.0), graceful_timeout=30.0) as running:
        running.settle()
        with running.connect() as busy:
            busy.sendall(b"hold %s\n" % str(file).encode())
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: running.link() is None, "the drain to begin")
            file.touch()
            assert busy.makefile().readline().startswith("held by")
        assert running.stop() == 0


def test_two_supervisors_do_not_share_a_run_directory(tmp_path):
    """The second one says so and leaves; the first one goes on."""
    with supervisor(tmp_path, single()) as running:
        running.settle()
        second = start(running.run, single())
        assert second.process.wait(30) == 2
        assert f"prefork: run_dir: another server uses {running.run}" in running.log
        assert running.say("pid").isdecimal()


def test_a_real_instance_is_supervised(tmp_path):
    """The process of a user's class, from its load to its end."""
    (tmp_path / "Iris.py").write_text(
        "class Iris:\n    def load(self):\n        print('here')\n    def predict(self, X, names):\n        return X\n"
    )
    told = msgspec.structs.replace(single(), directory=str(tmp_path))
    told = msgspec.structs.replace(told, config=msgspec.structs.replace(told.config, class_="Iris"))
    with supervisor(tmp_path, told, program=()) as running:
        assert running.settle().state() == "READY"
        assert "[m/1 0] here\n" in running.log
        card = msgspec.json.decode((running.run / "models/m/1.1.json").read_bytes(), type=Card)
        assert card.spec.name == "m"
        assert running.stop() == 0
