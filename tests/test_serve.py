"""The running server, as its users meet it: real processes, real sockets, a real V2 client."""

from __future__ import annotations

import gzip
import http.client
import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.http as triton

from running import Running, serving, wait_until

ECHO = """
    import os, threading, time
    import numpy as np

    class Model:
        def predict(self, X, names=None):
            return X

        def tags(self):
            return {"pid": os.getpid()}
"""
BODY = {"data": {"ndarray": [[1, 2]]}}
CLASSES = ("asgi", "sync", "gthread", "gevent")


@pytest.fixture(scope="module", params=CLASSES)
def echo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An echoing model behind each class of worker."""
    folder = tmp_path_factory.mktemp("echo")
    flags = ("--workers", "2", "--worker-class", request.param, "--max-body-size", "1000000")
    with serving(folder, ECHO, *flags) as running:
        yield running


def test_answers(echo: Running):
    """A prediction comes back over a real socket, from every class of worker."""
    with echo.client() as client:
        assert client.post("/predict", json=BODY).json()["data"]["ndarray"] == [[1, 2]]


def test_triton_client_infers_in_json_and_binary(echo: Running):
    """tritonclient, as its users have it, infers both ways and gets its metadata."""
    client = triton.InferenceServerClient(echo.url.removeprefix("http://"))
    sent = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("Model")
    assert client.get_model_metadata("Model")["name"] == "Model"
    for binary in (False, True):
        tensor = triton.InferInput("x", [3, 4], "FP32")
        tensor.set_data_from_numpy(sent, binary_data=binary)
        wanted = triton.InferRequestedOutput("predict", binary_data=binary)
        answer = client.infer("Model", [tensor], outputs=[wanted], request_id="7")
        assert np.array_equal(answer.as_numpy("predict"), sent)
        assert answer.get_response()["id"] == "7"
    client.close()


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_triton_client_compresses(echo: Running, coding: str):
    """tritonclient's own compression of request and answer works, with binary tensors."""
    client = triton.InferenceServerClient(echo.url.removeprefix("http://"))
    sent = np.zeros((40, 100), dtype=np.float64)
    tensor = triton.InferInput("x", [40, 100], "FP64")
    tensor.set_data_from_numpy(sent)
    answer = client.infer(
        "Model", [tensor], request_compression_algorithm=coding, response_compression_algorithm=coding
    )
    assert np.array_equal(answer.as_numpy("predict"), sent)
    client.close()


def test_triton_client_reads_errors(echo: Running):
    """An error reaches tritonclient's user as a sentence, not as a failure to decode."""
    client = triton.InferenceServerClient(echo.url.removeprefix("http://"))
    tensor = triton.InferInput("x", [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, dtype=np.float32))
    with pytest.raises(Exception, match="unknown model"):
        client.infer("nope", [tensor])
    client.close()


def test_chunked_body_is_limited(echo: Running):
    """A chunked body, whose length nobody announces, is stopped at `max_body_size` with a 413 in JSON."""

    def parts(count: int) -> Iterator[bytes]:
        yield b'{"strData":"'
        for _ in range(count):
            yield b"x" * 1000
        yield b'"}'

    headers = {"content-type": "application/json"}
    with echo.client() as client:
        assert client.post("/predict", content=parts(10), headers=headers).status_code == 200
        try:
            response = client.post("/predict", content=parts(3000), headers=headers)
        except (httpx.WriteError, httpx.ReadError):
            return  # the server answered and closed while the client was still sending: HTTP allows it
        assert response.status_code == 413
        assert "max_body_size" in response.json()["status"]["info"]


@pytest.mark.parametrize(
    "raw",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20000 + b"\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: nonsense\r\n\r\n",
    ],
    ids=["no-http", "header", "long-line", "long-header", "coding"],
)
def test_errors_of_the_http_layer_are_json(echo: Running, raw: bytes):
    """What gunicorn itself refuses is JSON too, in a shape that V2's and Seldon's clients read."""
    import socket

    with socket.create_connection(("127.0.0.1", echo.port), timeout=10) as connection:
        connection.sendall(raw)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status in (400, 414, 431, 501)
        assert response.getheader("content-type") == "application/json"
        body = json.loads(response.read())
        assert body["error"] == body["status"]["info"]


BUSY = """
    import time, threading, pathlib
    class Model:
        def predict(self, X, names=None):
            pathlib.Path("inside").touch()
            while not pathlib.Path("release").exists():
                time.sleep(0.01)
            return X
"""


def test_probes_answer_while_the_model_computes(tmp_path: Path):
    """With the default of one model thread, probes and pages answer while `predict` is busy."""
    with serving(tmp_path, BUSY, "--workers", "1") as running, running.client() as client:
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(client.post("/predict", json=BODY).status_code))
        asking.start()
        wait_until((tmp_path / "inside").exists, "predict to begin")
        with running.client() as other:
            for path in ("/live", "/v2/health/ready", "/health/ping", "/v2/models/Model", "/docs"):
                assert other.get(path).status_code == 200
        assert answers == []
        (tmp_path / "release").touch()
        asking.join(20)
        assert answers == [200]


STREAM = """
    import pathlib, time
    class Model:
        def predict(self, count: int):
            try:
                for number in range(count):
                    yield {"number": number}
                    while not pathlib.Path(f"go{number}").exists():
                        time.sleep(0.01)
            finally:
                pathlib.Path("closed").touch()
"""


@pytest.mark.parametrize("worker_class", CLASSES)
def test_events_arrive_as_they_are_made(tmp_path: Path, worker_class: str):
    """Each event reaches the client before the next one is made."""
    with serving(tmp_path, STREAM, "--workers", "1", "--worker-class", worker_class) as running:
        with (
            running.client() as client,
            client.stream("POST", "/v2/models/Model/generate_stream", json={"count": 3}) as response,
        ):
            lines = (line for line in response.iter_lines() if line)
            for number in range(3):
                assert f'"number":{number}' in next(lines)
                (tmp_path / f"go{number}").touch()
            assert next(lines, None) is None
        assert (tmp_path / "closed").exists()


def test_hanging_up_closes_the_generator(tmp_path: Path):
    """A client that leaves in mid stream ends the user's generator, and the worker serves on."""
    with serving(tmp_path, STREAM, "--workers", "1") as running, running.client() as client:
        with client.stream("POST", "/v2/models/Model/generate_stream", json={"count": 1000}) as response:
            assert next(response.iter_lines())
        numbers = itertools.count()

        def closed() -> bool:
            # However late the server hears of it: a generator can be ended only where it yields.
            (tmp_path / f"go{next(numbers)}").touch()
            return (tmp_path / "closed").exists()

        wait_until(closed, "the generator to be closed")
        assert client.get("/live").status_code == 200


def test_gzip_answer_over_the_wire(echo: Running):
    """A client that asks for gzip gets it, whatever the class of worker."""
    rows = [[float(i)] for i in range(1000)]
    with echo.client() as client:
        response = client.post(
            "/predict",
            content=gzip.compress(json.dumps({"data": {"ndarray": rows}}).encode()),
            headers={"content-type": "application/json", "content-encoding": "gzip", "accept-encoding": "gzip"},
        )
        assert response.headers["content-encoding"] == "gzip"
        assert response.json()["data"]["ndarray"] == rows


def test_keep_alive_serves_many_requests_on_one_connection(tmp_path: Path):
    """The default worker keeps a connection open from request to request."""
    with serving(tmp_path, ECHO, "--workers", "1") as running:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
        connection.connect()
        address = connection.sock.getsockname()
        for _ in range(50):
            connection.request("POST", "/predict", json.dumps(BODY), {"Content-Type": "application/json"})
            assert connection.getresponse().read()
            assert connection.sock.getsockname() == address
        connection.close()


LOADS = """
    import os, pathlib
    class Model:
        def __init__(self):
            self.built = os.getpid()
        def load(self):
            with open("loads", "a") as log:
                log.write(f"{os.getpid()} {self.built}\\n")
        def predict(self, X, names=None):
            return [[os.getpid()]]
"""


@pytest.mark.parametrize("preload", [False, True])
def test_load_runs_once_in_each_worker_after_the_fork(tmp_path: Path, preload: bool):
    """load() runs exactly once in every worker; the constructor in the worker too, or in the master under preload."""
    flags = ["--workers", "3", *(["--preload-app", "--trial-timeout", "0"] if preload else [])]
    with serving(tmp_path, LOADS, *flags) as running:
        loads = tmp_path / "loads"
        wait_until(lambda: len(loads.read_text().splitlines()) == 3, "three loads")
        pairs = [line.split() for line in loads.read_text().splitlines()]
        assert len({pid for pid, _ in pairs}) == 3
        assert str(running.process.pid) not in {pid for pid, _ in pairs}
        for pid, built in pairs:
            assert built == (str(running.process.pid) if preload else pid)


SLOW_LOAD = """
    import pathlib, time
    class Model:
        def load(self):
            pathlib.Path("loading").touch()
            while not pathlib.Path("go").exists():
                time.sleep(0.01)
        def predict(self, X, names=None):
            return X
"""


@pytest.mark.parametrize("worker_class", CLASSES)
def test_port_opens_when_the_model_is_loaded(tmp_path: Path, worker_class: str):
    """While the model loads, connections are refused; an open port means ready."""
    flags = ("--workers", "1", "--worker-class", worker_class)
    with serving(tmp_path, SLOW_LOAD, *flags, ready=False) as running:
        wait_until((tmp_path / "loading").exists, "load to begin")
        assert not running.accepts()
        (tmp_path / "go").touch()
        running.wait_ready()
        with running.client() as client:
            assert client.post("/predict", json=BODY).status_code == 200


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class Model:\n    def __init__(self):\n        raise ValueError('no weights')", "no weights"),
        ("class Model:\n    def load(self):\n        self.nothing.here", "nothing"),
        ("class Model:\n    def load(self):\n        raise NotImplementedError('own')", "own"),
        ("import no_such_library_at_all\nclass Model: pass", "no_such_library_at_all"),
    ],
    ids=["constructor", "attribute-error", "not-implemented", "import"],
)
def test_failure_to_load_stops_the_start(tmp_path: Path, source: str, said: str):
    """A failure before serving ends the whole server with exit code 3 and its reason in the log; the port never opens."""
    with serving(tmp_path, source, "--workers", "2", ready=False) as running:
        assert running.process.wait(60) == 3
        assert said in running.log


def test_restart_is_quick_on_the_same_port(tmp_path: Path):
    """A server that was stopped leaves its port free for the next one."""
    with serving(tmp_path, ECHO, "--workers", "1") as running:
        begun = time.monotonic()
        assert running.stop() == 0
        assert not running.accepts()
        assert time.monotonic() - begun < 30


def test_large_bodies_on_busy_keep_alive_connections_are_all_answered(echo: Running):
    """Connections that send one body of more than 64 KiB after the other get every answer.

    gunicorn 27.0.1 loses such requests: the next one arrives before its parser was reset.
    """
    rows = np.random.default_rng(0).random((64, 128)).tolist()
    body = json.dumps({"data": {"ndarray": rows}})
    failed: list[object] = []

    def ask() -> None:
        with echo.client() as client:
            for _ in range(20):
                try:
                    answer = client.post("/predict", content=body, headers={"content-type": "application/json"}).json()
                except httpx.HTTPError as error:
                    failed.append(error)
                else:
                    failed.extend([answer] if answer["data"]["ndarray"] != rows else [])

    callers = [threading.Thread(target=ask) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failed == []
