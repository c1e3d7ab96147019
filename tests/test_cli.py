"""The `prefork` command: what it takes, what it refuses, and what is in place before the model is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from prefork import flags
from prefork.errors import SettingError
from prefork.settings import cpus
from running import SOURCE, serving

ENV = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
KSERVE = (
    "--model_name=iris --model_dir={models} --predictor_host iris-predictor.default --predictor_protocol v2 "
    "--predictor_use_ssl false --enable_grpc=false --grpc_port 8081 --max_threads 4 --enable_docs_url true "
    "--log_config_file /mnt/log.yaml --access_log_format %(message)s"
)


def prefork(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prefork", *args]
    return subprocess.run(command, check=False, cwd=cwd, env={**ENV, **env}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["serve", "Iris", "--wrokers", "2"], "No such option"),
        (["serve", "Iris", "--workers", "abc"], "--workers abc: a whole number"),
        (["serve", "Iris", "--workers"], "Option '--workers' requires an argument"),
        (["serve", "Iris", "--access-log=maybe"], "--access-log maybe: true or false"),
        (["serve", "Iris", "Other"], "Got unexpected extra argument (Other)"),
        (["serve", "--config", "none.yaml"], "none.yaml: cannot be read"),
        (["serve", "Iris", "-p", "depth"], "-p depth: "),
        (["serve", "Iris", "--parameters", "[1"], "--parameters: not JSON"),
        (["serve"], "no model to serve: name it, as in `prefork serve Iris`"),
        (["sevre"], "No such command 'sevre'"),
        (["init", "3x"], "'3x' cannot be the name of a Python class"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tmp_path, args, line):
    """An unknown flag, an impossible value, an unreadable file or no model: one line on stderr, exit code 2."""
    done = prefork(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"prefork: {line}")
    assert done.stderr.count("\n") == 1


def test_a_variable_that_cannot_be_meant_is_one_line(tmp_path):
    """The same holds for the environment."""
    done = prefork("serve", "Iris", cwd=tmp_path, GUNICORN_WORKERS="abc")
    assert done.returncode == 2
    assert done.stderr == "prefork: GUNICORN_WORKERS=abc: a whole number of at least 1 or auto is needed\n"


@pytest.mark.parametrize("model", ["Iris", "./iris.onnx", "pkg.module:Class"])
def test_a_model_that_is_not_there(tmp_path, model):
    """A class that cannot be found ends the start with exit code 3 and a line that names it."""
    done = prefork("serve", model, "--bind", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 3
    assert model.partition(":")[0].partition(".")[0] in done.stderr


def test_version(tmp_path):
    """`prefork --version` says it."""
    import prefork as package

    assert prefork("--version", cwd=tmp_path).stdout == f"prefork, version {package.__version__}\n"


def test_without_a_command_the_help_is_shown(tmp_path):
    """`prefork` alone lists its commands."""
    done = prefork(cwd=tmp_path)
    assert done.returncode == 2
    assert "serve" in done.stderr + done.stdout


def given(*args: str) -> dict[str, Any]:
    """What the settings' options make of a command line."""
    command = flags.Command("x", params=flags.of_settings(), callback=lambda **kwargs: kwargs)
    found = command.main(list(args), standalone_mode=False)
    return {name: value for name, value in found.items() if value not in (None, ())}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--access-log"], True),
        (["--no-access-log"], False),
        (["--access-log=false"], False),
        (["--access-log", "false"], False),
        (["--access-log", "ON"], True),
        (["--access_log=f"], False),
        (["--access-log", "0"], False),
    ],
)
def test_booleans(args, expected):
    """A boolean stands alone, negated, or with a value that means what it says."""
    assert given(*args) == {"access_log": expected}


def test_options_take_underscores():
    """`--http_port` is `--http-port`; values keep theirs."""
    assert given("--http_port=8080", "--model_name", "a_b", "--pid", "a_b") == {
        "port": "8080",
        "name": "a_b",
        "pidfile": "a_b",
    }


def test_a_boolean_word_that_is_none():
    """A value that is no boolean is refused where it is given with `=`."""
    with pytest.raises(SettingError, match="--reload perhaps: true or false"):
        given("--reload=perhaps")


def test_a_word_after_a_boolean_may_be_the_model(tmp_path):
    """`prefork serve --reload Iris` has the model Iris: only words of its own are a boolean's value."""
    done = prefork("serve", "--access-log", "Iris", "--bind", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 3
    assert "Iris" in done.stderr


def test_parameters_reach_the_constructor(tmp_path):
    """`--parameters` and `-p` arrive with their types."""
    source = """
        class Model:
            def __init__(self, depth, name, scale):
                self.found = [depth, name, scale]
            def predict(self, X, names=None):
                return self.found
    """
    parameters = '[{"name": "depth", "type": "INT", "value": "3"}]'
    args = ("--workers", "1", "--parameters", parameters, "-p", "name=a=b", "-p", "scale=1.5")
    with serving(tmp_path, source, *args) as running, running.client() as client:
        answer = client.post("/predict", json={"data": {"ndarray": [[1]]}}).json()
    assert answer["data"]["ndarray"] == [3, "a=b", 1.5]


THREADS = """
    import os
    import numpy as np
    from threadpoolctl import threadpool_info

    class Model:
        def predict(self, X, names=None):
            np.ones((300, 300)) @ np.ones((300, 300))
            blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
            return {"blas": blas, "omp": os.environ["OMP_NUM_THREADS"], "set": os.environ["MKL_NUM_THREADS"]}
"""


def test_each_worker_keeps_to_its_share_of_the_cpus(tmp_path, monkeypatch):
    """In a real worker numpy's BLAS has as many threads as the CPUs over the workers; a variable that was set stays."""
    for name in cpus.thread_budget(1, 1, {}):
        monkeypatch.delenv(name, raising=False)
    share = max(1, int(cpus.available() / 2))
    env = {"MKL_NUM_THREADS": "7"}
    with serving(tmp_path, THREADS, "--workers", "2", env=env) as running, running.client() as client:
        found = client.post("/predict", json={"data": {"ndarray": [[1]]}}).json()["jsonData"]
    assert found == {"blas": [share], "omp": str(share), "set": "7"}


def test_kserves_arguments(tmp_path):
    """The arguments that KServe passes and appends start the server; those without meaning are said in one line."""
    models = tmp_path / "models"
    models.mkdir()
    (models / "prefork.yaml").write_text("workers: 1\n")
    args = KSERVE.format(models=models).split()
    source = "class Model:\n    def predict(self, X, names=None):\n        return X\n"
    with serving(tmp_path, source, *args) as running, running.client() as client:
        body = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [5]}]}
        assert client.post("/v2/models/iris/infer", json=body).json()["outputs"][0]["data"] == [5]
    lines = [line for line in running.log.splitlines() if "not used" in line]
    assert len(lines) == 1
    for name in ("--predictor-host", "--predictor-use-ssl", "--enable-grpc", "--max-threads", "--access-log-format"):
        assert name in lines[0]
    assert "--model" not in lines[0]


@pytest.mark.parametrize(
    ("args", "value", "model"),
    [
        (["--preload-app", "Iris"], "true", "Iris"),
        (["--preload", "force", "Iris"], "force", "Iris"),
        (["Iris", "--preload_app=force"], "force", "Iris"),
        (["--no-preload", "Iris"], "false", "Iris"),
        (["--preload-app", "false", "Iris"], "false", "Iris"),
        (["Iris", "--preload-app"], "true", "Iris"),
        (["--", "--preload-app"], None, "--preload-app"),
        ([], None, None),
    ],
)
def test_a_switch_may_have_a_word(args, value, model):
    """`--preload-app` alone is true; a boolean or `force` behind it is its value, anything else is not."""
    seen: dict[str, Any] = {}
    params = [click.Argument(["model"], required=False), *flags.of_settings()]
    command = flags.Command("serve", callback=lambda **given: seen.update(given), params=params)
    command.main(args, standalone_mode=False)
    assert (seen["preload_app"], seen["model"]) == (value, model)
