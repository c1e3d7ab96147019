"""What is TensorFlow's is known without TensorFlow: a SavedModel folder, a Keras 3 file."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from prefork.errors import ModelLoadError
from prefork.runtimes import tensorflow
from prefork.runtimes.recognition import recognise
from prefork.runtimes.signatures import choose, reason

METADATA = json.dumps({"keras_version": "3.15.1", "date_saved": "2026-12-02@09:44:34"})
CONFIG = json.dumps({"module": "keras", "class_name": "Sequential", "config": {}})


def keras_file(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(f"{name}.json", text)
    return path


def folder(path: Path, head: bytes) -> Path:
    path.mkdir()
    (path / "saved_model.pb").write_bytes(head)
    return path


def test_a_saved_model_folder(tmp_path: Path):
    """Its saved_model.pb begins with the schema's version and a graph."""
    assert recognise(folder(tmp_path / "model", b"\x08\x01\x12\xa0\x01...")).runtime == "tensorflow"


@pytest.mark.parametrize("head", [b"", b"\x08", b"\x0a\x01\x12", b"\x08\x01\x1a", b"not one"])
def test_another_file_of_that_name(tmp_path: Path, head: bytes):
    """What stands in saved_model.pb counts, not that it is there."""
    assert not tensorflow.recognises(folder(tmp_path / "model", head))


def test_a_keras_file(tmp_path: Path):
    """An archive with a configuration, and metadata that names Keras' version, whatever it is called."""
    assert recognise(keras_file(tmp_path / "model.zip", metadata=METADATA, config=CONFIG)).runtime == "tensorflow"


def test_an_unpacked_keras_file(tmp_path: Path):
    """Keras reads its folder as well."""
    for name, text in (("metadata", METADATA), ("config", CONFIG)):
        (tmp_path / f"{name}.json").write_text(text)
    assert recognise(tmp_path).runtime == "tensorflow"


@pytest.mark.parametrize(
    "members",
    [
        {"config": CONFIG},
        {"metadata": METADATA},
        {"metadata": "{}", "config": CONFIG},
        {"metadata": "[", "config": CONFIG},
        {"metadata": "[]", "config": CONFIG},
        {"metadata": METADATA, "config": "{}"},
    ],
)
def test_another_archive(tmp_path: Path, members: dict[str, str]):
    """An archive without either of the two, or with others of their names, is not Keras'."""
    assert not tensorflow.recognises(keras_file(tmp_path / "model.keras", **members))


def test_other_files(tmp_path: Path):
    """A file that is no archive, and an empty folder, are not TensorFlow's."""
    (tmp_path / "model.keras").write_bytes(b"weights")
    assert not tensorflow.recognises(tmp_path / "model.keras")
    (tmp_path / "empty").mkdir()
    assert not tensorflow.recognises(tmp_path / "empty")


def test_the_signature_that_is_meant():
    """That which is said, else the default, else the only one; otherwise the error lists all."""
    assert choose(["a", "serving_default"], None) == "serving_default"
    assert choose(["a", "serving_default"], "a") == "a"
    assert choose(["a"], None) == "a"
    for names, said, text in ((["a", "b"], None, "it has a, b"), ([], None, "it has none"), (["a"], "b", "has a")):
        with pytest.raises(ModelLoadError, match=text):
            choose(names, said)


def test_the_reason_in_a_long_message():
    """The kernel's own line, not the nodes that it stands among."""
    text = "Graph execution error:\n\nDetected at node x\nSizes differ: [2] [3]\n\t [[{{node x}}]] [Op:__inference_f_1]"
    assert reason(text) == "Sizes differ: [2] [3]"
    assert reason("one line [Op:Cast]") == "one line"
    assert reason("") == ""


def test_nothing_of_tensorflow_is_imported():
    """Not before a model is opened."""
    code = "import sys, prefork.runtimes.table as t; t.runtimes(); print({'tensorflow', 'keras'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == "set()"
