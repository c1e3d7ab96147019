"""What a load says instead of a model's own files."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from prefork.errors import RepositoryError
from prefork.repository import overrides, private
from prefork.repository.config import ModelConfig
from repository_files import MODEL, put


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{}", ModelConfig()),
        ('{"class": "a:B", "threads": 2}', ModelConfig(class_="a:B", threads=2)),
        ({"threads": 2}, ModelConfig(threads=2)),
        ('{"backend": "python", "max_batch_size": 8}', ModelConfig(max_rows=8)),
        ('{"parameters": {"a": {"string_value": "x"}}}', ModelConfig(parameters={"a": "x"})),
        ('{"parameters": {"a": 1}}', ModelConfig(parameters={"a": 1})),
    ],
)
def test_a_config_is_read(tmp_path: Path, config: Any, said: ModelConfig):
    """The config is model.yaml's keys, or Triton's ModelConfig, as JSON."""
    found = overrides.read({"config": config})
    assert found is not None
    assert found.config(tmp_path).config == said
    assert found.folder is None


def test_nothing_said_is_no_override():
    """A load without parameters has none."""
    assert overrides.read({}) is None


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"unload_dependents": True}, "unload_dependents: no such parameter"),
        ({"config": "{"}, "config: is no JSON"),
        ({"config": "[1]"}, "config: a JSON object is needed"),
        ({"config": 1}, "config: a JSON object is needed"),
        ({"config": "[" * 100_000}, "config: is no JSON"),
        ({"file:1/model.py": coded(MODEL)}, "files without a config"),
        ({"config": "{}", "file:1/model.py": "no base64!"}, "file:1/model.py: is no base64"),
        ({"config": "{}", "file:1/model.py": "QQ"}, "file:1/model.py: is no base64"),
        ({"config": "{}", "file:1/model.py": 1}, "file:1/model.py: base64 text is needed"),
        ({"config": "{}", "file:": ""}, "a relative path of plain names"),
        ({"config": "{}", "file:/etc/x": ""}, "file:/etc/x: a relative path of plain names"),
        ({"config": "{}", "file:../x": ""}, "file:../x: a relative path"),
        ({"config": "{}", "file:1/../../x": ""}, "a relative path"),
        ({"config": "{}", "file:1/./x": ""}, "a relative path"),
        ({"config": "{}", "file:1//x": ""}, "a relative path"),
        ({"config": "{}", "file:1/x/": ""}, "a relative path"),
        ({"config": "{}", "file:1\\x": ""}, "a relative path"),
        ({"config": "{}", "file:1/a\0b": ""}, "a relative path"),
        ({"config": "{}", "file:1/" + "x" * 300: ""}, "cannot be written: File name too long"),
        ({"config": "{}", "file:1/a": "", "file:1/a/b": ""}, "file:1/a/b: cannot be written: Not a directory"),
    ],
)
def test_what_is_refused(tmp_path: Path, parameters: dict[str, Any], problem: str):
    """What cannot be meant, and a path that leads out, is an error that names the parameter; nothing is left on disk."""
    with pytest.raises(RepositoryError) as caught:
        overrides.read(parameters, tmp_path)
    assert problem in caught.value.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ('{"treads": 1}', "config: treads: no such key"),
        ('{"backend": "python", "input": 1}', "config: input: a list is needed"),
    ],
)
def test_a_config_that_cannot_be_meant(tmp_path: Path, config: str, problem: str):
    """An error in the config names its key."""
    found = overrides.read({"config": config})
    assert found is not None
    with pytest.raises(RepositoryError) as caught:
        found.config(tmp_path)
    assert caught.value.message.startswith(problem)


def test_files_are_private_and_go_with_the_last_user(tmp_path: Path):
    """The files lie in a folder that only this user may enter, as long as somebody uses them."""
    found = overrides.read({"config": "{}", "file:1/model.py": coded(MODEL), "file:1/a/b": coded("\0x")}, tmp_path)
    assert found is not None
    assert found.folder is not None
    assert stat.S_IMODE(found.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((found.folder / "1/a/b").stat().st_mode) == 0o600
    assert (found.folder / "1/model.py").read_text() == MODEL
    assert (found.folder / "1/a/b").read_text() == "\0x"
    user = found.hold()
    found.release()
    assert found.folder.exists()
    user.release()
    assert list(tmp_path.iterdir()) == []
    user.release()
    with pytest.raises(RuntimeError, match="let go"):
        found.hold()


def test_no_link_leads_out(tmp_path: Path):
    """A link in the folder is not followed, neither as a folder nor as a file, and no file is overwritten."""
    outside = put(tmp_path / "outside", {"kept": "as it was"})
    inside = put(tmp_path / "inside", {"there": "as it was"})
    (inside / "folder").symlink_to(outside)
    (inside / "file").symlink_to(outside / "kept")
    (inside / "new").symlink_to(outside / "new")
    for path in ("folder/kept", "folder/new", "folder/deep/new", "file", "new", "there"):
        with pytest.raises(RepositoryError, match=f"file:{path}: cannot be written"):
            private.write(inside, path, b"changed")
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"kept": "as it was"}
    assert (inside / "there").read_text() == "as it was"


def test_equal_overrides_have_equal_stamps(tmp_path: Path):
    """The order of a config's keys is no difference, a value or a file is."""

    def stamp(parameters: dict[str, Any]) -> str:
        found = overrides.read(parameters, tmp_path)
        assert found is not None
        return found.stamp

    one = {"threads": 1, "instances": 2}
    assert stamp({"config": json.dumps(one)}) == stamp({"config": {"instances": 2, "threads": 1}})
    assert stamp({"config": one}) != stamp({"config": {"threads": 2}})
    assert stamp({"config": one}) != stamp({"config": one, "file:1/a": ""})
