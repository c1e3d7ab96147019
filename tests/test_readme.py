"""README's first screen, followed to the letter in a fresh environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from running import free_port, wait_until

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment that finds the libraries of this one, but not Prefork itself.

    pip then has nothing to download, so that the test needs no network.
    """
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    # Python 3.11 seeds a setuptools of its own, which is too old to build from this pyproject.toml.
    subprocess.run([home / "bin" / "pip", "uninstall", "--quiet", "--yes", "setuptools"], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = [sysconfig.get_paths()["purelib"], *site.getsitepackages()]
    (home / "lib" / version / "site-packages" / "neighbours.pth").write_text("\n".join(dict.fromkeys(packages)) + "\n")
    return home


@pytest.fixture(scope="module")
def variables(environment: Path) -> dict[str, str]:
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # pip reads this switch the wrong way round: 0 turns the isolated build off.
    return {**os.environ, "PATH": path, "PIP_NO_BUILD_ISOLATION": "0", "PORT": str(free_port()), "PYTHONPATH": ""}


def test_two_commands_lead_to_a_prediction(tmp_path: Path, environment: Path, variables: dict[str, str]):
    """From a checkout, the first screen's commands end in the answer that it shows."""
    install, serve, *_ = blocks()[0].splitlines()
    curl = blocks()[1].strip()
    checkout = tmp_path / "prefork"
    leave = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=leave)
    subprocess.run(["bash", "-c", install], cwd=checkout, env=variables, check=True, timeout=300)
    assert (environment / "bin" / "prefork").exists()
    log = (tmp_path / "log").open("wb")
    server = subprocess.Popen(
        ["bash", "-c", serve], cwd=checkout, env=variables, stdout=log, stderr=log, start_new_session=True
    )
    try:
        ask = ["bash", "-c", curl.replace("9000", variables["PORT"])]
        answer: list[bytes] = []

        def answered() -> bool:
            assert server.poll() is None, (tmp_path / "log").read_text()
            answer[:] = [subprocess.run(ask, env=variables, capture_output=True, check=False).stdout]
            return bool(answer[0])

        wait_until(answered, "an answer", 90)
        data = json.loads(answer[0])["data"]
        assert data["names"] == ["setosa", "versicolor", "virginica"]
        assert data["ndarray"][0][0] > 0.9
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        log.close()


def test_first_screen_names_the_test_command():
    """The first screen has the one command that passes the tests, and CI runs the same."""
    assert blocks()[2].strip() == "make setup test"
    assert "make" in (ROOT / ".ci" / "run").read_text()
