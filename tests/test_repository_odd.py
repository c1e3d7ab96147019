"""What a repository may have in it that is no model, and what of it is that model's error only."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from prefork.errors import RepositoryError
from prefork.repository.folder import Found
from prefork.repository.repository import Repository
from prefork.runtimes import shelf
from repositories import NUMBER, add, ask, load, number, repository_server
from repository_files import MODEL, put


def renamed(path: Path, name: bytes) -> None:
    path.rename(path.with_name(os.fsdecode(name)))


Change = Callable[[Path], object]

NAMES: dict[str, tuple[Change, str]] = {
    "a folder that is no UTF-8": (
        lambda m: renamed(m, b"odd\xff"),
        r"'odd\\xff' cannot be a model's name: the folder's",
    ),
    "a folder of 255 bytes": (lambda m: m.rename(m.with_name("o" * 255)), "cannot be a model's name"),
    "code in a file that is no UTF-8": (
        lambda m: (renamed(m / "1/model.py", b"x\xff.py"), put(m, {"model.yaml": "file: x.py"})),
        "there is no x.py",
    ),
    "a file named with 5000 bytes": (lambda m: put(m, {"model.yaml": f"file: {'x' * 5000}"}), "File name too long"),
    "a class of 300 bytes": (lambda m: put(m, {"model.yaml": f"class: {'x' * 300}:A"}), "File name too long"),
}


def piped(path: Path) -> None:
    """A named pipe in the place of the file that may be there."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))


LABELLED = 'output [{ name: "Y" data_type: TYPE_FP64 dims: [ 2 ] label_filename: "labels.txt" }]'
WARMED = 'model_warmup { inputs { key: "x" value { data_type: TYPE_FP64 dims: [ 1 ] input_data_file: "x" } } }'
PIPE = "it is a named pipe, and a file is needed"

NO_FILES: dict[str, tuple[Change, str]] = {
    "model.yaml": (lambda m: piped(m / "model.yaml"), f"odd/model.yaml: cannot be read: {PIPE}"),
    "config.pbtxt": (lambda m: piped(m / "config.pbtxt"), f"odd/config.pbtxt: cannot be read: {PIPE}"),
    "model.py": (lambda m: piped(m / "1/model.py"), f"odd/1/model.py: cannot be read: {PIPE}"),
    "Odd.py": (lambda m: ((m / "1/model.py").unlink(), piped(m / "1/Odd.py")), f"odd/1/Odd.py: cannot be read: {PIPE}"),
    "another Python's": (
        lambda m: (piped(m / "1/model.py"), put(m, {"model.yaml": "class: model:Model\npython: python3"})),
        f"odd/1/model.py: cannot be read: {PIPE}",
    ),
    "a saved model": (
        lambda m: ((m / "1/model.py").unlink(), piped(m / "1/x.onnx")),
        "there is nothing to serve; x.onnx is a named pipe",
    ),
    "a saved model with its runtime": (
        lambda m: (piped(m / "1/x.onnx"), put(m, {"model.yaml": "runtime: onnx\nfile: x.onnx"})),
        f"odd/1/x.onnx cannot be read: {PIPE}",
    ),
    "MLServer's": (
        lambda m: (
            piped(m / "1/x"),
            put(m, {"1/model-settings.json": '{"implementation": "mlserver_onnx.Model", "parameters": {"uri": "x"}}'}),
        ),
        f"odd/1/x cannot be read: {PIPE}",
    ),
    "a warm-up": (
        lambda m: (piped(m / "1/x.json"), put(m, {"model.yaml": "warmup: x.json"})),
        f"odd/1/x.json: cannot be read: {PIPE}",
    ),
    "Triton's warm-up": (
        lambda m: (piped(m / "warmup/x"), put(m, {"config.pbtxt": WARMED})),
        f"warmup/x cannot be read: {PIPE}",
    ),
    "labels": (
        lambda m: (piped(m / "labels.txt"), put(m, {"config.pbtxt": LABELLED})),
        f"labels.txt cannot be read: {PIPE}",
    ),
    "a socket": (lambda m: listening(m / "model.yaml"), "model.yaml: cannot be read: it is a socket"),
    "a device": (lambda m: (m / "model.yaml").symlink_to("/dev/zero"), "model.yaml: cannot be read: it is a device"),
    "a link to nothing": (lambda m: (m / "model.yaml").symlink_to("gone"), "model.yaml: cannot be read: No such file"),
    "a file without an end": (
        lambda m: (put(m, {"model.yaml": ""}), os.truncate(m / "model.yaml", 1 << 40)),
        "model.yaml: cannot be read: it has more than 64 MiB",
    ),
}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A repository with the model `good`, and `odd` to be changed."""
    folder = tmp_path / "models"
    add(folder, "good", NUMBER.format(number=1))
    add(folder, "odd", NUMBER.format(number=2))
    return folder


@pytest.mark.parametrize(("change", "problem"), NAMES.values(), ids=NAMES)
def test_an_odd_name_is_its_models_error(models: Path, change: Change, problem: str):
    """The other model is found, the odd one has a reason that can go into JSON, and the folders can be watched."""
    change(models / "odd")
    repository = Repository([models])
    scanned = repository.scan()
    assert isinstance(scanned.pop("good"), Found)
    (name, error), *others = scanned.items()
    assert not others
    assert isinstance(error, RepositoryError)
    assert problem in error.message
    assert msgspec.json.encode([name, error.message])
    assert repository.stamp(name)


def test_other_files_may_be_called_anything(models: Path):
    """A file or folder of a model whose name is no UTF-8, or is as long as names may be, is in the way of nothing."""
    before = Repository([models]).stamp("odd")
    put(models / "odd", {"1/x": "", f"1/{'x' * 255}": "", "v1/": ""})
    renamed(models / "odd/1/x", b"\xff")
    renamed(models / "odd/v1", b"v1\xff")
    repository = Repository([models])
    assert isinstance(repository.scan()["odd"], Found)
    assert repository.stamp("odd") != before


def test_a_link_into_a_folder_that_is_no_utf_8_is_refused(models: Path):
    """Where the files are is told to the model's process as text."""
    renamed(models / "odd", b".real\xff")
    (models / "odd").symlink_to(os.fsdecode(b".real\xff"))
    error = Repository([models]).scan()["odd"]
    assert isinstance(error, RepositoryError)
    assert "is no UTF-8; rename it" in error.message


@pytest.mark.parametrize(("change", "problem"), NO_FILES.values(), ids=NO_FILES)
def test_what_is_no_file_is_refused_and_not_waited_for(models: Path, change: Change, problem: str):
    """A pipe, a socket or a device where a file is read is the model's error, which names it."""
    change(models / "odd")
    found: dict[str, Found | RepositoryError] = {}
    reading = threading.Thread(target=lambda: found.update(Repository([models], shelf.known()).scan()), daemon=True)
    reading.start()
    reading.join(30)
    assert isinstance(found["good"], Found)
    error = found["odd"]
    assert isinstance(error, RepositoryError)
    assert problem in error.message


def test_a_pipe_that_nobody_reads_is_in_nobodys_way(models: Path):
    """A model may leave its own pipes and sockets beside its files."""
    piped(models / "odd/1/pipe")
    listening(models / "odd/socket")
    assert isinstance(Repository([models], shelf.known()).scan()["odd"], Found)


def test_a_server_starts_with_odd_models(tmp_path: Path, models: Path):
    """What is wrong with each stands in the index; the others are served, and the supervisor is unhurt."""
    renamed(models / "odd", b"odd\xff")
    add(models, "o" * 255, NUMBER.format(number=3))
    piped(add(models, "pipe", NUMBER.format(number=4)).parent / "model.yaml")
    add(models, "variable", NUMBER.format(number=5), environment="{'A=B': c}")
    with repository_server(tmp_path, "--control", "explicit", "--load-model", "*") as server, server.client() as client:
        assert number(ask(client, "good")) == 1
        rows = {row["name"]: row for row in client.post("/v2/repository/index").json()}
        assert {name for name, row in rows.items() if row["state"] == "UNAVAILABLE"} == {
            "odd\\xff",
            "o" * 255,
            "pipe",
            "variable",
        }
        assert "environment.A=B: a variable's name is needed" in rows["variable"]["reason"]
        assert PIPE in rows["pipe"]["reason"]
        assert "the folder's name is no UTF-8; rename it" in rows["odd\\xff"]["reason"]
        assert load(client, "odd%5Cxff").status_code == 400
        assert load(client, "good").status_code == 200
        assert "Traceback" not in server.log


def test_a_config_that_nests_too_deep_is_the_clients_error(tmp_path: Path, models: Path):
    """A load's `config` is JSON in a text; it may nest as deep as a body may, and the supervisor never sees it."""
    with (
        repository_server(tmp_path, "--control", "explicit", "--load-model", "good") as server,
        server.client() as client,
    ):
        for depth in (101, 900, 100_000):
            answer = load(client, "good", config='{"parameters": {"x": ' + "[" * depth + "]" * depth + "}}")
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"] == "parameter 'config': the JSON nests deeper than 100 levels"
        assert number(ask(client, "good")) == 1
        assert "Traceback" not in server.log


def test_a_batch_may_wait_as_long_as_can_be_said(tmp_path: Path, models: Path):
    """The longest `max_batch_delay` costs the model's process nothing; the batch goes when it is full."""
    add(models, "patient", MODEL, batching="{max_batch_size: 2, max_batch_delay: 1000000000000000}")
    with repository_server(tmp_path) as server, server.client() as client, ThreadPoolExecutor() as pool:
        answers = [pool.submit(ask, client, "patient") for _ in range(2)]
        assert [each.result(30).status_code for each in answers] == [200, 200]
