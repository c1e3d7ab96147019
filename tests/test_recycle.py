"""Why workers of real servers are replaced, and what becomes of one that cannot be."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import httpx
import pytest

from gated import children
from running import serving, wait_until
from test_metrics_server import scrape, total

BODY = {"data": {"ndarray": [[1.0]]}}
TOKEN = {"PREFORK_ADMIN_TOKEN": "secret"}
OPERATOR = {"Authorization": "Bearer secret"}

LEAKING = """
    import os
    class Model:
        kept = []
        def predict(self, X, names=None):
            self.kept.append(os.urandom(int(X[0][0]) << 20))
            return [[os.getpid()]]
"""

SHARING = """
    import os
    class Model:
        def __init__(self):
            self.built = [str(n) * 20 for n in range(300_000)]  # some 30 MB of Python objects
        def predict(self, X, names=None):
            self.checked = sum(map(len, self.built)) if X[0][0] else 0
            return [[os.getpid()]]
"""

HANGING = """
    import pathlib, threading
    class Model:
        def __init__(self):
            self.hang()
        def load(self):
            self.hang('load')
        def hang(self, where="constructor"):
            if pathlib.Path(f"hold.{where}").exists():
                while True:
                    %s
        def predict(self, X, names=None):
            return X
"""
WAITING = "threading.Event().wait()"
NATIVE = "sum(range(10**14))  # nothing but C, and it keeps the interpreter"


def line_of(source, text):
    """The number of the one line that has the text."""
    [number] = [number for number, line in enumerate(source.splitlines(), 1) if text in line]
    return number


def pid_of(client, number=1):
    answer = client.post("/predict", json={"data": {"ndarray": [[number]]}}, headers={"connection": "close"})
    assert answer.status_code == 200
    return int(answer.json()["data"]["ndarray"][0][0])


def pids(client):
    return {each["pid"] for each in client.get("/ready").json()["models"][0]["workers"] if each["state"] == "ready"}


def reasons(client):
    """The recycles that were counted, by their reason."""
    return {
        dict(labels)["reason"]: value
        for (name, labels), value in scrape(client).items()
        if name == "prefork_recycles_total"
    }


@pytest.mark.parametrize("worker_class", ["asgi", "sync", "gthread", "gevent"])
def test_a_worker_that_grows_is_replaced_and_no_request_fails(tmp_path, worker_class):
    """Past `max_worker_memory` a replacement is loaded and then the worker leaves, on every worker class."""
    flags = ("--workers", "1", "--max-worker-memory", "60M", "--worker-class", worker_class)
    with serving(tmp_path, LEAKING, *flags) as server, server.client() as client:
        first = pid_of(client)
        wait_until(lambda: pid_of(client, 4) != first, "another worker")
        wait_until(lambda: "leaves: max_worker_memory, it has grown by" in server.log, "the line in the log")
        assert reasons(client) == {"max_worker_memory": 1}


def test_what_is_shared_with_the_root_process_is_no_growth(tmp_path):
    """Under `preload_app` a worker that reads little of what it shares stays; one that touches all of it owns it, and goes."""
    flags = ("--workers", "1", "--max-worker-memory", "15M", "--preload-app")
    with serving(tmp_path, SHARING, *flags) as server, server.client() as client:
        first = pid_of(client, 0)
        looked = time.time() + 2.5
        wait_until(lambda: pid_of(client, 0) == first and time.time() > looked, "some looks at its memory")
        wait_until(lambda: pid_of(client, 1) != first, "another worker")
        assert reasons(client) == {"max_worker_memory": 1}


def test_old_workers_are_replaced_one_after_the_other(tmp_path):
    """Past `max_worker_age` each is replaced; the detail of /ready says why while it happens."""
    source = "import time\nclass Model:\n    def load(self):\n        time.sleep(0.5)\n    def predict(self, X, names): return X\n"
    with serving(tmp_path, source, "--workers", "2", "--max-worker-age", "4") as server, server.client() as client:
        wait_until(lambda: len(pids(client)) == 2, "both workers")
        old = pids(client)

        def told():
            workers = client.get("/ready").json()["models"][0]["workers"]
            return [each["pid"] for each in workers if each.get("replaced_for") == "max_worker_age"]

        wait_until(lambda: set(told()) & old, "the reason in the detail")
        wait_until(lambda: not pids(client) & old, "new workers")
        assert reasons(client)["max_worker_age"] >= 2


@pytest.mark.parametrize("worker_class", ["asgi", "sync", "gthread", "gevent"])
def test_an_operator_has_all_workers_replaced(tmp_path, worker_class):
    """The answer comes at once and names those that go; they are gone a little later, and the log has a line of it."""
    flags = ("--workers", "2", "--worker-class", worker_class)
    with serving(tmp_path, LEAKING, *flags, env=TOKEN) as server, server.client() as client:
        wait_until(lambda: len(pids(client)) == 2, "both workers")
        old = pids(client)
        answer = client.post("/v2/workers/recycle", headers=OPERATOR)
        assert (answer.status_code, answer.json()) == (202, {"replaced": sorted(old)})
        wait_until(lambda: len(pids(client)) == 2 and not pids(client) & old, "new workers")
        wait_until(lambda: not children(server.process.pid) & old, "the end of the old ones")
        assert reasons(client) == {"operator": 2}
        assert server.log.count("client=127.0.0.1 action=recycle status=202") == 1
        assert server.log.count("leaves: operator") == 2


def test_a_server_that_stops_replaces_nobody(tmp_path):
    """While it drains, an operator is told so: 503."""
    flags = ("--workers", "1", "--drain-grace", "600")
    with serving(tmp_path, LEAKING, *flags, env=TOKEN) as server, server.client() as client:
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: client.get("/ready").status_code == 503, "the drain")
        answer = client.post("/v2/workers/recycle", headers=OPERATOR)
        assert answer.status_code == 503
        assert "told to stop" in answer.json()["error"]
        assert server.stop(signal.SIGINT) == 0


@pytest.mark.parametrize("preload", [False, True])
@pytest.mark.parametrize("how", [WAITING, NATIVE], ids=["in Python", "in C"])
def test_a_hung_load_ends_the_start_and_says_where(tmp_path, how, preload):
    """After `load_timeout` every stack of the worker is in the log, the line of the user's is named, and the status is 3."""
    (tmp_path / "hold.load").touch()
    flags = ("--load-timeout", "1", "--workers", "2", *(["--preload", "--trial-timeout", "0"] if preload else []))
    with serving(tmp_path, HANGING % how, *flags, ready=False) as server:
        assert server.process.wait(60) == 3
        [line] = [line for line in server.log.splitlines() if "(load_timeout)" in line]
        at = line_of(HANGING % how, how)
        assert line.endswith(f"had not loaded its model in 1 s (load_timeout); it hung at Model.py:{at} in hang")
        outer = line_of(HANGING, "self.hang('load')")
        assert f'Model.py", line {outer} in load' in server.log
        assert "loaded in" not in server.log


def test_a_hung_constructor_is_as_bad(tmp_path):
    """`load_timeout` is for the constructor and `load()` together."""
    (tmp_path / "hold.constructor").touch()
    flags = ("--load-timeout", "1", "--workers", "1")
    with serving(tmp_path, HANGING % WAITING, *flags, ready=False) as server:
        assert server.process.wait(60) == 3
        assert f"it hung at Model.py:{line_of(HANGING % WAITING, WAITING)} in hang" in server.log


def test_a_replacement_that_hangs_leaves_the_old_worker(tmp_path):
    """Later than the start the server goes on: the trouble is in the detail and counted, until a replacement has loaded."""
    flags = ("--load-timeout", "1", "--workers", "1")
    with serving(tmp_path, HANGING % NATIVE, *flags) as server, server.client() as client:
        old = pids(client)
        (tmp_path / "hold.load").touch()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "(load_timeout)" in client.get("/ready").json().get("trouble", ""), "the trouble")
        assert client.get("/ready").status_code == 200
        assert total(scrape(client), "prefork_failed_replacements_total") == 1
        assert pids(client) == old
        (tmp_path / "hold.load").unlink()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: pids(client) and not pids(client) & old, "a new worker")
        wait_until(lambda: "trouble" not in client.get("/ready").json(), "the end of the trouble")


def test_a_preloaded_class_that_cannot_be_built_anew_is_trouble_too(tmp_path):
    """Under `preload_app` it is the root process that fails; it is told and counted like a worker."""
    with serving(tmp_path, LEAKING, "--workers", "1", "--preload-app") as server, server.client() as client:
        (tmp_path / "Model.py").write_text("raise ValueError('the new code is broken')")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: client.get("/ready").json().get("trouble"), "the trouble")
        assert total(scrape(client), "prefork_failed_replacements_total") == 1


def test_a_crash_in_load_says_where(tmp_path):
    """A worker that crashes in native code while it loads leaves its Python stacks in the log."""
    source = """
        import ctypes
        class Model:
            def load(self):
                ctypes.string_at(0)
            def predict(self, X, names=None):
                return X
    """
    with serving(tmp_path, source, "--workers", "1", ready=False) as server:
        assert server.process.wait(60) == 3
        assert "was killed by SIGSEGV before its model had loaded, at Model.py:5 in load" in server.log


def test_who_killed_a_silent_worker_is_known(tmp_path):
    """A worker that the server itself has killed for its silence was not out of memory, and nobody says so."""
    flags = ("--workers", "1", "--threads", "0", "--timeout", "1")
    with serving(tmp_path, HANGING % NATIVE, *flags) as server, server.client() as client:
        source = (tmp_path / "Model.py").read_text().replace("return X", "self.hang('predict')")
        (tmp_path / "Model.py").write_text(source)
        (tmp_path / "hold.predict").touch()
        old = pids(client)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: pids(client) and not pids(client) & old, "the new code")

        def is_replaced() -> bool:
            with suppress(httpx.HTTPError):
                client.post("/predict", json=BODY)
            return "it is replaced" in server.log

        wait_until(is_replaced, "the line in the log")
        assert "was ended after 1 s of silence (timeout); it is replaced" in server.log
        assert "out of memory" not in server.log


def test_a_worker_that_somebody_killed_may_have_been_out_of_memory(tmp_path):
    """KILL from outside is what the kernel does, so that is guessed at."""
    with serving(tmp_path, LEAKING, "--workers", "1") as server, server.client() as client:
        [victim] = pids(client)
        os.kill(victim, signal.SIGKILL)
        wait_until(
            lambda: f"worker {victim} was killed by SIGKILL (out of memory?); it is replaced" in server.log, "it"
        )


@pytest.mark.parametrize("preload", [False, True])
def test_a_module_that_does_not_exist_is_one_line(tmp_path, preload):
    """A mistake in the name of the model is one clear line, without a traceback, however many workers have made it."""
    flags = ("--workers", "4", *(["--preload"] if preload else []))
    with serving(tmp_path, "", *flags, model="Nope:Model", ready=False) as server:
        (tmp_path / "Nope.py").unlink()
        assert server.process.wait(60) == 3
        assert server.log.count("no module 'Nope'") == 1
        assert "Traceback" not in server.log
        assert "here either" not in server.log


def test_a_module_that_fails_is_told_with_its_traceback(tmp_path):
    """What the user's own code raises while it is imported comes with the line, and without our part of the stack."""
    with serving(tmp_path, "x = 1\nimport nothing_of_the_kind\n", "--workers", "1", ready=False) as server:
        assert server.process.wait(60) == 3
        assert "'Model' imports 'nothing_of_the_kind', which is not installed" in server.log
        assert 'Model.py", line 2, in <module>' in server.log
        assert "worker.py" not in server.log
