"""`prefork init`: a project that runs as it was written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prefork import scaffold
from prefork.errors import SettingError
from running import SOURCE, Running, free_port

ROOT = Path(__file__).parents[1]
ENV = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_template_is_the_one_at_the_root_of_the_repository():
    """There is one copy: the package's is a link to user_model_template/, which a wheel carries as files."""
    assert scaffold.TEMPLATE.resolve() == ROOT / "user_model_template"
    assert scaffold.TEMPLATE.is_symlink()


def test_every_file_of_the_template_is_written():
    """What is tracked in the template is what a project gets: nothing is forgotten, nothing more is copied."""
    made = {"model.joblib"}
    kept = (path for path in scaffold.TEMPLATE.resolve().rglob("*") if path.is_file())
    names = {str(path.relative_to(scaffold.TEMPLATE.resolve())) for path in kept if "cache" not in str(path)}
    assert names - made == set(scaffold.FILES)


def test_the_project_has_the_name_that_was_asked_for(tmp_path):
    """The class, its file, its test and its settings are named; words that merely contain it are not."""
    written = scaffold.init("Fraud", tmp_path / "Fraud")
    assert sorted(str(path.relative_to(tmp_path / "Fraud")) for path in written) == sorted(
        ["Fraud.py", "test_Fraud.py", "train.py", "prefork.yaml", "requirements.txt", "Dockerfile", ".dockerignore", ".s2i/environment"]
    )  # fmt: skip
    texts = {path.name: path.read_text() for path in written}
    assert "class Fraud:" in texts["Fraud.py"]
    assert "from Fraud import Fraud" in texts["test_Fraud.py"]
    assert "model: Fraud" in texts["prefork.yaml"]
    assert "MODEL_NAME=Fraud" in texts["environment"]
    assert "load_iris" in texts["train.py"]
    assert not any("Iris" in text for text in texts.values())


@pytest.mark.parametrize("name", ["3x", "a-b", "class", "", "a.b", "json", "train", "prefork"])
def test_a_name_that_cannot_be_a_model(tmp_path, name):
    """No identifier, a keyword, or the name of a module that would be found first: refused, and nothing written."""
    with pytest.raises(SettingError):
        scaffold.init(name, tmp_path / "project")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    """A file that is there stops it before it writes any."""
    (tmp_path / "train.py").write_text("mine")
    with pytest.raises(SettingError, match="nothing was written"):
        scaffold.init("Fraud", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert (tmp_path / "train.py").read_text() == "mine"


def test_a_directory_that_cannot_be_made(tmp_path):
    """What the file system refuses is one line."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match="file"):
        scaffold.init("Fraud", tmp_path / "file" / "project")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project written by the command itself."""
    folder = tmp_path_factory.mktemp("init")
    command = [sys.executable, "-m", "prefork", "init", "Fraud"]
    done = subprocess.run(command, cwd=folder, env=ENV, capture_output=True, text=True, check=True)
    assert "prefork serve" in done.stdout
    return folder / "Fraud"


def test_the_project_passes_its_own_test(project):
    """`pytest` in a new project passes, with pytest's own defaults."""
    command = [sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(command, check=False, cwd=project, env=ENV, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.parametrize("trained", [False, True])
def test_the_project_serves(project, tmp_path, trained):
    """`prefork serve` in a new project answers a prediction, before and after `python train.py`."""
    folder = tmp_path / "copy"
    shutil.copytree(project, folder)
    if trained:
        subprocess.run([sys.executable, "train.py"], cwd=folder, env=ENV, check=True, capture_output=True)
        assert (folder / "model.joblib").stat().st_size > 0
    port, log = free_port(), folder / "server.log"
    command = [sys.executable, "-m", "prefork", "serve", "--bind", f"127.0.0.1:{port}"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=ENV, stdout=out, stderr=out)
    running = Running(process, port, log)
    try:
        running.wait_ready()
        with running.client() as client:
            answer = client.post("/predict", json={"data": {"ndarray": [[5.1, 3.5, 1.4, 0.2]]}}).json()
        assert answer["data"]["names"] == ["setosa", "versicolor", "virginica"]
        assert answer["data"]["ndarray"][0][0] > 0.9
        assert answer["meta"]["tags"] == {"confident": True}
    finally:
        assert running.stop() == 0
