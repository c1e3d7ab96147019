"""The life of a model's process: what it is told, what it says, what ends it, and what it leaves."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from instance_process import InstanceProcess
from prefork.errors import ModelFailed, Unavailable
from prefork.frames.codec import decode_error, encode_request
from prefork.frames.layout import PREFIX
from prefork.payload import Kind, Payload, TensorSpec
from prefork.remote.talk import was_read
from prefork.repository.config import Batching, Warmup
from running import wait_until

WORKER = "remote_models:Worker"


@pytest.fixture
def process():
    """One that serves."""
    with InstanceProcess(WORKER) as found:
        yield found.serve()


def text(value, **more):
    return Payload(Kind.TEXT, value, **more)


def ask(instance, request):
    (found,) = instance.infer(request)
    return found.value


def later(work):
    """Runs in a thread; what it gave, or raised, is in `result` once it has ended."""
    thread = threading.Thread(target=lambda: setattr(thread, "result", outcome(work)))
    thread.start()
    return thread


def outcome(work):
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        return error


def held(process):
    """A request that the model is at, for as long as its connection is open."""
    sock = process.connect()
    sock.sendall(encode_request(text("hold"), time.monotonic()).whole())
    wait_until(lambda: was_read(sock), "the model to be at it")
    return sock


# --- the beginning ---


def test_ready(process):
    """It says loading, then ready with its card and its memory."""
    assert process.card.spec.name == "m"
    assert not process.card.is_async
    assert process.card.loaded > 0
    assert 1 << 20 < process.memory < 1 << 30
    assert process.instance().ready()


def test_card_of_an_asynchronous_model():
    """The card says what the class is: asynchronous, its inputs, its streams."""
    with InstanceProcess("contract_models:AsyncGenerator") as process:
        card = process.ready()
        assert (card.is_async, card.spec.streams) == (True, True)


@pytest.mark.parametrize(
    ("class_", "more", "message"),
    [
        ("remote_models:Broken", {}, "RuntimeError: no weights"),
        ("remote_models:Leaves", {}, "the model called sys.exit(5)"),
        ("remote_models:Nobody", {}, "Nobody"),
        ("no_such_module:M", {}, "no_such_module"),
        ("remote_models:Greedy", {"memory_limit": 1 << 30}, "memory_limit is 1073741824 bytes"),
        (WORKER, {"memory_limit": 1 << 20}, "memory_limit is 1048576 bytes, and a process has"),
        (WORKER, {"memory_limit": 512 << 20, "threads": 300}, "of 300 threads to serve with can be started"),
        (WORKER, {"parameters": {"depth": 3}}, "depth"),
        (WORKER, {"warmup": (Warmup(file="nothing.json"),)}, "warmup: there is no file nothing.json"),
        (WORKER, {"warmup": (Warmup(),)}, "warmup: the model declares no inputs"),
        (
            WORKER,
            {"warmup": (Warmup(inputs=({"name": "x", "shape": [2], "datatype": "FP32", "data": [1]},)),)},
            "warmup: ",
        ),
    ],
    ids=[
        "load",
        "exit",
        "class",
        "module",
        "memory",
        "no memory",
        "threads",
        "parameters",
        "file",
        "no example",
        "warmup",
    ],
)
def test_cannot_load(class_, more, message):
    """One that cannot load says why and exits with 3."""
    with InstanceProcess(class_, **more) as process:
        event = process.hear("failed", "ready")
        assert event["event"] == "failed"
        assert message in event["message"]
        assert process.wait() == 3


def test_traceback_of_a_failure():
    """The traceback of the user's own code is told too."""
    with InstanceProcess("remote_models:Broken") as process:
        assert "in load\n" in process.hear("failed")["traceback"]


def test_no_folder():
    """A working directory that is not there is a failure to load, not a death without a word."""
    with InstanceProcess(WORKER, more={"directory": "/no/such/folder"}) as process:
        assert "/no/such/folder" in process.hear("failed")["message"]


def test_folders(tmp_path):
    """The version's folder is first on the path, the model's second; the model's is the working directory."""
    version = tmp_path / "1"
    version.mkdir()
    (tmp_path / "shared_by_versions.py").write_text("WHOSE = 'model'\n")
    (tmp_path / "both_have_it.py").write_text("WHOSE = 'model'\n")
    (version / "both_have_it.py").write_text("WHOSE = 'version'\n")
    (version / "the_model.py").write_text(
        "import both_have_it, os\n"
        "class M:\n"
        "    def __init__(self, model_dir): self.folder = model_dir\n"
        "    def predict(self, X, names):\n"
        "        import shared_by_versions\n"
        "        return {'all': [both_have_it.WHOSE, shared_by_versions.WHOSE, os.getcwd(), self.folder]}\n"
    )
    with InstanceProcess("the_model:M", folder=str(version), more={"directory": str(tmp_path)}) as process:
        found = ask(process.serve().instance(), text("x"))
    assert found["all"] == ["version", "model", str(tmp_path), str(version)]


@pytest.mark.parametrize("where", ["version", "model"])
def test_warmup_from_a_file(tmp_path, where):
    """A warm-up's file may be in the version's folder or in the model's."""
    version = tmp_path / "1"
    version.mkdir()
    inputs = [{"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2]}]
    ((version if where == "version" else tmp_path) / "warm.json").write_text(json.dumps({"inputs": inputs}))
    (version / "the_model.py").write_text(
        "class M:\n    seen = []\n    def predict(self, X, names):\n        self.seen.append(X)\n        return {'n': len(self.seen)}\n"
    )
    warmup = (Warmup(file="warm.json", count=3),)
    with InstanceProcess("the_model:M", str(version), more={"directory": str(tmp_path)}, warmup=warmup) as process:
        assert ask(process.serve().instance(), text("x")) == {"n": 4}


DECLARED = (
    TensorSpec("FP32", (-1, 3), "A"),
    TensorSpec("BF16", (2,), "B"),
    TensorSpec("BYTES", (1,), "C", optional=True),
)


def test_warmup_of_what_the_config_declares():
    """Without inputs and file the request is zeros in the names, datatypes and shapes that the config declares, one row of open axes."""
    with InstanceProcess("remote_models:Described", warmup=(Warmup(count=2),), inputs=DECLARED) as process:
        request = Payload(Kind.TENSORS, {"A": np.zeros(1, "?"), "B": np.zeros(0, "?")})
        seen = ask(process.serve().instance(), request)["seen"]
    assert list(seen) == [b"float32 1,3", b"float32 2"] * 2 + [b"bool 1", b"bool 0"]


def test_warmup_that_what_the_config_declares_does_not_pass():
    """A model that cannot take what its config declares is not ready, and the reason is its own."""
    inputs = (TensorSpec("FP32", (4,), "A"), TensorSpec("FP32", (4,), "B"))
    with InstanceProcess("remote_models:Described", warmup=(Warmup(),), inputs=inputs) as process:
        assert "four are too many" in process.hear("ready", "failed")["message"]


def test_warmup_prefers_the_classes_own_example_that_fits():
    """A class that knows of a request with the declared inputs is asked that one."""
    inputs = (TensorSpec("INT64", (-1,), "A"),)
    with InstanceProcess("remote_models:WithExample", warmup=(Warmup(),), inputs=inputs) as process:
        assert ask(process.serve().instance(), text("seen"))["seen"] == [[7, 8]]
    others = (TensorSpec("INT64", (-1, 2), "A"),)
    with InstanceProcess("remote_models:WithExample", warmup=(Warmup(),), inputs=others) as process:
        assert ask(process.serve().instance(), text("seen"))["seen"] == [[0, 0]]


def test_warmup_with_narrow_floats():
    """FP16 and BF16, which V2's JSON has no numbers for, may be in a warm-up; BF16 arrives as float32."""
    inputs = tuple(
        {"name": name, "shape": [2], "datatype": kind, "data": [1, 2.5]}
        for name, kind in (("x", "FP16"), ("y", "BF16"))
    )
    with InstanceProcess("remote_models:Half", warmup=(Warmup(inputs=inputs),)) as process:
        request = Payload(Kind.TENSORS, {"x": np.zeros(1), "y": np.zeros(1)})
        seen = ask(process.serve().instance(), request)["seen"]
    assert list(seen) == [b"float16,float32", b"float64,float64"]


def test_warmup_on_the_same_loop():
    """An asynchronous model is tried on the loop on which it is asked."""
    with InstanceProcess("remote_models:AsyncWorker", warmup=(Warmup(count=2),)) as process:
        assert ask(process.serve().instance(), Payload(Kind.TENSOR, np.ones(2))).tolist() == [1, 1]


def test_warmup_of_streams():
    """So is one that streams, or sends."""
    inputs = ({"name": "text", "shape": [1], "datatype": "BYTES", "data": ["two"]},)
    with InstanceProcess("contract_models:Speaker", warmup=(Warmup(inputs=inputs),)) as process:
        assert process.ready().spec.streams


# --- the end ---


def test_close(process):
    """It leaves with 0 when it is told to close."""
    assert ask(process.instance(), text("counted")) == "0"
    process.tell("close")
    assert process.wait() == 0


def test_close_ends_what_is_under_way(process):
    """What is not finished then is a 503, at once."""
    with process.connect() as sock:
        sock.sendall(encode_request(text("hang"), time.monotonic()).whole())
        wait_until(lambda: was_read(sock), "the model to be at it")
        process.tell("close")
        data = b""
        while piece := sock.recv(1000):
            data += piece
    error = decode_error(data[PREFIX.size :])
    assert (type(error), error.message) == (Unavailable, "the model is being unloaded")
    assert process.wait() == 0


def test_close_with_a_sender_that_is_kept():
    """A sender that the model keeps in a list holds nothing up: its client gets a 503 and the process leaves."""
    with InstanceProcess("remote_models:Keeping") as process:
        instance = process.serve().instance()
        answers = instance.infer(Payload(Kind.TENSORS, {"text": np.array([b"x"], object)}))
        assert next(answers).value["text"][0] == b"x"
        process.tell("close")
        with pytest.raises(Unavailable, match="is being unloaded"):
            next(answers)
        assert process.wait() == 0


def test_drain(process):
    """Drained of everything, it has answered what it was at and what waited, and then says so."""
    with held(process):
        waiting = [later(lambda: ask(process.instance(), text("counted"))) for _ in range(3)]
        wait_until(lambda: backlog(process) == 3, "them to wait")
        process.tell("drain")
    for each in waiting:
        each.join(30)
    assert [each.result for each in waiting] == ["0"] * 3
    assert process.hear("drained")["event"] == "drained"
    process.tell("close")
    assert process.wait() == 0


def test_drain_without_the_backlog(process):
    """Drained of what it is at only, what waits is left for others who take from the same socket."""
    with held(process):
        waiting = later(lambda: ask(process.instance(), text("counted")))
        wait_until(lambda: backlog(process) == 1, "it to wait")
        process.tell("drain", backlog=False)
        wait_until(lambda: was_woken(process), "it to hear that")
    process.hear("drained")
    assert backlog(process) == 1
    process.kill()
    process.wait()
    process.listener.close()
    waiting.join(30)
    assert isinstance(waiting.result, Unavailable)


@pytest.mark.parametrize("class_", ["AsyncWorker", "Sized", "Keeping"])
def test_drain_of_every_kind(class_):
    """Every kind of host can be drained."""
    batching = Batching(max_batch_size=4) if class_ == "Sized" else None
    with InstanceProcess(f"remote_models:{class_}", batching=batching) as process:
        process.serve()
        if class_ == "Keeping":
            answers = process.instance().infer(Payload(Kind.TENSORS, {"text": np.array([b"x"], object)}))
            next(answers)
            process.tell("drain")
            answers.close()
        else:
            assert ask(process.instance(), Payload(Kind.TENSOR, np.ones(3))).tolist() == [1, 1, 1]
            process.tell("drain")
        process.hear("drained")


def was_woken(process):
    """Whether those who wait at its doors were woken for good: the kernel shows an event's count."""
    for each in Path(f"/proc/{process.pid}/fdinfo").iterdir():
        with suppress(OSError):  # one that was closed meanwhile
            _, name, count = each.read_text().partition("eventfd-count:")
            if name and int(count.split()[0], 16):
                return True
    return False


def backlog(process):
    """How many connections wait: those that are made and not accepted."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    mine = [line.split() for line in lines if line.endswith(process.path)]
    return sum(1 for fields in mine if fields[5] == "02")


@pytest.mark.parametrize(
    ("how", "status"), [("exit", 9), (str(int(signal.SIGKILL)), -9), (str(int(signal.SIGSEGV)), -11)]
)
def test_death(process, how, status):
    """When it dies in predict, its client knows at once."""
    with pytest.raises(Unavailable, match="has lost the process"):
        ask(process.instance(), text(f"die {how}"))
    assert process.wait() == status


@pytest.mark.parametrize(
    ("what", "why"), [("stop", "the model's code has stopped its event loop"), ("leave", "SystemExit: no more of this")]
)
def test_the_loop_ends(what, why):
    """A process whose event loop was ended by the model's code ends with the reason, and nobody waits for it in vain."""
    with InstanceProcess("remote_models:AsyncWorker") as process:
        with pytest.raises(Unavailable, match="has lost the process"):
            ask(process.serve().instance(), text(what))
        assert process.wait() == 70
        assert why in process.log.read_text().splitlines()[-1]


def test_a_loop_beside_threads_goes_on(process):
    """A coroutine of a model that has threads may stop its loop, and sys.exit() there: it ends nothing, and all are answered."""
    instance = process.instance()
    assert ask(instance, text("leave_loop")) == "back"
    assert ask(instance, text("leave_loop")) == "back"


def test_supervisor_dies(process):
    """When nobody is left to tell it anything, it ends."""
    process.hang_up()
    assert process.wait() == 0


def test_parent_is_another():
    """One whose parent is not the one that started it any more ends at once."""
    with InstanceProcess(WORKER, more={"parent": 1 << 22}) as process:
        assert process.wait() == 0


def test_signals(process):
    """A terminal's signals and TERM mean nothing to it."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        process.kill(each)
    assert ask(process.instance(), text("counted")) == "0"


# --- trouble ---


def test_stuck():
    """A request that nobody waits for and that does not come back is reported, with what every thread does."""
    with InstanceProcess(WORKER, more={"timeout": 0.1}) as process:
        process.serve()
        with pytest.raises(Exception, match="did not answer"):
            ask(process.instance(), text("hang", deadline=time.monotonic() + 0.3))
        process.hear("stuck")
        assert "remote_models.py" in process.log.read_text()


@pytest.mark.parametrize("class_", ["Cyclic", "AsyncCyclic"])
def test_an_answer_in_a_cycle(class_):
    """An answer that nobody can finish any more ends, though the process is idle and a reference cycle holds its sender."""
    with InstanceProcess(f"remote_models:{class_}") as process:
        answers = process.serve().instance().infer(Payload(Kind.TENSORS, {"text": np.array([b"x"], object)}))
        assert next(answers).value["text"][0] == b"x"
        with pytest.raises(ModelFailed, match="let go of its sender"):
            next(answers)


def test_stacks(process):
    """It writes what every thread does when it is asked to."""
    process.tell("stacks")
    wait_until(lambda: "most recent call first" in process.log.read_text(), "the stacks")


def test_memory_limit():
    """A predict that needs more memory than there may be gets an error that names the limit, and the process lives."""
    with InstanceProcess(WORKER, memory_limit=1 << 30) as process:
        instance = process.serve().instance()
        with pytest.raises(ModelFailed, match="memory_limit is 1073741824 bytes"):
            ask(instance, text(f"allocate {1 << 32}"))
        assert ask(instance, text("allocate 1000")) == "1000"


def test_control_line_is_broken(process):
    """What is no order ends the process: it could be told nothing more."""
    process._ours.sendall(b"nonsense\n")
    assert process.wait() == 0


# --- what stands beside the model ---


@pytest.mark.parametrize("place", [0, 1])
def test_flask_blueprints_are_not_served_and_that_is_said(place):
    """The first instance's log names what of the class has no effect in a process of its own, and what to do."""
    with InstanceProcess("remote_models:WithPages", more={"place": place}) as process:
        process.serve()
        said = process.log.read_text()
    assert ("blueprint and model_error_handler have no effect here" in said) == (place == 0)
    assert ("--host worker" in said) == (place == 0)
