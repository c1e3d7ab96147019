"""Repositories of small models, and servers of them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from running import Running, launched, wait_until

TOKEN = "the operator's"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}

NUMBER = """
import os

class Model:
    def predict(self, X, names=None):
        return [[{number}, os.getpid()]]
"""

GATED = """
import os, pathlib, time

class Model:
    def predict(self, X, names=None):
        place = pathlib.Path({place!r})
        (place / f"entered.{{os.getpid()}}").touch()
        while (place / "hold").exists():
            time.sleep(0.005)
        return X
"""


def add(repository: Path, name: str, source: str, version: int = 1, **config: Any) -> Path:
    """A version of a model, which appears whole; config goes into its model.yaml."""
    folder = repository / name
    folder.mkdir(parents=True, exist_ok=True)
    if config:
        lines = "".join(f"{key}: {value}\n" for key, value in config.items())
        (folder / "model.yaml").write_text(lines)
    new = folder / f".new{version}"
    new.mkdir()
    (new / "model.py").write_text(textwrap.dedent(source))
    new.rename(folder / str(version))
    return folder / str(version)


@contextmanager
def repository_server(folder: Path, *flags: str, ready: bool = True) -> Iterator[Running]:
    """`prefork serve --repository models` with an operator, one worker unless the flags say otherwise."""
    (folder / "run").mkdir(exist_ok=True)
    common = ("--repository", "models", "--run-dir", str(folder / "run"), "--workers", "1")
    with launched(folder, *common, *flags, env={"PREFORK_ADMIN_TOKEN": TOKEN}, ready=ready) as server:
        yield server


def load(client: httpx.Client, name: str, **parameters: Any) -> httpx.Response:
    body = {"parameters": parameters} if parameters else {}
    return client.post(f"/v2/repository/models/{name}/load", json=body, headers=OPERATOR, timeout=60)


def unload(client: httpx.Client, name: str) -> httpx.Response:
    return client.post(f"/v2/repository/models/{name}/unload", headers=OPERATOR, timeout=60)


def index(client: httpx.Client) -> dict[str, str]:
    """The states by `name/version`."""
    rows = client.post("/v2/repository/index").json()
    return {f"{row['name']}/{row.get('version', '')}": row.get("state", "") for row in rows}


def ask(client: httpx.Client, path: str, value: float = 1.0, **parameters: Any) -> httpx.Response:
    """An inference; path: `add`, or `add/versions/2`."""
    inputs = [{"name": "x", "shape": [1, 1], "datatype": "FP64", "data": [value]}]
    body = {"inputs": inputs, "parameters": parameters}
    return client.post(f"/v2/models/{path}/infer", json=body)


def number(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.json()["outputs"][0]["data"][0])


def pid(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.json()["outputs"][0]["data"][1])


def is_alive(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def descendants(root: int) -> set[int]:
    """A process and all below it."""
    found, waiting = set(), [root]
    while waiting:
        each = waiting.pop()
        found.add(each)
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            with suppress(OSError):
                waiting += map(int, task.read_text().split())
    return found


def wait_gone(processes: set[int]) -> None:
    wait_until(lambda: not any(map(is_alive, processes)), "the end of all processes")
