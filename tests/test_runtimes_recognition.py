"""What stands at a path is told by its content: files under any name, folders as other servers lay them out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from prefork.errors import ModelLoadError
from prefork.runtimes.recognition import look, recognise
from saved_files import ESTIMATOR, ONNX, mlflow, safetensors, skops


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def refusal(path: Path, runtime: str = "") -> str:
    with pytest.raises(ModelLoadError) as raised:
        recognise(path, runtime)
    return str(raised.value)


@pytest.mark.parametrize("name", ["m.onnx", "m", "m.pkl", "m.json", "m.txt"])
@pytest.mark.parametrize(
    ("content", "runtime"),
    [(ONNX, "onnx"), (ESTIMATOR, "sklearn"), (gzip.compress(ESTIMATOR), "sklearn")],
    ids=["onnx", "pickle", "gzip"],  # gzip's header has the time of day
)
def test_the_content_tells_and_the_suffix_does_not(tmp_path, name, content, runtime):
    """A file is what it holds, whatever it is called."""
    assert recognise(written(tmp_path / name, content)).runtime == runtime


def test_a_skops_archive_is_an_estimator(tmp_path):
    """A zip archive with a schema is skops'; another archive is nothing."""
    assert recognise(skops(tmp_path / "m.zip")).runtime == "sklearn"


@pytest.mark.parametrize(
    "content", [ONNX[:1], ESTIMATOR[:3], b"PK\x03\x04 cut off", b"\x1f\x8b\x08 cut off", b"x" * 999]
)
def test_what_is_cut_off_is_no_model(tmp_path, content):
    """A damaged file is refused in words and not by a failure of one who looked at it."""
    assert "no saved model" in refusal(written(tmp_path / "m.onnx", content)) or content[:1] == b"\x80"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("Iris.py", b"class Iris: ...", "Python code; serve a class by its name, as in `prefork serve Iris`"),
        ("m.bin", safetensors(), "weights (safetensors) without a model"),
        (
            "m.pkl",
            b"\x80\x04cmylib.steps\nCleaner\n.",
            "a pickle of objects of mylib; if they have scikit-learn's interface",
        ),
        ("m.onnx", b"", "the file is empty"),
        ("m.onnx", b"hello", "no saved model of a known kind; kinds of saved models: "),
    ],
)
def test_what_is_no_model_is_said_in_words(tmp_path, name, content, words):
    """The refusal says what is there instead, and what helps."""
    assert words in refusal(written(tmp_path / name, content))


def test_a_missing_path_and_an_unknown_runtime_are_said(tmp_path):
    """Neither is looked for any further."""
    assert refusal(tmp_path / "none") == f"there is no {tmp_path / 'none'}"
    assert "there is no runtime 'nope'; there are" in refusal(written(tmp_path / "m", ONNX), "nope")


def test_a_file_that_cannot_be_read_is_said_to_be(tmp_path):
    """The system's reason is the message; beside a model such a file is passed over."""
    (tmp_path / "broken").symlink_to("/proc/self/mem")  # opens, and cannot be read at its beginning
    assert "cannot be read: Input/output error" in refusal(tmp_path / "broken")
    assert "broken (Input/output error)" in refusal(tmp_path)
    written(tmp_path / "m.onnx", ONNX)
    assert recognise(tmp_path).path.name == "m.onnx"


def test_a_link_to_nothing_and_an_endless_one_are_passed_over(tmp_path):
    """What leads nowhere is no model, and is not followed for ever."""
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "again").symlink_to(inner)
    assert look(tmp_path) is None
    assert look(inner) is None


# --- folders


def test_the_one_model_in_a_folder_is_meant(tmp_path):
    """What lies beside it, as KServe's storage puts it there, does not matter."""
    for name in ("requirements.txt", "README.md", "tokenizer.json", ".hidden.onnx"):
        written(tmp_path / name, b"{}")
    written(tmp_path / "weights.bin", ONNX)
    assert recognise(tmp_path).path == tmp_path / "weights.bin"


def test_several_models_in_a_folder_are_named(tmp_path):
    """Which is meant has to be said."""
    written(tmp_path / "a.onnx", ONNX)
    written(tmp_path / "b.pkl", ESTIMATOR)
    assert "any of a.onnx, b.pkl could be meant; name the file" in refusal(tmp_path)


def test_the_file_called_model_is_meant_among_several(tmp_path):
    """Seldon's and MLServer's servers read `model.joblib`, `model.bst` and the like; others beside it are its parts."""
    written(tmp_path / "scaler.joblib", ESTIMATOR)
    written(tmp_path / "model.joblib", ESTIMATOR)
    assert recognise(tmp_path).path.name == "model.joblib"
    written(tmp_path / "model.onnx", ONNX)
    assert "any of model.joblib, model.onnx" in refusal(tmp_path)


def test_the_newest_numbered_folder_is_meant(tmp_path):
    """Versions as TensorFlow Serving lays them out: 10 is newer than 9."""
    for number in ("9", "10", "notes"):
        written(tmp_path / number / "model.onnx", ONNX)
    found = recognise(tmp_path)
    assert (found.path, found.version) == (tmp_path / "10" / "model.onnx", "10")


def test_numbered_folders_without_models_are_no_versions(tmp_path):
    """A folder of something else that is called by a number hides no model beside it."""
    written(tmp_path / "2024" / "report.txt", b"text")
    written(tmp_path / "m.onnx", ONNX)
    assert (recognise(tmp_path).path.name, recognise(tmp_path).version) == ("m.onnx", "")


def test_a_folder_in_a_folder_is_looked_into(tmp_path):
    """Where there is nothing else."""
    written(tmp_path / "artifacts" / "iris" / "m.onnx", ONNX)
    assert recognise(tmp_path).path == tmp_path / "artifacts" / "iris" / "m.onnx"


def test_an_mlflow_folder_is_one_model(tmp_path):
    """The files in it belong to it; it may lie in another folder, among other files."""
    assert recognise(mlflow(tmp_path / "flow")).runtime == "mlflow"
    written(tmp_path / "notes.txt", b"text")
    assert recognise(tmp_path).path == tmp_path / "flow"


def test_a_folder_without_a_model_is_described(tmp_path):
    """Its files are listed, up to a number; weights without a model are named."""
    assert "(it has nothing)" in refusal(tmp_path)
    for at in range(10):
        written(tmp_path / f"{at}.csv", b"1,2")
    assert "(it has 0.csv, 1.csv, 2.csv, 3.csv, 4.csv, 5.csv, 6.csv, 7.csv, 2 more)" in refusal(tmp_path)
    written(tmp_path / "model.safetensors", safetensors())
    assert "the folder has weights (safetensors)" in refusal(tmp_path)


# --- a runtime that was said


def test_a_runtime_that_was_said_takes_any_file(tmp_path):
    """Its content is not asked for: the runtime says what is wrong when it opens it."""
    path = written(tmp_path / "m", b"\x80\x04cmylib\nThing\n.")
    assert recognise(path, "sklearn").path == path
    assert recognise(tmp_path, "sklearn").path == path  # the only file of the folder


def test_a_runtime_that_was_said_chooses_among_several(tmp_path):
    """Of a folder's models the one of its kind is meant."""
    written(tmp_path / "a.onnx", ONNX)
    written(tmp_path / "b.pkl", ESTIMATOR)
    assert recognise(tmp_path, "sklearn").path.name == "b.pkl"
