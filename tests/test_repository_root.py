"""One folder of models: an outage deletes no model."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from prefork.errors import RepositoryError
from prefork.repository.root import Root
from repository_files import MODEL, put


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(put(tmp_path / "models", {"a/model.py": MODEL, "b/model.py": MODEL}))


def test_while_it_is_away_it_is_as_before(root: Root, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Names and stamps stay, the log says once why and once that it is back, and what has changed meanwhile is seen then."""
    caplog.set_level(logging.INFO)
    before = {name: root.stamp(name) for name in ("a", "b")}
    root.path.rename(tmp_path / "away")
    for _ in range(3):
        assert sorted(root.names()) == ["a", "b"]
        assert {name: root.stamp(name) for name in ("a", "b")} == before
    put(tmp_path / "away", {"a/weights": "", "c/model.py": MODEL})
    (tmp_path / "away").rename(root.path)
    assert sorted(root.names()) == ["a", "b", "c"]
    assert root.stamp("a") != before["a"]
    assert root.stamp("b") == before["b"]
    assert [each.levelname for each in caplog.records] == ["ERROR", "INFO"]
    assert "cannot be read: No such file or directory; what is loaded stays loaded" in caplog.records[0].message


def test_another_folder_that_is_empty_is_no_deletion(root: Root, tmp_path: Path):
    """It is what is left of a mount; a folder with something in it is one again."""
    before = root.stamp("a")
    root.path.rename(tmp_path / "away")
    root.path.mkdir()
    assert sorted(root.names()) == ["a", "b"]
    assert root.stamp("a") == before
    put(root.path, {"c/model.py": MODEL})
    assert root.names() == ["c"]
    assert root.stamp("a") == ""


def test_models_that_are_removed_one_by_one_are_gone(root: Root, tmp_path: Path):
    """The last one as well."""
    assert root.stamp("a")
    for name in ("a", "b"):
        (root.path / name).rename(tmp_path / name)
        assert name not in root.names()
        assert root.stamp(name) == ""


def test_a_path_that_is_no_folder_is_an_error_at_the_beginning(tmp_path: Path):
    """A file is none either."""
    put(tmp_path, {"file": ""})
    for name, why in (("none", "No such file or directory"), ("file", "Not a directory")):
        with pytest.raises(RepositoryError, match=f"{name}: {why}"):
            Root(tmp_path / name)
