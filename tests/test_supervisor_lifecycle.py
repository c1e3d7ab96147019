"""Models of a repository under a supervisor: loaded, replaced without a gap, unloaded, by the API or because files change."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest

from prefork.supervisor import kernel
from running import wait_until
from supervised import hanging, heard, lives, processes_of, single, start, supervisor

CODE = "class Model:\n    def predict(self, X, names):\n        return X\n"


@pytest.fixture
def models(tmp_path):
    """A repository with one model."""
    folder = tmp_path / "models"
    put(folder, "m", 1)
    return folder


def put(repository, name, version, config=None, **behaviour):
    """A version of a model; behaviour: see stand_in."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(CODE)
    (folder / "behaviour.json").write_text(json.dumps(behaviour))
    if config is not None:
        (repository / name / "model.yaml").write_text(config)


def explicit(tmp_path, models, *names, **orders):
    return supervisor(tmp_path, repositories=(str(models),), control="explicit", load_model=names or ("m",), **orders)


class Callers:
    """Clients that ask all the time as workers do: they resolve the name, and resolve it again where its queue has just gone."""

    def __init__(self, running, count=2):
        self.failures = []
        self.answers = []
        self._running = running
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for each in self._threads:
            each.join()

    def _run(self):
        while not self._stop.is_set():
            try:
                self.answers.append(self._ask())
            except OSError as error:
                self.failures.append(error)

    def _ask(self):
        for _ in range(10):
            try:
                answer = self._running.say("pid")
            except (FileNotFoundError, ConnectionError):
                continue
            if not answer:
                raise ConnectionError("it died while it computed")
            return answer
        raise ConnectionError("ten tries")


# --- loads --------------------------------------------------------------------------------------------------------


def test_explicit_control_begins_with_what_it_is_told_and_nothing_else(tmp_path, models):
    """A name that was never loaded is in the index alone."""
    put(models, "other", 1)
    with explicit(tmp_path, models, "m") as running:
        assert running.settle().ask("index")["models"] == [
            {"name": "m", "version": "1", "state": "READY"},
            {"name": "other"},
        ]
        assert running.ask("index", ready=True)["models"] == [{"name": "m", "version": "1", "state": "READY"}]
        assert running.ask("load", name="other") == {"ok": True}
        assert running.state("other") == "READY"


def test_a_name_of_the_start_that_there_is_not_is_seen(tmp_path, models):
    """It is in the log and in the index with its reason, until it is there and loads, or is unloaded; the others load."""
    missing = f"there is no model 'typo' in {models}"
    with explicit(tmp_path, models, "m", "typo", "../x") as running:
        failures = running.ask("wait_settled")["failures"]
        assert (sorted(failures), failures["typo"]) == (["../x", "typo"], missing)
        assert f"model 'typo' is not loaded: {missing}" in running.log
        assert running.index()["typo", ""] == {"name": "typo", "state": "UNAVAILABLE", "reason": missing}
        assert running.state() == "READY"
        assert running.ask("unload", name="../x")["ok"]
        put(models, "typo", 1)
        assert running.ask("load", name="typo") == {"ok": True}
        assert running.ask("status")["failures"] == {}
        assert sorted(running.index()) == [("m", "1"), ("typo", "1")]
        assert sorted(each.name for each in (running.run / "models").iterdir()) == ["m", "typo"]


def test_a_star_loads_everything(tmp_path, models):
    """Under explicit control; a name beside it that there is not is seen as well."""
    put(models, "other", 1)
    with explicit(tmp_path, models, "*", "typo") as running:
        assert list(running.ask("wait_settled")["failures"]) == ["typo"]
        assert (running.state("m"), running.state("other")) == ("READY", "READY")


def test_no_control_loads_everything_and_takes_no_orders(tmp_path, models):
    """One broken model does not stop the others; the API is refused, and what is served stays."""
    put(models, "bad", 1, fail="boom")
    (models / "empty").mkdir()
    with supervisor(tmp_path, repositories=(str(models),)) as running:
        failures = running.ask("wait_settled")["failures"]
        assert sorted(failures) == ["bad", "empty"]
        for op in ("load", "unload"):
            answer = running.ask(op, name="m")
            assert (answer["ok"], answer["status"]) == (False, 503)
            assert answer["error"].startswith("explicit model load / unload is not allowed")
        assert running.state() == "READY"
        assert running.index()["bad", "1"]["reason"] == "boom"
        assert "at least one version must be available" in running.index()["empty", ""]["reason"]


def test_an_unchanged_model_is_not_touched(tmp_path, models):
    """A load of it answers at once; with `force` it is replaced all the same."""
    with explicit(tmp_path, models) as running:
        before = running.settle().pids()
        assert running.ask("load", name="m") == {"ok": True}
        assert running.pids() == before
        assert running.ask("load", name="m", force=True) == {"ok": True}
        wait_until(lambda: not lives(before[0]), "the old one to go")
        assert running.link() == "1.2"


def test_a_change_is_served_without_a_gap(tmp_path, models):
    """The old copy serves until the new one is ready, finishes what it has, and goes; no request fails."""
    with explicit(tmp_path, models) as running:
        running.settle()
        with Callers(running) as callers:
            for turn in range(5):
                put(models, "m", 1, print=f"turn {turn}")
                assert running.ask("load", name="m") == {"ok": True}
            last = len(callers.answers)
            wait_until(lambda: len(callers.answers) > last + 10, "more answers")
        assert callers.failures == []
        wait_until(lambda: len(processes_of(running.run)) == 1, "the old ones to go")
        assert len(set(callers.answers)) > 3
        assert running.link() == "1.6"


def test_a_new_version_takes_over_and_the_old_one_is_known(tmp_path, models):
    """The policy says which are served; under it unchanged versions keep their processes."""
    with explicit(tmp_path, models) as running:
        first = running.settle().pids()
        put(models, "m", 2)
        running.ask("load", name="m")
        assert (running.link(), running.link(version="1"), running.known()) == ("2.2", None, ["1"])
        wait_until(lambda: running.state(version="1") == "UNAVAILABLE", "the old one to go")
        assert not lives(first[0])
        second = running.pids(number="2")
        put(models, "m", 2, "versions: all\n")
        (models / "m" / "2" / "behaviour.json").write_text("{}")
        put(models, "m", 10)
        running.ask("load", name="m")
        assert (running.link(), running.link(version="1"), running.known()) == ("10.5", "1.3", [])
        wait_until(lambda: len(running.pids(number="2")) == 1, "the old one to go")
        third = running.pids(number="2")
        running.ask("load", name="m")
        assert running.pids(number="2") == third
        assert second != third  # its file was written anew


def test_a_failing_change_leaves_what_serves_and_says_why_each_time(tmp_path, models):
    """Every try is a true one; once the files are right again the model is replaced."""
    with explicit(tmp_path, models) as running:
        before = running.settle().pids()
        put(models, "m", 1, fail="boom")
        for _ in range(2):
            answer = running.ask("load", name="m")
            assert (answer["ok"], answer["status"]) == (False, 400)
            assert answer["error"] == "load failed for model 'm': version 1 is at UNAVAILABLE state: boom"
        assert running.pids() == before
        assert running.index()["m", "1"]["reason"] == "the last load failed: boom"
        (models / "m/1/model.py").write_text("nonsense(")
        assert "model.py: line 1" in running.ask("load", name="m")["error"]
        assert running.state() == "READY"
        put(models, "m", 1)
        assert running.ask("load", name="m") == {"ok": True}
        assert running.index()["m", "1"] == {"name": "m", "version": "1", "state": "READY"}
        assert running.pids() != before
        assert running.log.count("m/1: loading") == 4


def test_a_reason_goes_with_what_it_was_the_reason_for(tmp_path, models):
    """The index has the last load's: not that of a version which is not to be served any more, nor that of an earlier failure."""
    good = {"name": "m", "version": "1", "state": "READY"}
    with explicit(tmp_path, models) as running:
        running.settle()
        put(models, "m", 2, fail="boom")
        assert "boom" in running.ask("load", name="m")["error"]
        assert running.index()["m", "2"]["reason"] == "boom"
        shutil.rmtree(models / "m/2")
        assert running.ask("load", name="m") == {"ok": True}
        assert running.ask("index")["models"] == [good]
        (models / "m/model.yaml").write_text("nonsense: 1\n")
        assert "nonsense" in running.ask("load", name="m")["error"]
        assert "nonsense" in running.index()["m", "1"]["reason"]
        (models / "m/model.yaml").unlink()
        assert running.ask("load", name="m") == {"ok": True}
        assert running.ask("index")["models"] == [good]
        assert running.version()["trace"] == ""
        assert running.ask("status")["models"][0]["reason"] == ""


def test_the_reason_of_a_model_that_is_not_served_is_that_of_the_last_try(tmp_path, models):
    """Whether it was its code or its configuration, and also after an unload; an unload leaves none of them."""
    put(models, "m", 1, fail="boom")
    with explicit(tmp_path, models) as running:
        running.settle()
        assert running.index()["m", "1"]["reason"] == "boom"
        for unloaded in (False, True):
            if unloaded:
                assert running.ask("unload", name="m")["ok"]
                assert running.index()["m", "1"]["reason"] == "unloaded"
            (models / "m/model.yaml").write_text("nonsense: 1\n")
            assert "nonsense" in running.ask("load", name="m")["error"]
            assert "nonsense" in running.index()["m", "1"]["reason"]
        (models / "m/model.yaml").unlink()
        put(models, "m", 1)
        assert running.ask("load", name="m") == {"ok": True}
        assert running.index()["m", "1"] == {"name": "m", "version": "1", "state": "READY"}


@pytest.mark.parametrize(("file", "text"), [("1/model.py", "nonsense("), ("model.yaml", "nonsense: 1\n")])
def test_a_version_whose_files_cannot_be_meant_is_known_and_failed(tmp_path, models, file, text):
    """As one whose code fails: in the index and for the workers with its reason, from its first load on."""
    (models / "m" / file).write_text(text)
    with explicit(tmp_path, models) as running:
        running.settle()
        (row,) = running.ask("index")["models"]
        assert (row["version"], row["state"]) == ("1", "UNAVAILABLE")
        assert file in row["reason"]
        assert (running.run / "models/m/known").read_text() == f"1 {row['reason']}\n"
        (models / "m" / file).unlink()
        put(models, "m", 1)
        assert running.ask("load", name="m") == {"ok": True}
        assert running.ask("index")["models"] == [{"name": "m", "version": "1", "state": "READY"}]


def test_one_failing_version_fails_the_load_of_all(tmp_path, models):
    """Nothing of the new ones is left, and each says which one it was."""
    put(models, "m", 1, "versions: all\n")
    put(models, "m", 2, fail="boom")
    with explicit(tmp_path, models) as running:
        running.ask("wait_settled")
        assert running.index()["m", "2"]["reason"] == "boom"
        assert running.index()["m", "1"]["reason"] == "version 2 is at UNAVAILABLE state: boom"
        assert processes_of(running.run) == []
        put(models, "m", 2)
        assert running.ask("load", name="m") == {"ok": True}
        assert (running.state(version="1"), running.state(version="2")) == ("READY", "READY")


def test_an_override_holds_for_later_loads_until_the_unload(tmp_path, models):
    """With files of its own, which are gone after it."""
    code = base64.b64encode(CODE.encode()).decode()
    said = {"config": json.dumps({"instances": 2}), "file:7/model.py": code}
    with explicit(tmp_path, models) as running:
        running.settle()
        assert running.ask("load", name="m", parameters=said) == {"ok": True}
        assert (running.link(), len(running.pids(number="7"))) == ("7.2", 2)
        assert running.ask("load", name="m") == {"ok": True}
        assert running.link() == "7.2"
        assert len(list((running.run / "overrides").iterdir())) == 1
        running.ask("unload", name="m")
        assert list((running.run / "overrides").iterdir()) == []
        assert running.ask("load", name="m") == {"ok": True}
        assert running.link() == "1.3"


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"config": "{"}, "config: is no JSON"),
        ({"file:1/model.py": ""}, "a load with files needs the parameter config"),
        ({"config": "{}", "file:../x": ""}, "a relative path of plain names is needed"),
        ({"other": 1}, "other: no such parameter"),
    ],
)
def test_a_load_that_cannot_be_meant_is_refused_and_changes_nothing(tmp_path, models, parameters, error):
    """What serves goes on, and no file is left."""
    with explicit(tmp_path, models) as running:
        before = running.settle().pids()
        answer = running.ask("load", name="m", parameters=parameters)
        assert error in answer["error"]
        assert answer["status"] == 400
        assert running.pids() == before
        assert list((running.run / "overrides").iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "", "n" * 300])
def test_a_name_that_is_none_costs_nothing(tmp_path, models, name):
    """It is refused, and nothing of it is kept."""
    with explicit(tmp_path, models) as running:
        running.settle()
        assert running.ask("load", name=name)["ok"] is False
        assert running.ask("unload", name=name)["unloaded"]["processes"] == 0
        assert [each["name"] for each in running.ask("status")["models"]] == ["m"]


# --- orders of operations -----------------------------------------------------------------------------------------


def test_operations_on_one_name_are_done_in_their_order_and_the_last_word_wins(tmp_path, models):
    """An unload that waits for a request, a load and a load of what has changed since end with the last load."""
    gate = tmp_path / "gate"
    with explicit(tmp_path, models) as running:
        running.settle()
        with running.connect() as sock:
            sock.sendall(f"hold {gate}\n".encode())
            unload = running.later("unload", name="m")
            wait_until(lambda: running.state() == "UNLOADING", "the unload to begin")
            loads = []
            for number in (1, 2):
                loads.append(running.later("load", name="m"))
                wait_until(lambda n=number: running.log.count("m: a load is asked for") == n, "a load to be taken")
            put(models, "m", 2)
            assert not any(each.is_done for each in (unload, *loads))
            gate.touch()
            assert [each.result()["ok"] for each in (unload, *loads)] == [True] * 3
        assert running.link() == "2.2"
        wait_until(lambda: len(processes_of(running.run)) == 1, "the old ones to go")


def test_an_unload_gives_up_the_loads_before_it(tmp_path, models):
    """Also one that hangs, and one that waits for its turn: they are refused, and nothing of them is left; a load after it loads."""
    gate = tmp_path / "gate"
    with explicit(tmp_path, models) as running:
        before = running.settle().pids()
        put(models, "m", 1, waits_for=str(gate))
        loads = [running.later("load", name="m")]
        wait_until(lambda: running.log.count("[m/1 0] loaded") == 2, "the first to load")
        loads.append(running.later("load", name="m", force=True))
        wait_until(lambda: running.log.count("m: a load is asked for") == 2, "the second to be taken")
        assert running.ask("unload", name="m")["ok"]
        for each in loads:
            assert each.result()["status"] == 400
            assert each.result()["error"] == "load failed for model 'm': an unload of it was asked for meanwhile"
        assert not any(lives(each) for each in before)
        assert processes_of(running.run) == []
        assert running.index()["m", "1"]["reason"] == "unloaded"
        gate.touch()
        assert running.ask("load", name="m") == {"ok": True}
        assert running.link() == "1.3"


def test_different_names_load_side_by_side_up_to_a_number(tmp_path, models):
    """`load_threads`; a name that has to wait is loaded then."""
    gate = tmp_path / "gate"
    for name in ("a", "b", "c"):
        put(models, name, 1, waits_for=str(gate))
    with explicit(tmp_path, models, load_threads=2) as running:
        running.settle()
        loads = [running.later("load", name=name) for name in ("a", "b", "c")]
        wait_until(lambda: running.log.count(" loaded\n") == 3, "two to load")
        assert running.log.count(": loading (") == 3
        assert running.state() == "READY"
        gate.touch()
        assert [each.result()["ok"] for each in loads] == [True] * 3


def test_a_client_that_hangs_up_cancels_nothing(tmp_path, models):
    """The load goes on."""
    with explicit(tmp_path, models) as running:
        running.settle()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(running.run / "supervisor.sock"))
            client.sendall(b'{"op": "load", "name": "m", "force": true}\n')
            wait_until(lambda: running.log.count("m/1: loading") == 2, "the load to begin")
        wait_until(lambda: running.link() == "1.2", "the load to end")


def test_what_is_no_request_is_answered(tmp_path):
    """With what is wrong; the connection stays."""
    with supervisor(tmp_path, single()) as running, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(running.run / "supervisor.sock"))
        answers = [json.loads(heard(client, text)) for text in ("nonsense", '{"op": "dance"}', '{"op": "index"}')]
        assert [each["ok"] for each in answers] == [False, False, True]
        assert answers[1]["error"].startswith("op: there is no 'dance'; there are index, load, unload")


def test_everything_that_is_served_is_loaded_anew_at_once(tmp_path, models):
    """`reload`, under every control; failures are told by name, and leave the old ones."""
    put(models, "bad", 1)
    with supervisor(tmp_path, single("alone"), repositories=(str(models),)) as running:
        running.settle()
        before = running.pids("bad")
        put(models, "bad", 1, fail="boom")
        failures = running.ask("reload")["failures"]
        assert failures == {"bad": "load failed for model 'bad': version 1 is at UNAVAILABLE state: boom"}
        assert running.pids("bad") == before
        assert running.link("m") != "1.1"
        assert running.state("alone") == "READY"


# --- poll ---------------------------------------------------------------------------------------------------------


def test_polling_follows_the_files(tmp_path, models):
    """New models, changed ones, broken ones, which stop no other, and those that go."""
    put(models, "going", 1)
    with supervisor(tmp_path, repositories=(str(models),), control="poll", poll_seconds=0.05) as running:
        before = running.settle().pids()
        put(models, "new", 1)
        put(models, "bad", 1, fail="boom")
        put(models, "m", 2)
        for path in sorted((models / "going").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (models / "going").rmdir()
        wait_until(lambda: running.state("new") == "READY", "the new one")
        wait_until(lambda: running.link() is not None and running.link().startswith("2."), "the changed one")
        wait_until(lambda: running.state("bad") == "UNAVAILABLE", "the broken one")
        wait_until(lambda: ("going", "1") not in running.index() and not lives(before[0]), "what has gone to go")
        assert not (running.run / "models/going").exists()
        put(models, "bad", 1)
        wait_until(lambda: running.state("bad") == "READY", "the broken one to be mended")
        assert running.log.count("bad/1: loading") == 2


# --- supervisors that die -----------------------------------------------------------------------------------------


def test_a_repository_that_is_away_takes_no_model_along(tmp_path, models):
    """What is loaded stays loaded, the index answers, and what has changed meanwhile is seen once it is back."""
    with supervisor(tmp_path, repositories=(str(models),), control="poll", poll_seconds=0.05) as running:
        running.settle()
        before = running.pids()
        models.rename(tmp_path / "away")
        wait_until(lambda: "models cannot be read: No such file" in running.log, "the outage to be seen")
        put(tmp_path / "away", "late", 1)
        assert (running.state(), running.say("pid")) == ("READY", str(before[0]))
        (tmp_path / "away").rename(models)
        wait_until(lambda: running.state("late") == "READY", "the new model")
        assert running.pids() == before
        assert "models is back" in running.log


def test_a_folder_that_hangs_is_its_models_failure_and_holds_up_nobody_else(tmp_path, models):
    """The others are loaded, the index answers, polling goes on, the server stops; and it is served once it can be read."""
    put(models, "slow", 1, config="threads: 1")
    with (
        hanging(models / "slow/model.yaml") as let_go,
        supervisor(
            tmp_path, repositories=(str(models),), control="poll", poll_seconds=0.05, reading_timeout=0.5
        ) as running,
    ):
        wait_until(lambda: running.state() == "READY", "the other model")
        running.settle()
        assert running.index()["slow", ""]["reason"] == (
            "model 'slow': reading its files has taken more than 0.5 s; is a disk or a network away?"
        )
        put(models, "new", 1)
        wait_until(lambda: running.state("new") == "READY", "the new model")
        let_go()
        put(models, "slow", 1, config="threads: 2")
        wait_until(lambda: running.state("slow") == "READY", "the folder to be read")


def test_a_supervisor_stops_while_a_folder_hangs(tmp_path, models):
    """Nothing waits for the disk."""
    put(models, "slow", 1, config="threads: 1")
    with (
        hanging(models / "slow/model.yaml"),
        supervisor(tmp_path, repositories=(str(models),), control="none") as running,
    ):
        wait_until(lambda: running.state() == "READY", "the other model")
        assert running.stop() == 0


def test_a_supervisor_that_is_killed_takes_its_instances_along_and_the_next_one_goes_on(tmp_path, models):
    """What was loaded through the API is loaded again, with its override; what was unloaded is not; no stray is left."""
    pids = tmp_path / "pids"
    put(models, "m", 1, spawn="session", pids=str(pids))
    put(models, "other", 1)
    orders = {"repositories": (str(models),), "control": "explicit", "load_model": ("other",)}
    first = start(tmp_path / "run", **orders)
    first.wait_open()
    first.settle()
    assert first.ask("unload", name="other")["ok"]
    assert first.ask("load", name="m", parameters={"config": json.dumps({"parameters": {"print": "overridden"}})})["ok"]
    instance, stray = first.pids()[0], int(pids.read_text())
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    wait_until(lambda: not lives(instance), "the instance to go with it")
    assert lives(stray)
    with supervisor(tmp_path, **orders) as running:
        assert not lives(stray)
        assert running.settle().link() == "1.3"
        assert "other" not in [each["name"] for each in running.ask("status")["models"]]
        assert running.log.count("[m/1 0] overridden") == 2


def test_another_server_begins_afresh_in_a_run_directory_that_was_left_behind(tmp_path, models):
    """What the one before had loaded is none of its business."""
    orders = {"repositories": (str(models),), "control": "explicit"}
    first = start(tmp_path / "run", parent=0, **orders)
    first.wait_open()
    assert first.ask("load", name="m")["ok"]
    first.process.kill()
    first.process.wait()
    with supervisor(tmp_path, **orders) as running:
        running.settle()
        assert running.ask("index")["models"] == [{"name": "m"}]
        assert not (running.run / "models").exists()


def test_cycles_leave_nothing(tmp_path, models):
    """Loads and unloads, and replacements: as many descriptors and children as before, and one generation's files."""
    with explicit(tmp_path, models) as running:
        before = standing(running.settle())
        descriptors = open_descriptors(running)
        for _ in range(5):
            assert running.ask("load", name="m", force=True)["ok"]
            assert running.ask("unload", name="m")["unloaded"]["memory_after"] == 0
            assert running.ask("load", name="m")["ok"]
        assert standing(running) == before
        # That of a client that has just gone is closed in its turn.
        wait_until(lambda: open_descriptors(running) <= descriptors, "descriptors to be closed")


def standing(running):
    """How many children the supervisor has, and files in its run directory."""
    pid = running.process.pid
    children = [child for child, found in kernel.processes() if found.parent == pid]
    files = [each for each in running.run.rglob("*") if not each.is_dir()]
    return len(children), len(files)


def open_descriptors(running):
    return len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))


def test_no_load_is_begun_once_the_stop_is_announced(tmp_path, models):
    """USR1: who waits for a load and who asks for one is told; what serves goes on until TERM, and can be unloaded."""
    put(models, "b", 1, hang=True)
    with explicit(tmp_path, models) as running:
        running.settle()
        waiting = running.later("load", name="b")
        wait_until(lambda: running.state("b") == "LOADING", "the load")
        running.process.send_signal(signal.SIGUSR1)
        refusal = {"ok": False, "error": "the server is stopping", "status": 503, "reason": "UNAVAILABLE"}
        assert waiting.result() == running.ask("load", name="m") == running.ask("reload") == refusal
        assert running.say("pid").isdecimal()
        assert running.ask("unload", name="m")["ok"]
