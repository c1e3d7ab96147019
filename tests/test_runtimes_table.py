"""Runtimes by name: ours, and those that other packages add by an entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prefork.errors import ModelLoadError
from prefork.runtimes import table
from prefork.runtimes.recognition import recognise
from running import launched

ADDED = """
import numpy as np
from prefork.model.tensor_inputs import Tensors
from prefork.payload import TensorSpec
from prefork.runtimes.runtime import Opened, Runtime

def opened(path, options):
    factor = float(path.read_text().split()[1])
    return Opened(
        takes=Tensors((TensorSpec("FP64", (-1,), "x"),)),
        run=lambda given, parameters: {"y": given["x"] * factor},
        outputs=(TensorSpec("FP64", (-1,), "y"),),
    )

RUNTIME = Runtime(
    name="{name}", platform="times", extra="", open=opened,
    recognises=lambda path: path.is_file() and path.read_bytes()[:6] == b"times ",
)
"""


def distribution(site: Path, name: str = "times", value: str = "times_runtime:RUNTIME") -> None:
    """An installed package, as pip leaves it."""
    info = site / f"{name}_runtime-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-runtime\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[prefork.runtimes]\n{name} = {value}\n")
    (site / "times_runtime.py").write_text(ADDED.replace("{name}", name))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages that is looked at while the test runs."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    table.runtimes.cache_clear()
    yield tmp_path / "site"
    sys.modules.pop("times_runtime", None)
    table.runtimes.cache_clear()


def test_a_package_adds_a_runtime(site, tmp_path):
    """It is listed, found by name, and asked about files."""
    distribution(site)
    (tmp_path / "m").write_text("times 3")
    assert table.find("times").platform == "times"
    assert recognise(tmp_path / "m").runtime == "times"


def test_a_package_does_not_take_our_names(site):
    """Ours come first."""
    distribution(site, "onnx")
    assert table.find("onnx").platform == "onnxruntime_onnx"


@pytest.mark.parametrize(
    ("value", "words"),
    [("gone_module:RUNTIME", "cannot be imported"), ("times_runtime:opened", "is a function, not a Runtime")],
)
def test_an_entry_point_that_is_wrong_is_named(site, value, words):
    """The server says which, and does not start without it."""
    distribution(site, value=value)
    with pytest.raises(ModelLoadError, match=words) as raised:
        table.runtimes()
    assert value in str(raised.value)


def test_a_packages_runtime_serves(tmp_path):
    """A whole server with it, told by the file's content."""
    distribution(tmp_path / "site")
    (tmp_path / "m").write_text("times 3")
    path = f"{tmp_path / 'site'}:{Path(__file__).parents[1] / 'server'}"
    with launched(tmp_path, "./m", "--workers", "1", env={"PYTHONPATH": path}) as server, server.client() as client:
        answer = client.post("/v1/models/m:predict", json={"inputs": [1.0, 2.0]}).json()
        assert answer == {"outputs": [3.0, 6.0]}
        assert client.get("/v2/models/m").json()["platform"] == "times"
