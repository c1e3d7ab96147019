"""`seldon-core-microservice`: Seldon's command line and variables start this server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from prefork import microservice as microservice_command
from prefork import settings
from running import SOURCE, Running, free_port

COMMAND = [sys.executable, "-c", "from prefork.microservice import main; main()"]
ENV = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
MODEL = """
import os

class Model:
    def __init__(self, depth=0):
        self.depth = depth
    def predict(self, X, names=None):
        return {"pid": os.getpid(), "parent": os.getppid(), "depth": self.depth, "omp": os.environ["OMP_NUM_THREADS"]}
"""
EVERY_FLAG = (
    "--service-type MODEL --persistence 0 --parameters [] --log-level INFO --debug false --tracing 0 --workers 1 --threads 1 "
    "--max-requests 0 --max-requests-jitter 0 --keepalive 2 --single-threaded 0 --http-port {port} --grpc-port 5000 "
    "--metrics-port {metrics} --access-log false --grpc-threads 1 --grpc-workers 0"
)
"""Every flag of Seldon's but --pidfile, whose value is a path."""


def microservice(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *args]
    return subprocess.run(command, check=False, cwd=cwd, env={**ENV, **env}, capture_output=True, text=True, timeout=60)


@contextmanager
def started(folder: Path, *args: str, **env: str) -> Iterator[Running]:
    (folder / "Model.py").write_text(MODEL)
    port, metrics, log = free_port(), free_port(), folder / "server.log"
    command = [*COMMAND, *(arg.format(port=port, metrics=metrics) for arg in args)]
    env = {"PREDICTIVE_UNIT_METRICS_SERVICE_PORT": "0", **env}  # 6000 may be taken
    said = {name: value.format(port=port, metrics=metrics) for name, value in env.items()}
    full = {**ENV, "PREFORK_ADDRESS": "127.0.0.1", **said}
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=full, stdout=out, stderr=out)
    running = Running(process, port, log)
    running.metrics = f"http://127.0.0.1:{metrics}"
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


def predicted(running: Running) -> dict:
    with running.client() as client:
        return client.post("/predict", json={"data": {"ndarray": [[1]]}}).json()["jsonData"]


@pytest.mark.parametrize("args", [["Model", "REST"], ["Model", "--grpc-prot", "1"], ["Model", "--bogus=1"]])
def test_an_unknown_argument_ends_it_with_255(tmp_path, args):
    """Seldon's exit code for what its command does not know, with one line."""
    done = microservice(*args, cwd=tmp_path)
    assert done.returncode == 255
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([], "Missing argument 'INTERFACE_NAME'"),
        (["Model", "--service-type", "NONE"], "Invalid value for '--service-type': 'NONE' is not one of 'MODEL'"),
        (["Model", "--workers", "x"], "--workers x: "),
        (["Model", "--debug", "false", "--parameters", "[{}]"], "--parameters: {}: "),
    ],
)
def test_what_cannot_be_meant(tmp_path, args, line):
    """A bad value is one line and exit code 2."""
    done = microservice(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"prefork: {line}")


def test_every_flag_of_seldons_is_taken(tmp_path):
    """With every flag given the server starts; gRPC's, which do nothing here, are said in one line, falsehoods are not."""
    args = ("Model", *EVERY_FLAG.split(), "--pidfile", str(tmp_path / "pid"))
    with started(tmp_path, *args) as running:
        assert predicted(running)["depth"] == 0
        assert httpx.get(f"{running.metrics}/metrics").status_code == 200
        assert (tmp_path / "pid").read_text().strip() == str(running.process.pid)
    lines = [line for line in running.log.splitlines() if "not used" in line]
    assert len(lines) == 1
    assert "--grpc-port, --grpc-threads, --grpc-workers" in lines[0]
    assert not any(name in lines[0] for name in ("debug", "tracing", "persistence"))


def test_the_operators_variables(tmp_path):
    """What Seldon's operator puts into the environment is enough: the ports, the parameters and the names of the unit."""
    env = {
        "PREDICTIVE_UNIT_SERVICE_PORT": "1",
        "PREDICTIVE_UNIT_HTTP_SERVICE_PORT": "{port}",
        "PREDICTIVE_UNIT_GRPC_SERVICE_PORT": "9500",
        "PREDICTIVE_UNIT_METRICS_SERVICE_PORT": "{metrics}",
        "PREDICTIVE_UNIT_METRICS_ENDPOINT": "/prometheus",
        "PREDICTIVE_UNIT_ID": "unit",
        "PREDICTIVE_UNIT_IMAGE": "image:1",
        "PREDICTOR_ID": "default",
        "PREDICTOR_LABELS": '{{"version": "v2"}}',
        "SELDON_DEPLOYMENT_ID": "dep",
        "SELDON_EXECUTOR_ENABLED": "true",
        "GRPC_WORKERS": "0",
    }
    os_parameters = '[{{"name": "depth", "type": "INT", "value": "3"}}]'
    with (
        started(tmp_path, "Model", PREDICTIVE_UNIT_PARAMETERS=os_parameters, **env) as running,
        running.client() as client,
    ):
        answer = client.post("/predict", json={"data": {"ndarray": [[1]]}}).json()
        client.post("/send-feedback", json={"reward": 0.5})
        page = httpx.get(f"{running.metrics}/prometheus").text
    assert answer["jsonData"]["depth"] == 3
    assert answer["meta"]["requestPath"] == {"unit": "image:1"}
    (line,) = [line for line in page.splitlines() if line.startswith("seldon_api_model_feedback_reward_total{")]
    labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
    assert line.endswith(" 0.5")
    assert labels == {
        "deployment_name": "dep",
        "image_name": "image",
        "image_version": "1",
        "method": "feedback",
        "model_image": "image",
        "model_name": "unit",
        "model_version": "1",
        "predictor_name": "default",
        "predictor_version": "v2",
        "seldon_deployment_name": "dep",
    }


def test_the_metrics_are_on_port_6000():
    """Where nothing is said, the metrics have the port that Seldon's have."""
    assert settings.load({"model": "Model"}, {}, defaults=microservice_command._DEFAULTS).metrics_port == 6000


def test_one_worker_is_the_default(tmp_path):
    """Seldon's default is one worker, not the four of `prefork serve`: an image keeps its memory."""
    with started(tmp_path, "Model", "--http-port", "{port}") as running:
        children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
        assert children == [str(predicted(running)["pid"])]


def test_the_log_level_of_the_environment_beats_the_flag(tmp_path):
    """SELDON_LOG_LEVEL wins over --log-level, as it does there."""
    args = ("Model", "--http-port", "{port}")
    with started(tmp_path, *args, "--log-level", "ERROR", SELDON_LOG_LEVEL="DEBUG") as running:
        loud = len(running.log)
    with started(tmp_path, *args, "--log-level", "DEBUG", SELDON_LOG_LEVEL="ERROR") as running:
        assert len(running.log) < loud
    assert "INFO" not in running.log
