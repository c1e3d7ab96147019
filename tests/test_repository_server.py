"""A repository on a running server: what clients see of loading, unloading and new versions, in each control mode."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from repositories import (
    GATED,
    NUMBER,
    OPERATOR,
    TOKEN,
    add,
    ask,
    descendants,
    index,
    is_alive,
    load,
    number,
    pid,
    repository_server,
    unload,
    wait_gone,
)
from repository_files import put
from running import SOURCE, free_port, wait_until


@pytest.fixture
def models(tmp_path):
    """A folder of the models one and two."""
    folder = tmp_path / "models"
    add(folder, "one", NUMBER.format(number=1))
    add(folder, "two", NUMBER.format(number=2))
    return folder


def test_everything_is_loaded_at_the_start_and_nobody_may_change_it(tmp_path, models):
    """Under `control: none` all models are served; a broken one is in the index with its reason; load and unload are 503."""
    add(models, "broken", "import nosuch\n\nclass Model:\n    def predict(self, X):\n        return X\n")
    with repository_server(tmp_path) as server, server.client() as client:
        assert number(ask(client, "one")) == 1
        assert number(ask(client, "two")) == 2
        assert client.get("/v2/health/ready").status_code == 200
        rows = {row["name"]: row for row in client.post("/v2/repository/index").json()}
        assert rows["broken"]["state"] == "UNAVAILABLE"
        assert "nosuch" in rows["broken"]["reason"]
        assert ask(client, "broken").status_code in (404, 503)
        assert load(client, "one").status_code == 503
        assert unload(client, "one").status_code == 503
        assert "explicit model load / unload is not allowed" in load(client, "one").json()["error"]


def test_a_level_of_priority_has_a_queue_of_its_own(tmp_path, models):
    """A level whose queue is full is refused while the others still wait for the model, and all that waited are answered."""
    queues = "{max_batch_size: 1, priority_levels: 2, max_queue: 2, priority_queues: {1: {max_queue: 1}}}"
    add(models, "gated", GATED.format(place=str(tmp_path)), batching=queues)
    (tmp_path / "hold").touch()
    with repository_server(tmp_path) as server, server.client() as client, ThreadPoolExecutor() as pool:
        running = pool.submit(ask, client, "gated")
        wait_until(lambda: list(tmp_path.glob("entered.*")), "the model is busy")
        urgent = [pool.submit(ask, client, "gated", priority=1) for _ in range(3)]
        wait_until(lambda: sum(each.done() for each in urgent) == 2, "two refusals")
        others = [pool.submit(ask, client, "gated", priority=2) for _ in range(4)]
        wait_until(lambda: sum(each.done() for each in others) == 2, "two more")
        (tmp_path / "hold").unlink()
        assert running.result(30).status_code == 200
        assert sorted(each.result(30).status_code for each in urgent) == [200, 503, 503]
        assert sorted(each.result(30).status_code for each in others) == [200, 200, 503, 503]


def test_what_a_model_raises_is_in_the_log_once(tmp_path, models):
    """The model's process logs the traceback; the worker that was asked adds one line with the path and the message."""
    add(models, "bad", "class Model:\n    def predict(self, X):\n        raise RuntimeError('no such luck')\n")
    with repository_server(tmp_path) as server, server.client() as client:
        assert ask(client, "bad").status_code == 500
        wait_until(lambda: "RuntimeError: no such luck" in server.log, "the traceback")
        wait_until(lambda: "/v2/models/bad/infer: the model raised: no such luck" in server.log, "the worker's line")
        assert server.log.count("Traceback") == 1


def test_under_explicit_control_models_come_and_go(tmp_path, models):
    """Nothing is loaded unasked; a load answers when the model can be asked, an unload when its process is gone."""
    with repository_server(tmp_path, "--control", "explicit") as server, server.client() as client:
        assert client.get("/v2/health/ready").status_code == 200
        assert index(client) == {"one/": "", "two/": ""}
        assert ask(client, "one").status_code == 404
        assert load(client, "one").status_code == 200
        process = pid(ask(client, "one"))
        assert index(client) == {"one/1": "READY", "two/": ""}
        freed = unload(client, "one")
        assert not is_alive(process)
        assert freed.status_code == 200
        assert freed.json()["memory_before"] > freed.json()["memory_after"] == 0
        assert ask(client, "one").status_code == 404
        assert ask(client, "one/versions/1").status_code == 503
        assert ask(client, "one/versions/7").status_code == 404
        assert index(client) == {"one/1": "UNAVAILABLE", "two/": ""}
        assert unload(client, "one").status_code == 200
        assert unload(client, "nobody").status_code == 200
        assert load(client, "nobody").status_code in (400, 404)


def test_a_model_that_has_never_loaded_is_404_and_its_version_503_with_the_reason(tmp_path):
    """On every path of every protocol, as long as it is so; it is no model that is about to come, and has no Retry-After."""
    models = tmp_path / "models"
    add(
        models,
        "bad",
        "class Model:\n    def load(self):\n        raise RuntimeError('no\\nweights')\n    predict = print\n",
    )
    v2, v1, seldon = {"inputs": []}, {"instances": [[1.0]]}, {"data": {"ndarray": [[1.0]]}}
    with (
        repository_server(tmp_path, "--control", "explicit", "--load-model", "bad") as server,
        server.client() as client,
    ):
        for method, path, body in (
            ("POST", "/v2/models/bad{}/infer", v2),
            ("GET", "/v2/models/bad{}/ready", None),
            ("GET", "/v2/models/bad{}", None),
            ("GET", "/v2/models/bad{}/config", None),
            ("POST", "/v1/models/bad{}:predict", v1),
            ("GET", "/v1/models/bad{}", None),
            ("POST", "/api/v1.0/predictions", seldon),
            ("POST", "/invocations", v1),
        ):
            answer = client.request(method, path.format(""), json=body)
            assert answer.status_code == 404, (path, answer.text)
            assert "'bad' has no available versions: version 1: RuntimeError: no weights" in answer.text
            if "{}" in path:
                answer = client.request(method, path.format("/versions/1"), json=body)
                assert answer.status_code == 503, (path, answer.text)
                assert "'bad' version 1 is not at ready state: RuntimeError: no weights" in answer.text
                assert "retry-after" not in answer.headers
        assert client.get("/v2/models/bad/versions/2").status_code == 404
        assert unload(client, "bad").status_code == 200
        for path, status in (("bad", 404), ("bad/versions/1", 503)):
            answer = ask(client, path)
            assert (answer.status_code, "weights" in answer.text) == (status, False)


def test_control_needs_the_operator(tmp_path, models):
    """Load and unload without the token, or with a wrong one, are 401; the index is everybody's; what was done is logged."""
    with repository_server(tmp_path, "--control", "explicit") as server, server.client() as client:
        assert client.post("/v2/repository/models/one/load").status_code == 401
        wrong = {"authorization": f"Bearer {TOKEN}x"}
        assert client.post("/v2/repository/models/one/unload", headers=wrong).status_code == 401
        assert index(client) == {"one/": "", "two/": ""}
        assert load(client, "one").status_code == 200
        assert load(client, "nobody").status_code == 404
        assert unload(client, "one").status_code == 200
        said = re.findall(r'client=127.0.0.1 action=(\w+) model="(\w+)" status=(\d+)', server.log)
    assert said == [
        ("load", "one", "401"),
        ("unload", "one", "401"),
        ("load", "one", "200"),
        ("load", "nobody", "404"),
        ("unload", "one", "200"),
    ]


def test_the_start_set_is_what_is_named(tmp_path, models):
    """`--load-model` is loaded before the port opens; `*` is all; a name that there is not is said."""
    with (
        repository_server(tmp_path, "--control", "explicit", "--load-model", "two,tow") as server,
        server.client() as client,
    ):
        assert number(ask(client, "two")) == 2
        assert index(client) == {"one/": "", "tow/": "UNAVAILABLE", "two/1": "READY"}
        assert ask(client, "tow").status_code == 404
        assert "model 'tow' is not loaded: there is no model 'tow'" in server.log


def test_a_config_is_chosen_by_its_name(tmp_path, models):
    """`--model-config-name` reads `configs/<name>.pbtxt` of the models that have it; the others are served by their own."""
    put(models, {"one/configs/wide.pbtxt": "max_batch_size: 32"})
    with repository_server(tmp_path, "--model-config-name", "wide") as server, server.client() as client:
        sizes = [client.get(f"/v2/models/{name}/config").json()["max_batch_size"] for name in ("one", "two")]
        assert sizes == [32, 0]


def test_an_unchanged_model_is_not_touched_and_a_changed_one_is_replaced(tmp_path, models):
    """A load of what is as it was leaves the process; a new version takes over, the old one's process ends."""
    with (
        repository_server(tmp_path, "--control", "explicit", "--load-model", "one") as server,
        server.client() as client,
    ):
        before = pid(ask(client, "one"))
        assert load(client, "one").status_code == 200
        assert pid(ask(client, "one")) == before
        add(models, "one", NUMBER.format(number=11), version=2)
        assert number(ask(client, "one")) == 1
        assert load(client, "one").status_code == 200
        assert number(ask(client, "one")) == 11
        assert client.get("/v2/models/one").json()["versions"] == ["2"]
        wait_gone({before})
        assert ask(client, "one/versions/1").status_code == 503


def test_a_version_that_cannot_load_leaves_the_old_one_serving(tmp_path, models):
    """The load is 400 with the reason, again when tried again; the old version answers; once it is repaired it loads."""
    with (
        repository_server(tmp_path, "--control", "explicit", "--load-model", "one") as server,
        server.client() as client,
    ):
        broken = add(
            models,
            "one",
            "class Model:\n    def load(self):\n        raise RuntimeError('no weights')\n    def predict(self, X):\n        return X\n",
            2,
        )
        for _ in range(2):
            refused = load(client, "one")
            assert refused.status_code == 400
            assert "no weights" in refused.json()["error"]
            assert number(ask(client, "one")) == 1
        (broken / "model.py").write_text(NUMBER.format(number=12))
        assert load(client, "one").status_code == 200
        assert number(ask(client, "one")) == 12


@pytest.mark.parametrize("control", ["none", "explicit", "poll"])
def test_new_versions_under_load_fail_no_request(tmp_path, models, control):
    """While clients ask all the time, new versions take over one after the other: every answer is 200, one generation is left."""
    flags = {"none": (), "explicit": ("--load-model", "one"), "poll": ("--poll-seconds", "0.1")}[control]
    with repository_server(tmp_path, "--control", control, *flags) as server:
        before = len(descendants(server.process.pid))
        seen: set[int] = set()
        failed: list[str] = []
        done = threading.Event()

        def come() -> None:
            with server.client() as client:
                while not done.is_set():
                    answer = ask(client, "one")
                    if answer.status_code == 200:
                        seen.add(number(answer))
                    else:
                        failed.append(answer.text)

        clients = [threading.Thread(target=come) for _ in range(4)]
        for each in clients:
            each.start()
        with server.client() as client:
            for version in (2, 3, 4):
                add(models, "one", NUMBER.format(number=version), version=version)
                if control == "none":
                    os.kill(server.process.pid, signal.SIGHUP)
                elif control == "explicit":
                    assert load(client, "one").status_code == 200
                wait_until(lambda version=version: version in seen, f"version {version}")
        done.set()
        for each in clients:
            each.join()
        assert failed == []
        wait_until(lambda: len(descendants(server.process.pid)) == before, "one generation")


def test_poll_sees_models_come_and_go(tmp_path, models):
    """Under `control: poll` a new folder is served, one that was removed is not any more, and a broken one stops nobody."""
    with repository_server(tmp_path, "--control", "poll", "--poll-seconds", "0.1") as server, server.client() as client:
        add(models, "broken", "1 / 0\n")
        add(models, "three", NUMBER.format(number=3))
        wait_until(lambda: ask(client, "three").status_code == 200, "the new model")
        (models / "two").rename(tmp_path / "away")
        wait_until(lambda: ask(client, "two").status_code == 404, "the end of the old model")
        assert number(ask(client, "one")) == 1


def test_requests_in_flight_are_finished_by_an_unload(tmp_path, models):
    """An unload waits for what is being computed, which is answered; new requests are 404 at once."""
    add(models, "slow", GATED.format(place=str(tmp_path)))
    (tmp_path / "hold").touch()
    with repository_server(tmp_path, "--control", "explicit", "--load-model", "slow") as server:
        answers: list[int] = []

        def call(operation) -> threading.Thread:
            def run() -> None:
                with server.client() as client:
                    answers.append(operation(client).status_code)

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        asked = call(lambda client: ask(client, "slow"))
        wait_until(lambda: any(tmp_path.glob("entered.*")), "the request to be computed")
        unloading = call(lambda client: unload(client, "slow"))
        with server.client() as client:
            wait_until(lambda: client.get("/v2/models/slow").status_code == 404, "the name to be gone")
            assert answers == []
            (tmp_path / "hold").unlink()
        asked.join()
        unloading.join()
        assert answers == [200, 200]


def test_loads_that_hang_hold_up_nothing_else(tmp_path, models):
    """However many wait: the index, other models and large requests to them are answered, and an unload ends them all."""
    slow = "import time\n\nclass Model:\n    def load(self):\n        time.sleep(600)\n    predict = print\n"
    add(models, "slow", slow)
    large = {"inputs": [{"name": "x", "shape": [1, 200_000], "datatype": "FP64", "data": [0.5] * 200_000}]}
    flags = ("--control", "explicit", "--load-model", "one")
    with repository_server(tmp_path, *flags) as server, server.client() as client, ThreadPoolExecutor(40) as pool:

        def come() -> int:
            with server.client() as other:
                return load(other, "slow").status_code

        loads = [pool.submit(come) for _ in range(40)]
        wait_until(lambda: server.log.count("slow: a load is asked for") == 40, "all of them are taken")
        assert index(client) == {"one/1": "READY", "slow/1": "LOADING", "two/": ""}
        assert client.post("/v2/models/one/infer", json=large).status_code == 200
        assert load(client, "two").status_code == 200
        assert unload(client, "slow").status_code == 200
        assert {each.result(60) for each in loads} == {400}


def test_a_load_may_bring_its_files(tmp_path, models):
    """`config` and `file:` serve what was sent; a path that leads out is refused; after unload and load it is the disk again."""
    source = base64.b64encode(NUMBER.format(number=77).encode()).decode()
    with repository_server(tmp_path, "--control", "explicit") as server, server.client() as client:
        refused = load(client, "one", config="{}", **{"file:1/../../../evil.py": source})
        assert refused.status_code == 400
        assert not list(tmp_path.rglob("evil.py"))
        assert load(client, "one", config="{}", **{"file:1/model.py": source}).status_code == 200
        assert number(ask(client, "one")) == 77
        assert unload(client, "one").status_code == 200
        assert load(client, "one").status_code == 200
        assert number(ask(client, "one")) == 1


def test_the_same_name_in_two_repositories_is_served_from_none(tmp_path, models):
    """It is unavailable with the reason; all other models are served."""
    other = tmp_path / "others"
    add(other, "one", NUMBER.format(number=1))
    add(other, "three", NUMBER.format(number=3))
    with repository_server(tmp_path, "--repository", "others") as server, server.client() as client:
        rows = {row["name"]: row for row in client.post("/v2/repository/index").json()}
        assert "two or more repositories" in rows["one"]["reason"]
        assert number(ask(client, "two")) == 2
        assert number(ask(client, "three")) == 3


def test_nothing_is_left_when_the_server_stops_or_is_killed(tmp_path, models):
    """TERM and KILL of the root process end every process below it; TERM leaves no file in the run directory either."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with repository_server(tmp_path) as server:
            everybody = descendants(server.process.pid)
            assert len(everybody) > 3
            server.stop(how)
            wait_gone(everybody)
            if how == signal.SIGTERM:
                assert list((tmp_path / "run").iterdir()) == []


def test_a_killed_supervisor_is_replaced_and_its_models_are_served_again(tmp_path, models):
    """kill -9 of the supervisor costs its models' processes; within moments a new one serves what was loaded, and nothing else."""
    with repository_server(tmp_path, "--control", "explicit") as server, server.client() as client:
        assert load(client, "two").status_code == 200
        old = pid(ask(client, "two"))
        supervisor = int(Path(f"/proc/{old}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(supervisor, signal.SIGKILL)
        wait_gone({old, supervisor})
        assert pid(ask(client, "two")) != old  # nobody is refused meanwhile
        assert ask(client, "one").status_code == 404
        assert load(client, "one").status_code == 200


def test_a_second_server_is_refused_the_run_directory(tmp_path, models):
    """It is one line and status 2, before the second has bound or removed anything; the first one serves on, and starts again."""
    with repository_server(tmp_path) as server, server.client() as client:
        before = pid(ask(client, "one"))
        command = [
            sys.executable,
            "-m",
            "prefork",
            "serve",
            "--repository",
            "models",
            "--run-dir",
            str(tmp_path / "run"),
        ]
        env = {**os.environ, "PYTHONPATH": str(SOURCE)}
        second = [*command, "--bind", f"127.0.0.1:{server.port}"]
        ended = subprocess.run(second, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 2
        assert (
            ended.stderr
            == f"prefork: run_dir: another server uses {tmp_path / 'run'}; each needs a folder of its own\n"
        )
        assert pid(ask(client, "one")) == before
        assert server.stop(signal.SIGKILL) < 0
    with repository_server(tmp_path) as server, server.client() as client:
        assert pid(ask(client, "one")) != before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--repository", "nowhere"), "no such folder"),
        (("--control", "explicit"), "no repository"),
        (("--model-config-name", "small"), "no repository"),
        (("--repository", "models", "Iris"), "instead of a class"),
        (("--repository", "models", "--load-model", "one"), "--control explicit"),
        (("--host", "process", "-p", "depth=NaN"), "parameters.depth: a finite number is needed; under --host process"),
        (("--preferred-batch-sizes", "8"), "sizes from 1 to max_batch_size, which is 0, are needed"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tmp_path, models, flags, message):
    """Contradicting flags end the start with status 2 and a sentence, before anything runs."""
    port = free_port()
    flags = flags if "--repository" in flags else ("Iris", *flags)
    command = [sys.executable, "-m", "prefork", "serve", *flags, "--bind", f"127.0.0.1:{port}"]
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_the_command_line_loads_and_unloads(tmp_path, models):
    """`prefork models` lists, loads and unloads; without the token it ends with status 1 and a sentence."""
    with repository_server(tmp_path, "--control", "explicit") as server:

        def run(*words: str, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "prefork", "models", *words, "--url", server.url]
            env = {**os.environ, "PYTHONPATH": str(SOURCE), "PREFORK_ADMIN_TOKEN": token}
            return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)

        assert run("load", "one").stdout.startswith("one is loaded, in ")
        listed = run("list").stdout.splitlines()
        assert [line.split() for line in listed] == [
            ["MODEL", "VERSION", "STATE", "REASON"],
            ["one", "1", "READY"],
            ["two"],
        ]
        assert "one is unloaded" in run("unload", "one").stdout
        refused = run("load", "one", token="wrong")
        assert refused.returncode == 1
        assert "operator's token" in refused.stderr


def test_triton_client_controls_the_repository(tmp_path, models):
    """tritonclient's index, load, unload, statistics and configuration work against the running server."""
    import tritonclient.http as triton

    with repository_server(tmp_path, "--control", "explicit") as server:
        client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
        client.load_model("one", headers=OPERATOR)
        assert client.is_model_ready("one")
        states = {row["name"]: row.get("state") for row in client.get_model_repository_index()}
        assert states == {"one": "READY", "two": None}
        tensor = triton.InferInput("x", [1, 1], "FP64")
        import numpy as np

        tensor.set_data_from_numpy(np.ones((1, 1)))
        assert client.infer("one", [tensor]).as_numpy("predict")[0, 0] == 1
        assert client.get_model_config("one")["name"] == "one"
        (statistic,) = client.get_inference_statistics("one")["model_stats"]
        assert statistic["inference_stats"]["success"]["count"] == 1
        assert statistic["execution_count"] == 1
        client.unload_model("one", headers=OPERATOR)
        assert not client.is_model_ready("one")
        client.close()


def test_what_instances_hold_is_in_the_metrics(tmp_path, models):
    """/metrics has each version's processes and their memory while they are there, and no line for one that is unloaded."""
    with repository_server(tmp_path, "--control", "explicit") as server, server.client() as client:
        assert load(client, "one").status_code == 200
        page = client.get("/metrics").text
        assert 'prefork_instances{model="one",version="1"} 1.0\n' in page
        for name in ("prefork_instance_resident_bytes", "prefork_instance_proportional_bytes"):
            (line,) = [each for each in page.splitlines() if each.startswith(f"{name}{{")]
            assert float(line.split()[-1]) > 1 << 20
        assert unload(client, "one").status_code == 200
        assert "prefork_instances{" not in client.get("/metrics").text
