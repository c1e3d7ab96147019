"""Repositories: which names there are, which of them can be served, and which override counts."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from prefork.errors import NotFound, RepositoryError
from prefork.repository import overrides
from prefork.repository.folder import Found
from prefork.repository.overrides import Override
from prefork.repository.repository import Repository
from repository_files import MODEL, put


def said(parameters: dict[str, Any]) -> Override:
    found = overrides.read(parameters)
    assert found is not None
    return found


def with_files(config: str = "{}", source: str = MODEL) -> Override:
    return said({"config": config, "file:1/model.py": base64.b64encode(source.encode()).decode()})


def test_names_and_what_is_behind_them(tmp_path: Path):
    """Every folder is a name; one that is broken says why and touches no other; files and hidden folders are no models."""
    put(
        tmp_path,
        {
            "iris/1/model.py": MODEL,
            "broken/1/nothing": "",
            "empty/": "",
            "README": "",
            ".git/x": "",
            "__pycache__/x": "",
        },
    )
    repository = Repository([tmp_path])
    assert repository.names() == ["broken", "empty", "iris"]
    scanned = repository.scan()
    iris = scanned["iris"]
    assert isinstance(iris, Found)
    assert list(iris.versions) == [1]
    assert {name: type(each) for name, each in scanned.items() if name != "iris"} == {
        "broken": RepositoryError,
        "empty": RepositoryError,
    }
    assert "at least one version must be available" in str(scanned["empty"])


def test_the_disk_is_looked_at_every_time(tmp_path: Path):
    """What is put there and what goes is seen by the next question."""
    repository = Repository([tmp_path])
    assert repository.names() == []
    put(tmp_path, {"iris/model.py": MODEL})
    assert repository.names() == ["iris"]
    assert repository.find("iris").versions.keys() == {1}
    (tmp_path / "iris/model.py").unlink()
    with pytest.raises(RepositoryError, match="at least one version"):
        repository.find("iris")


def test_a_name_in_two_repositories(tmp_path: Path):
    """A name that two repositories have is an error for that name only, and none any more when one of them lets go of it."""
    one, two = (
        put(tmp_path / "one", {"a/model.py": MODEL, "b/model.py": MODEL}),
        put(tmp_path / "two", {"b/model.py": MODEL}),
    )
    repository = Repository([one, two, one])
    assert repository.paths == (one, two)
    scanned = repository.scan()
    assert isinstance(scanned["a"], Found)
    assert str(scanned["b"]) == f"model appears in two or more repositories: {one}, {two}"
    (two / "b").rename(two / ".b")
    assert repository.find("b").folder == one / "b"


@pytest.mark.parametrize("name", ["a b", "a:b", "a%b", "a?b", "a#b", "x" * 201, "\u00e9" * 101])
def test_a_folder_that_cannot_be_a_name(tmp_path: Path, name: str):
    """A folder whose name cannot be part of a path in a URL is an error under that name."""
    put(tmp_path, {f"{name}/model.py": MODEL})
    assert "cannot be a model's name" in str(Repository([tmp_path]).scan()[name])


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../iris", ".hidden"])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str):
    """A name that comes from outside is no path."""
    put(tmp_path, {"iris/model.py": MODEL, ".hidden/model.py": MODEL})
    with pytest.raises(RepositoryError, match="cannot be a model's name"):
        Repository([tmp_path / "iris"]).find(name)


def test_an_unknown_name(tmp_path: Path):
    """A name without a folder is not found, and the message says where it was looked for."""
    with pytest.raises(NotFound, match=f"there is no model 'nope' in {tmp_path}"):
        Repository([tmp_path]).find("nope")


def test_a_path_that_is_no_folder(tmp_path: Path):
    """A repository that is not there is an error at once."""
    with pytest.raises(RepositoryError, match="none: No such file or directory"):
        Repository([tmp_path / "none"])


def test_a_folder_that_is_a_link(tmp_path: Path):
    """A version stays where the link led when it was found, and the link's moving on is a change."""
    put(tmp_path, {"store/one/1/model.py": MODEL, "store/two/1/model.py": MODEL, "models/": ""})
    link = tmp_path / "models/iris"
    link.symlink_to(tmp_path / "store/one")
    repository = Repository([tmp_path / "models"])
    before, stamp = repository.find("iris"), repository.stamp("iris")
    link.unlink()
    link.symlink_to(tmp_path / "store/two")
    after = repository.find("iris")
    assert (before.folder.name, after.folder.name) == ("one", "two")
    assert before.versions[1].fingerprint != after.versions[1].fingerprint
    assert repository.stamp("iris") != stamp


def test_stamps(tmp_path: Path):
    """A name's stamp changes with any of its files, in any of the repositories, and with no other's; running a model changes none."""
    one, two = put(tmp_path / "one", {"a/1/model.py": MODEL, "b/1/model.py": MODEL}), put(tmp_path / "two", {})
    repository = Repository([one, two])
    before, other = repository.stamp("a"), repository.stamp("b")
    put(one, {"b/1/__pycache__/model.pyc": "x"})
    assert repository.stamp("b") == other
    put(one, {"b/1/x": ""})
    assert repository.stamp("a") == before
    assert repository.stamp("b") != other
    put(two, {"a/1/model.py": MODEL})
    assert repository.stamp("a") != before
    assert repository.stamp("c") == ""


def test_a_config_override(tmp_path: Path):
    """A load with a config serves what it says; plain loads keep it once it was kept, until it is forgotten."""
    put(tmp_path, {"iris/model.yaml": "threads: 2", "iris/1/model.py": MODEL, "iris/2/model.py": MODEL})
    repository = Repository([tmp_path])
    found = repository.find("iris", said({"config": '{"versions": [1], "threads": 7}'}))
    assert (list(found.versions), found.config.threads) == ([1], 7)
    assert repository.find("iris").config.threads == 2, "a load that failed is not remembered"
    repository.keep(found)
    assert repository.find("iris").config.threads == 7
    repository.forget("iris")
    assert repository.find("iris").config.threads == 2
    repository.forget("iris")


@pytest.mark.parametrize("path", ["model.yaml", "config.pbtxt"])
def test_a_touched_config_takes_over_again(tmp_path: Path, path: str):
    """When somebody touches the model's own config, plain loads go by that again; other files do not count."""
    put(tmp_path, {"iris/model.yaml": "threads: 2", "iris/config.pbtxt": "", "iris/1/model.py": MODEL})
    repository = Repository([tmp_path])
    repository.keep(repository.find("iris", said({"config": '{"threads": 7}'})))
    put(tmp_path, {"iris/1/weights": "", "iris/labels.txt": ""})
    assert repository.find("iris").config.threads == 7
    file = tmp_path / "iris" / path
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**9))
    found = repository.find("iris")
    assert found.config.threads == 2
    repository.keep(found)
    assert repository.find("iris").override is None


def test_a_config_by_its_name(tmp_path: Path):
    """Where a model has `configs/<name>.pbtxt` of the name that is asked for, that is its config.pbtxt; others keep theirs."""
    own = "instance_group { count: 2 }"
    put(tmp_path, {"has/config.pbtxt": own, "has/configs/small.pbtxt": "max_batch_size: 4", "has/1/model.py": MODEL})
    put(tmp_path, {"lacks/config.pbtxt": own, "lacks/configs/other.pbtxt": "", "lacks/1/model.py": MODEL})
    repository = Repository([tmp_path], config_name="small")
    assert (repository.find("has").config.max_rows, repository.find("has").config.instances) == (4, 1)
    assert (repository.find("lacks").config.max_rows, repository.find("lacks").config.instances) == (0, 2)
    assert Repository([tmp_path]).find("has").config.instances == 2
    put(tmp_path, {"has/model.yaml": "instances: 3"})
    assert (repository.find("has").config.max_rows, repository.find("has").config.instances) == (4, 3)
    put(tmp_path, {"has/configs/small.pbtxt": "name: 3"})
    with pytest.raises(RepositoryError, match=r"small\.pbtxt: name: "):
        repository.find("has")


def test_a_config_by_its_name_that_is_touched(tmp_path: Path):
    """Who touches it takes back what a load has said instead."""
    put(tmp_path, {"iris/configs/small.pbtxt": "instance_group { count: 2 }", "iris/1/model.py": MODEL})
    repository = Repository([tmp_path], config_name="small")
    repository.keep(repository.find("iris", said({"config": '{"instances": 7}'})))
    assert repository.find("iris").config.instances == 7
    file = tmp_path / "iris/configs/small.pbtxt"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**9))
    assert repository.find("iris").config.instances == 2


def test_a_file_override(tmp_path: Path):
    """With files they alone are the model, under a name that has a folder or has none; the folder's files come back when it is forgotten."""
    put(tmp_path, {"iris/3/model.py": MODEL})
    repository = Repository([tmp_path])
    source = "class Sent:\n    def predict(self): ...\n"
    for name in ("iris", "new"):
        override = with_files(source=source)
        found = repository.find(name, override)
        assert list(found.versions) == [1]
        assert found.versions[1].config.class_ == "model:Sent"
        assert found.folder == override.folder
        repository.keep(found)
        override.release()
        assert found.folder.exists()
        assert repository.find(name).folder == found.folder
        assert name in repository.names()
        repository.forget(name)
        assert not found.folder.exists()
    assert repository.find("iris").versions.keys() == {3}
    assert repository.names() == ["iris"]


def test_a_second_override_replaces_the_first(tmp_path: Path):
    """The first one's files go when nobody serves them any more; keeping the same one twice holds it once."""
    repository = Repository([tmp_path])
    first, second = with_files(), with_files('{"threads": 2}')
    repository.keep(repository.find("iris", first))
    repository.keep(repository.find("iris"))
    first.release()
    assert first.folder is not None
    assert first.folder.exists()
    repository.keep(repository.find("iris", second))
    second.release()
    assert not first.folder.exists()
    assert second.folder is not None
    assert repository.find("iris").config.threads == 2
    repository.forget("iris")
    assert not second.folder.exists()


def test_an_override_is_a_change_of_its_own(tmp_path: Path):
    """The same override again changes no version, another one does."""
    put(tmp_path, {"iris/1/model.py": MODEL})
    repository = Repository([tmp_path])
    plain = repository.find("iris").versions[1].fingerprint
    one, same, other = (said({"config": {"threads": n}}) for n in (2, 2, 3))
    prints = [repository.find("iris", each).versions[1].fingerprint for each in (one, same, other)]
    assert prints[0] == prints[1]
    assert len({plain, *prints}) == 3
    assert repository.find("iris", said({"config": "{}"})).versions[1].fingerprint == plain


def test_notes_of_an_override(tmp_path: Path):
    """What an override says without effect is noted."""
    put(tmp_path, {"iris/1/model.py": MODEL})
    found = Repository([tmp_path]).find(
        "iris", said({"config": '{"backend": "python", "response_cache": {"enable": true}}'})
    )
    assert found.notes == ("response_cache is not known and has no effect",)
