"""The fork guard: what `preload_app` refuses, what it lets through, and what it leaves to the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from prefork.guard import hold, openmp, threads
from prefork.guard.examination import culprits
from running import SOURCE, Running, serving, wait_until

PRELOAD = ("--preload-app", "--workers", "2")
PREDICT = "\n            def predict(self, X, names):\n                return X\n"


def refused(folder: Path, source: str, *flags: str, **more) -> str:
    """The log of a server that has refused to start, with exit code 3."""
    with serving(folder, source, *PRELOAD, *flags, ready=False, **more) as running:
        assert running.process.wait(60) == 3, running.log
        return running.log


def served(running: Running, body: dict | None = None) -> dict:
    with running.client() as client:
        answer = client.post("/predict", json=body or {"data": {"ndarray": [[1.0, 2.0]]}})
    assert answer.status_code == 200, running.log
    return dict(answer.json())


def told(running: Running, count: int = 2) -> dict[int, dict]:
    """What each of the workers says of itself, by its pid."""
    seen: dict[int, dict] = {}

    def ask() -> bool:
        answer = served(running)["jsonData"]
        seen[answer["pid"]] = answer
        return len(seen) == count

    wait_until(ask, f"{count} workers to answer")
    return seen


# --- native threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "culprit"),
    [
        ("threading.Thread(target=time.sleep, args=(600,), daemon=True, name='poller').start()", "'poller'"),
        ("_thread.start_new_thread(time.sleep, (600,))", "a live thread of Python"),
        ("self.pool = ThreadPoolExecutor(1); self.pool.submit(time.sleep, 600)", "'ThreadPoolExecutor-0_0'"),
    ],
)
def test_a_thread_is_refused_with_the_line_that_started_it(tmp_path, start, culprit):
    """A live thread ends the start with code 3 and one message: whose it is, which line began it, and the cure."""
    source = f"""
        import _thread, threading, time
        from concurrent.futures import ThreadPoolExecutor
        class Model:
            def __init__(self):
                self.begin()
                self.weights = [1.0]
            def begin(self):
                {start}
        {PREDICT}
    """
    log = refused(tmp_path, source)
    assert culprit in log
    assert f"It began at Model.py:9: {start}" in log
    assert "Move it to load()" in log
    assert log.count("does not survive a fork") == 1
    assert "Traceback" not in log


def test_a_thread_that_the_import_starts_is_refused_with_the_line(tmp_path):
    """The module's own lines are the user's too, those of the modules that it imports as well."""
    (tmp_path / "helper.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    log = refused(tmp_path, "import helper\nclass Model:\n    def predict(self, X, names):\n        return X\n")
    assert "It began at helper.py:2: threading.Thread(" in log


def test_a_thread_that_has_ended_is_no_danger(tmp_path):
    """What lived only during the construction is let through."""
    source = f"""
        import threading
        class Model:
            def __init__(self):
                worker = threading.Thread(target=sum, args=([],))
                worker.start()
                worker.join()
        {PREDICT}
    """
    with serving(tmp_path, source, *PRELOAD) as running:
        assert served(running)["data"]["ndarray"] == [[1.0, 2.0]]


def test_the_owner_of_a_native_thread_is_found_on_its_stack():
    """OpenBLAS's own threads are known by their library, and known to begin anew after a fork."""
    code = (
        "import os; os.environ['OPENBLAS_NUM_THREADS'] = '2'\n"
        "import numpy as np; np.ones((500, 500)) @ np.ones((500, 500))\n"
        "from prefork.guard import examination, threads\n"
        "found = threads.others()\n"
        "assert found and all('openblas' in each.library and each.survives for each in found), found\n"
        "assert examination.culprits() == []\n"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SOURCE)}, check=True, timeout=60)


def test_this_process_has_its_own_threads_named():
    """A thread of Python is named with its name and the line that it is at."""
    import threading

    event = threading.Event()
    waiting = threading.Thread(target=lambda: event.wait(60), name="waiting")
    waiting.start()
    try:
        (found,) = [each for each in threads.others() if each.tid == waiting.native_id]
        assert found.python.startswith(f"'waiting', at {__file__}:")
        assert [each.who for each in culprits() if waiting.native_id in each.tids] == ["Python"]
    finally:
        event.set()
        waiting.join()


# --- OpenMP ----------------------------------------------------------------------------------------------------------

BOOSTING = """
import os
import numpy as np
from prefork.guard import openmp, threads

class Model:
    example = np.ones((5000, 3))

    def __init__(self):
        {before}
        from sklearn.ensemble import HistGradientBoostingRegressor
        rows = np.random.default_rng(0).random((5000, 3))
        self.model = HistGradientBoostingRegressor(max_iter=5).fit(rows, rows[:, 0])
        self.model.predict(rows)

    def predict(self, X, names):
        self.model.predict(self.example)
        pools = [os.path.basename(each.library) for each in threads.others()]
        counts = {{openmp.threads(path) for path in openmp.runtimes()}}
        return {{"pid": os.getpid(), "counts": sorted(counts), "pool": any("gomp" in each for each in pools)}}
"""


def test_openmp_without_the_guard_hangs_in_the_child():
    """What the guard is for: scikit-learn's boosting, run with two threads, never answers in a forked child."""
    code = (
        "import os, select, numpy as np\n"
        "from sklearn.ensemble import HistGradientBoostingRegressor\n"
        "rows = np.random.default_rng(0).random((5000, 3))\n"
        "model = HistGradientBoostingRegressor(max_iter=5).fit(rows, rows[:, 0])\n"
        "model.predict(rows)\n"
        "reader, writer = os.pipe()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    model.predict(rows); os.write(writer, b'!'); os._exit(0)\n"
        "came, _, _ = select.select([reader], [], [], 3)\n"
        "os.kill(pid, 9); os.waitpid(pid, 0)\n"
        "raise SystemExit(0 if not came else 1)\n"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "2"}, check=True, timeout=60)


@pytest.mark.parametrize("flags", [("--threads", "0"), ("--threads", "1"), ("--worker-class", "sync")])
def test_openmp_survives_under_the_guard_and_has_its_threads_back(tmp_path, flags):
    """The same model, built and run in the master, predicts in each worker, with as many threads as its budget says."""
    with serving(tmp_path, BOOSTING.format(before="pass"), *PRELOAD, *flags, env={"OMP_NUM_THREADS": "2"}) as running:
        for answer in told(running).values():
            assert answer["counts"] == [2]
            assert answer["pool"]
        assert "trial child: predict with the class's example" in running.log


def test_a_pool_that_the_class_opens_all_the_same_is_refused(tmp_path):
    """A class that sets the number of threads itself has opened a pool: the message names the runtime and the line."""
    before = "import sklearn.ensemble, threadpoolctl; self.limits = threadpoolctl.threadpool_limits(2)"
    log = refused(tmp_path, BOOSTING.format(before=before), env={"OMP_NUM_THREADS": "2"})
    assert "a live thread of OpenMP (libgomp" in log
    assert "It began at Model.py:13: self.model = HistGradientBoostingRegressor" in log


def test_a_runtime_is_held_as_soon_as_it_is_mapped():
    """Inside, a library that an import brings has one thread before it is called; `give_back` restores what it had."""
    code = (
        "import sys\n"
        "from prefork.guard.hold import Hold\n"
        "from prefork.guard import openmp\n"
        "assert openmp.runtimes() == set()\n"
        "held = Hold(2)\n"
        "with held:\n"
        "    import sklearn.utils._openmp_helpers as helpers\n"
        "    assert helpers._openmp_effective_n_threads() == 1\n"
        "assert {openmp.threads(path) for path in openmp.runtimes()} == {1}\n"
        "held.give_back()\n"
        "assert {openmp.threads(path) for path in openmp.runtimes()} == {2}\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=60)


def test_the_hold_leaves_nothing_behind(monkeypatch):
    """Behind it, imports and ctypes are what they were before, and so is the environment."""
    import ctypes
    from importlib.machinery import ExtensionFileLoader

    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    before = ctypes.CDLL.__init__, ExtensionFileLoader.create_module
    with hold.Hold(1):
        assert ctypes.CDLL.__init__ is not before[0]
        assert os.environ["MKL_NUM_THREADS"] == "1"
    assert (ctypes.CDLL.__init__, ExtensionFileLoader.create_module) == before
    assert os.environ["MKL_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("libgomp.so.1", True),
        ("libgomp-e985bcbb.so.1.0.0", True),
        ("libomp.so.5", True),
        ("libiomp5.so", True),
        ("libompi.so.40", False),
        ("libgompert.so", False),
    ],
)
def test_the_names_of_runtimes(name, is_one):
    """GNU's, LLVM's and Intel's runtimes are known by their file names, as wheels bundle them too."""
    assert bool(openmp._RUNTIME.match(name)) is is_one


# --- the trial --------------------------------------------------------------------------------------------------------


def test_a_hang_in_the_trial_is_a_message_with_the_line(tmp_path):
    """A lock that the constructor holds would stop every worker in silence: the message says where, and the start ends."""
    source = """
        import threading
        class Model:
            example = [[1.0]]
            def __init__(self):
                self.lock = threading.Lock()
                self.lock.acquire()
            def predict(self, X, names):
                with self.lock:
                    return X
    """
    log = refused(tmp_path, source, "--trial-timeout", "1")
    assert "the trial child hung in predict for 1 s, at Model.py:9 in predict" in log
    assert "load() runs in each worker, after the fork" in log


def test_a_hang_in_load_is_one_too(tmp_path):
    """load() has the same deadline in the trial."""
    source = f"""
        import threading
        class Model:
            def load(self):
                threading.Event().wait()
        {PREDICT}
    """
    assert "the trial child hung in load() for 1 s, at Model.py:5 in load" in refused(
        tmp_path, source, "--trial-timeout=1"
    )


def test_a_death_in_the_trial_is_a_message_with_the_line(tmp_path):
    """A child that is killed by a signal says by which, and at which line."""
    source = """
        import ctypes
        class Model:
            example = [[1.0]]
            def predict(self, X, names):
                ctypes.string_at(0)
    """
    assert "the trial child died in predict by SIGSEGV, at Model.py:6 in predict" in refused(tmp_path, source)


def test_an_exception_in_the_trial_is_no_reason_to_refuse(tmp_path):
    """A predict that raises on the example is told in the log; it has nothing to do with the fork."""
    source = """
        class Model:
            example = [[1.0]]
            def predict(self, X, names):
                if X.shape[1] == 1:
                    raise ValueError("two columns are needed")
                return X
    """
    with serving(tmp_path, source, *PRELOAD) as running:
        assert "predict failed: ValueError: two columns are needed" in running.log
        assert served(running)["data"]["ndarray"] == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("example", "told_as"),
    [
        ("example = [[1.0, 2.0]]", "predict with the class's example"),
        ("def example(self): return [[1.0, 2.0]]", "predict with the class's example"),
        (
            'def init_metadata(self): return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]}',
            "predict with zeros for what init_metadata() says",
        ),
        ("pass", "load() only: the class has no `example`"),
    ],
)
def test_the_trial_predicts_with_an_example_if_there_is_one(tmp_path, example, told_as):
    """The log says what the trial has predicted with, and that it has not where nothing says what to."""
    source = f"""
        class Model:
            {example}
            def predict(self, X, names):
                assert X.shape == (1, 2)
                return X
    """
    with serving(tmp_path, source, *PRELOAD) as running:
        assert told_as in running.log
        assert "failed" not in running.log


def test_the_trial_can_be_left_out(tmp_path):
    """`trial_timeout: 0` forks no trial child."""
    source = f"""
        import os, pathlib
        class Model:
            def load(self):
                pathlib.Path(f"loaded.{{os.getpid()}}").touch()
        {PREDICT}
    """
    with serving(tmp_path, source, *PRELOAD, "--trial-timeout", "0") as running:
        wait_until(lambda: running.log.count("loaded in") == 2, "both workers")
        assert len(list(tmp_path.glob("loaded.*"))) == 2


@pytest.mark.parametrize("how", [["--preload-app", "force"], ["--preload=force"]])
def test_force_goes_on_with_a_warning(tmp_path, how):
    """`preload_app: force` starts all the same, and the log has the message as a warning."""
    source = f"""
        import threading, time
        class Model:
            def __init__(self):
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        {PREDICT}
    """
    with serving(tmp_path, source, *how, "--workers", "2") as running:
        assert served(running)["data"]["ndarray"] == [[1.0, 2.0]]
        assert "[WARNING] forced: preload_app: what the import or the constructor left" in running.log


# --- HUP ----------------------------------------------------------------------------------------------------------------

VERSIONED = """
    import os
    from rules import VERSION
    class Model:
        example = [[1.0]]
        def __init__(self):
            self.built = os.getpid()
        def predict(self, X, names):
            return {{"pid": os.getpid(), "built": self.built, "version": VERSION, "own": {own}}}
"""


def versions(running: Running) -> set[tuple[int, int, int]]:
    return {(each["built"], each["version"], each["own"]) for each in told(running).values()}


def reload(running: Running, done: str) -> None:
    count = running.log.count(done)
    running.process.send_signal(signal.SIGHUP)
    wait_until(lambda: running.log.count(done) > count, f"{done!r} in the log")


def test_hup_loads_new_code_into_the_master_and_every_worker(tmp_path):
    """After HUP the class and the modules that it imports are those on disk, built once, in the master."""
    (tmp_path / "rules.py").write_text("VERSION = 1\n")
    with serving(tmp_path, VERSIONED.format(own=1), *PRELOAD) as running:
        master = running.process.pid
        assert versions(running) == {(master, 1, 1)}
        for number in (2, 3):
            old = told(running)
            (tmp_path / "rules.py").write_text(f"VERSION = {number}\n")
            (tmp_path / "Model.py").write_text(textwrap.dedent(VERSIONED.format(own=number)))
            running.process.send_signal(signal.SIGHUP)
            wait_until(lambda old=old: not told(running).keys() & old.keys(), "new workers")
            assert versions(running) == {(master, number, number)}
        assert running.stop() == 0


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("VERSION = 1 / 0\n", "ZeroDivisionError"),
        (
            "import threading\nVERSION = 2\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
            "rules.py:3",
        ),
        ("import os\nVERSION = 2\nos.abort()\n", "SIGABRT"),
    ],
)
def test_hup_with_code_that_cannot_be_preloaded_changes_nothing(tmp_path, code, why):
    """Code that raises, that would not survive a fork, or that kills the process: the workers of before go on."""
    (tmp_path / "rules.py").write_text("VERSION = 1\n")
    with serving(tmp_path, VERSIONED.format(own=1), *PRELOAD) as running:
        before = told(running).keys()
        (tmp_path / "rules.py").write_text(code)
        reload(running, "the workers of before go on")
        assert why in running.log
        assert told(running).keys() == before
        (tmp_path / "rules.py").write_text("VERSION = 4\n")
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: {version for _, version, _ in versions(running)} == {4}, "the mended code")
        assert running.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_a_reload_can_be_stopped(tmp_path, number):
    """A signal to stop that comes while the new class is built ends the server with status 0; its children too."""
    (tmp_path / "rules.py").write_text("VERSION = 1\n")
    with serving(tmp_path, VERSIONED.format(own=1), *PRELOAD) as running:
        told(running)
        (tmp_path / "rules.py").write_text(
            "import pathlib, signal\npathlib.Path('building').touch()\nsignal.pause()\nVERSION = 2\n"
        )
        running.process.send_signal(signal.SIGHUP)
        wait_until((tmp_path / "building").exists, "the new code")
        assert running.stop(number) == 0


# --- memory -------------------------------------------------------------------------------------------------------------

SIZE = 60 << 20
ARRAY = """
    import os
    import numpy as np
    class Model:
        def {hook}(self):
            self.weights = {weights}
        def predict(self, X, names):
            return {{"pid": os.getpid(), "address": self.weights.ctypes.data, "sum": float(self.weights.sum())}}
"""


def proportional(pid: int, address: int) -> int:
    """This process's share (PSS), in bytes, of the mappings that an array at an address is in."""
    found, size = False, 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            start, end = (int(each, 16) for each in head.split("-"))
            found = start < address + SIZE and end > address
        elif found and head == "Pss:":
            size += int(line.split()[1]) << 10
    return size


@pytest.mark.parametrize(
    ("flags", "hook", "weights"),
    [
        (["--preload-app"], "__init__", f"np.ones({SIZE // 8})"),
        ([], "load", "np.load('weights.npy', mmap_mode='r')"),
        ([], "load", "__import__('joblib').load('weights.joblib', mmap_mode='r')"),
    ],
    ids=["preloaded", "np.load", "joblib.load"],
)
def test_four_workers_share_one_copy_of_an_array(tmp_path, flags, hook, weights):
    """The proportional set size of an array in four workers and the master is under 1.3 copies after 1,000 predictions."""
    import joblib

    np.save(tmp_path / "weights.npy", np.ones(SIZE // 8))
    joblib.dump(np.ones(SIZE // 8), tmp_path / "weights.joblib")
    with serving(tmp_path, ARRAY.format(hook=hook, weights=weights), *flags, "--workers", "4") as running:
        seen: dict[int, int] = {}
        asked = 0
        while asked < 1000 or len(seen) < 4:
            with running.client() as client:
                for _ in range(25):
                    answer = client.post("/predict", json={"data": {"ndarray": [[1.0]]}}).json()["jsonData"]
                    seen[answer["pid"]] = answer["address"]
                    assert answer["sum"] == SIZE // 8
            asked += 25
        master = running.process.pid
        total = sum(proportional(pid, address) for pid, address in seen.items())
        total += proportional(master, next(iter(seen.values()))) if flags else 0
        assert 0.99 * SIZE < total < 1.3 * SIZE


def test_the_trial_leaves_no_process_and_no_descriptor(tmp_path):
    """What load() has started in the trial child ends with it, and reloads leave no open file behind in the master."""
    source = """
        import multiprocessing, os, pathlib, signal
        def wait():
            pathlib.Path(f"started.{os.getpid()}").touch()
            signal.pause()
        class Model:
            def load(self):
                self.helper = multiprocessing.get_context("fork").Process(target=wait, daemon=True)
                self.helper.start()
                while not pathlib.Path(f"started.{self.helper.pid}").exists():
                    os.sched_yield()
            def predict(self, X, names):
                return {"pid": os.getpid(), "helper": self.helper.pid}
    """
    with serving(tmp_path, source, *PRELOAD) as running:
        helpers = {answer["helper"] for answer in told(running).values()}
        (tried,) = {int(each.suffix[1:]) for each in tmp_path.glob("started.*")} - helpers
        wait_until(lambda: not Path(f"/proc/{tried}").exists(), "the end of the trial's helper")
        files = Path(f"/proc/{running.process.pid}/fd")
        before = len(list(files.iterdir()))
        for _ in range(2):
            old = told(running).keys()
            running.process.send_signal(signal.SIGHUP)
            wait_until(lambda old=old: not told(running).keys() & old, "new workers")
            wait_until(lambda: len(list(files.iterdir())) == before, "as many open files as before")
        assert running.stop() == 0
