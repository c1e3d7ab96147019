"""What a repository may have in it that is no model, and what of it is that model's error only."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from prefork.errors import RepositoryError
from prefork.repository.folder import Found
from prefork.repository.repository import Repository
from repositories import NUMBER, add, ask, load, number, repository_server
from repository_files import put


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


def test_a_server_starts_with_odd_models(tmp_path: Path, models: Path):
    """What is wrong with each stands in the index; the others are served, and the supervisor is unhurt."""
    renamed(models / "odd", b"odd\xff")
    add(models, "o" * 255, NUMBER.format(number=3))
    with repository_server(tmp_path, "--control", "explicit", "--load-model", "*") as server, server.client() as client:
        assert number(ask(client, "good")) == 1
        rows = {row["name"]: row for row in client.post("/v2/repository/index").json()}
        assert {name for name, row in rows.items() if row["state"] == "UNAVAILABLE"} == {"odd\\xff", "o" * 255}
        assert "the folder's name is no UTF-8; rename it" in rows["odd\\xff"]["reason"]
        assert load(client, "odd%5Cxff").status_code == 400
        assert load(client, "good").status_code == 200
        assert "Traceback" not in server.log
