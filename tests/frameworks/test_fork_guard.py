"""Real frameworks under `preload_app`: each either serves or is refused in words. `.ci/frameworks` installs and runs this.

Fork safety of each without the guard: docs/preload.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from frameworks.models import FRAMEWORKS, MOMENTS, source
from running import Running, serving, wait_until

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

RUN, LOAD, IMPORT, IN_LOAD = MOMENTS
BUDGET = "2"
ENV = {"OMP_NUM_THREADS": BUDGET, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
REFUSED = {
    "tensorflow": "TensorFlow",
    "keras": "TensorFlow",
    "onnxruntime": "ONNX Runtime",
    "onnxruntime-parallel": "ONNX Runtime",
}
"""What cannot be built in the master, and how the message calls it."""

OWN_POOLS = {**REFUSED, "onnxruntime-one": "", "forest": "", "logistic": ""}
"""What does not compute with OpenMP."""


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with every framework's saved model."""
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([sys.executable, str(Path(__file__).parent / "models.py"), str(folder)], check=True, timeout=600)
    return folder


def settle(running: Running) -> bool:
    """Wait until the server is ready or has ended; whether it is ready."""
    wait_until(lambda: running.process.poll() is not None or running.accepts(), "an end or an open port", 240)
    return running.process.poll() is None


def answers(running: Running) -> dict[int, dict]:
    """What each of the two workers says of itself."""
    told: dict[int, dict] = {}

    def ask() -> bool:
        with running.client() as client:
            answer = client.post("/predict", json={"data": {"ndarray": [[1.0]]}}, timeout=120)
        assert answer.status_code == 200, running.log
        told.setdefault(answer.json()["jsonData"]["pid"], answer.json()["jsonData"])
        return len(told) == 2

    wait_until(ask, "both workers", 120)
    return told


def is_refused(framework: str, moment: str) -> bool:
    return moment in {RUN, LOAD} and framework in REFUSED


CELLS = [
    (framework, moment, threads)
    for framework in FRAMEWORKS
    for moment in MOMENTS
    for threads in ("0", "1")
    if threads == "0" or not is_refused(framework, moment)
]
"""Inline, where `predict` runs in the thread that forked, and on a model thread."""


@pytest.mark.parametrize(("framework", "moment", "threads"), CELLS)
def test_a_preloaded_framework_serves_or_is_refused_in_words(framework, moment, threads, saved, tmp_path):
    """With two preloaded workers: an answer from each with its full thread budget, or exit code 3 and the line to move."""
    flags = ["--preload-app", "--workers", "2", "--threads", threads]
    with serving(tmp_path, source(framework, moment, saved), *flags, env=ENV, ready=False) as running:
        if is_refused(framework, moment):
            assert not settle(running), running.log
            assert running.process.returncode == 3
            assert REFUSED[framework] in running.log
            assert re.search(r"It began at Model\.py:\d+: return (tf|keras|onnxruntime)\.", running.log), running.log
            assert "Move it to load()" in running.log
            return
        assert settle(running), running.log
        for told in answers(running).values():
            assert told["finite"]
            assert set(told["openmp"].values()) <= {int(BUDGET)}
            assert told["torch"] in {None, int(BUDGET)}
            if framework not in OWN_POOLS:
                assert any("gomp" in library for library in told["pools"]), told
        assert running.stop() == 0
