"""A model whose process dies in the middle of a request, again and again, under load."""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from pathlib import Path

from benchmarks.hosting import models
from benchmarks.hosting.served import Traffic, descendants, serving
from benchmarks.report import table
from benchmarks.servers import Running

HOWS = {"os._exit": 1, "SIGSEGV": 11, "SIGKILL": 9}
LIMIT = 60.0


def measure(times: int) -> str:
    """So many deaths, each way in turn, with four other clients asking all the time."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        models.write(repository, "it", models.MORTAL, instances=2)
        with serving(repository, Path(folder) / "run") as up:
            before = len(descendants(up.pid))
            with Traffic(up, "/v2/models/it/infer", 4, lambda: _body(0)) as others:
                answered: dict[str, list[float]] = {how: [] for how in HOWS}
                recovered: dict[str, list[float]] = {how: [] for how in HOWS}
                for number in range(times):
                    how = list(HOWS)[number % len(HOWS)]
                    answered[how].append(_die(up, HOWS[how]))
                    recovered[how].append(_recover(up))
            rows = [[how, _worst(answered[how]), _worst(recovered[how])] for how in HOWS]
            left = _left(up, before)
    rest = f"Other clients meanwhile: {dict(others.statuses)}. Processes before {before}, afterwards {left}.\n"
    return table([f"{times} deaths, longest", "503 to who was in it (goal: 0.2 s)", "next answer"], rows) + "\n" + rest


def _body(how: int) -> object:
    return {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "INT64", "data": [how]}]}


def _die(up: Running, how: int) -> float:
    begun = time.perf_counter()
    status = _ask(up, how)
    taken = time.perf_counter() - begun
    if status != 503:
        raise RuntimeError(f"the request whose model died was answered {status}")
    return taken


def _recover(up: Running) -> float:
    begun = time.perf_counter()
    while _ask(up, 0) != 200:
        if time.perf_counter() - begun > LIMIT:
            raise RuntimeError("the model did not come back in a minute")
        time.sleep(0.005)
    return time.perf_counter() - begun


def _left(up: Running, before: int) -> int:
    deadline = time.monotonic() + LIMIT
    while len(descendants(up.pid)) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(descendants(up.pid))


def _ask(up: Running, how: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", up.port, timeout=60)
    try:
        connection.request("POST", "/v2/models/it/infer", json.dumps(_body(how)))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _worst(seconds: list[float]) -> str:
    return f"{max(seconds):.3f} s" if seconds else "-"
