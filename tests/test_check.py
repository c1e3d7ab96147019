"""`prefork check`: what it finds of a model without serving it, how it says that, and its exit code."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from prefork.check import memory, pickles
from prefork.check.findings import Found, Preload, page
from running import SOURCE

FITTED = LinearRegression().fit(np.arange(4.0).reshape(-1, 1), np.arange(4.0))
INSTALLED = pickles.version("scikit-learn")
ENV = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}


def check(folder: Path, source: str, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "Model.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "prefork", "check", "Model", *args]
    return subprocess.run(command, check=False, cwd=folder, env=ENV, capture_output=True, text=True, timeout=60)


def found(folder: Path, source: str, *args: str, code: int = 0) -> dict[str, Any]:
    done = check(folder, source, "--json", *args)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout))


PLAIN = """
    import numpy as np
    print("the module has something to say")
    class Model:
        class_names = ["a"]
        def __init__(self, size=1):
            self.weights = np.ones(size << 17)
        def load(self):
            self.more = np.ones(8 << 17)
        def example(self):
            return [[1.0]]
        def predict(self, X, names):
            return X + self.weights.sum()
"""


def test_a_model_is_described(tmp_path):
    """Its file, the signature and style of its predict, and its hooks."""
    said = found(tmp_path, PLAIN)
    assert said["file"] == str(tmp_path / "Model.py")
    assert said["signature"] == "predict(X, names)"
    assert said["style"] == "Seldon's style"
    assert said["hooks"] == ["load", "predict", "class_names"]
    assert said["tried"] == "predict with the class's example"


def test_a_typed_signature_is_described_by_its_inputs(tmp_path):
    """In the named style each input is shown with its datatype and shape."""
    source = """
        from typing import Annotated
        import numpy as np
        from prefork import TensorSpec
        class Model:
            async def predict(self, rows: Annotated[np.ndarray, TensorSpec("FP32", (-1, 4))], limit: float = 0.5):
                return rows
    """
    said = found(tmp_path, source)
    assert said["style"] == "the named style, asynchronous"
    assert said["inputs"] == ["rows FP32[-1, 4]", "limit FP64[1] (optional)"]
    assert said["tried"] == "predict with zeros for what its signature says"


def test_packages_are_named_with_their_versions(tmp_path):
    """What the model brings in while it is imported, built and loaded is named as it is installed."""
    source = """
        class Model:
            def load(self):
                import sklearn.linear_model
            def predict(self, X, names):
                return X
    """
    assert found(tmp_path, source)["imports"]["scikit-learn"] == INSTALLED


def test_memory_is_measured_at_each_stage(tmp_path):
    """The stages come in their order, and what is built in one shows there and not in another."""
    stages = found(tmp_path, PLAIN, "-p", "size=40")["stages"]
    assert [stage["name"] for stage in stages] == ["start", "import", "constructor", "load()", "predict"]
    start, imported, built, loaded, _ = (stage["resident"] >> 20 for stage in stages)
    assert imported - start < 20
    assert 35 < built - imported < 50
    assert 5 < loaded - built < 15


def test_arrays_are_predicted_to_be_shared_and_objects_are_not(tmp_path):
    """Under preloading 40 MB of an array are counted once, 8 MB of load() in each worker; a dict's objects may be copied."""
    said = found(tmp_path, PLAIN, "-p", "size=40", "--workers", "4")
    preload = said["preload"]
    assert preload["shared"] > 40 << 20
    assert 8 << 20 < preload["private"] < 30 << 20
    assert preload["objects"] < 2 << 20
    assert said["each_without"] > 48 << 20
    source = """
        class Model:
            def __init__(self):
                self.words = {number: [float(number)] for number in range(100_000)}
            def predict(self, X, names):
                return X
    """
    assert 10 << 20 < found(tmp_path, source)["preload"]["objects"] < 30 << 20


def test_the_objects_of_this_process_are_counted(request):
    """The interpreter's own count grows by what small objects take, and not by an array."""
    gc.collect()
    gc.disable()
    request.addfinalizer(gc.enable)
    before = memory.measured()
    kept = [[float(number)] for number in range(50_000)]
    array = np.ones(8 << 20)  # over every threshold below which malloc would take room that it already has
    after = memory.measured()
    assert 50_000 * 56 < after.objects - before.objects < 50_000 * 150
    assert after.private - before.private > 0.9 * array.nbytes  # pages that others gave back meanwhile count against it
    assert len(kept) == 50_000


THREADED = """
    import threading
    class Model:
        def __init__(self):
            threading.Thread(target=threading.Event().wait).start()
        def predict(self, X, names):
            return X
"""


def test_the_verdict_on_preloading_is_the_guards(tmp_path):
    """What the fork guard would refuse is said in its words; that is a failure only where the settings ask for it."""
    said = found(tmp_path, THREADED)
    assert "It began at Model.py:5: threading.Thread(" in said["preload"]["refused"]
    assert found(tmp_path, THREADED, "--preload-app", code=3)["preload"] == said["preload"]
    assert "shared" not in said["preload"]


@pytest.mark.parametrize(
    ("body", "failed"),
    [
        ("import nowhere_to_be_found", "import: ModelLoadError: 'Model' imports 'nowhere_to_be_found'"),
        (
            "class Model:\n    def __init__(self):\n        raise ValueError('no file')",
            "constructor: ValueError: no file",
        ),
        ("class Model:\n    def load(self):\n        raise ValueError('no file')", "load(): ValueError: no file"),
        ("import os\nclass Model:\n    def load(self):\n        os.abort()", "the process ended behind constructor"),
    ],
)
def test_a_model_that_cannot_be_loaded_ends_with_3(tmp_path, body, failed):
    """The stage and what it raised; no verdict on preloading then."""
    said = found(tmp_path, body, code=3)
    assert said["failed"].startswith(failed)
    assert "preload" not in said


def test_the_page_is_short_and_holds_everything(tmp_path):
    """Without `--json` a line for each thing; nothing that the user's code prints is in between."""
    joblib.dump(FITTED, tmp_path / "model.joblib")
    done = check(tmp_path, PLAIN, "--workers", "3")
    assert done.returncode == 0
    heads = [line[:12].strip() for line in done.stdout.splitlines()]
    assert heads == ["model", "predict", "hooks", "imports", "pickled", "memory", "tried", "3 workers", "preload"]
    assert "something to say" in done.stderr


def test_a_page_says_what_a_refusal_says():
    """The guard's message is the verdict."""
    assert "preload     no. because" in page(Found(model="M", preload=Preload(refused="because")))


def test_without_a_model_it_says_how_to_name_one(tmp_path):
    """One line and exit code 2, as `prefork serve`."""
    command = [sys.executable, "-m", "prefork", "check"]
    done = subprocess.run(command, check=False, cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("prefork: no model to check: name it, as in `prefork check Iris`")


# --- pickled files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_version_in_a_pickle_is_read_without_unpickling(tmp_path, protocol):
    """Whatever the protocol, and wherever in the directory the file is."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "model.pkl").write_bytes(pickle.dumps(FITTED, protocol))
    (read,) = pickles.pickled([tmp_path])
    assert read == pickles.Pickled("deep/model.pkl", (INSTALLED,), INSTALLED)
    assert read.fits


@pytest.mark.parametrize("compress", [0, ("zlib", 3), ("gzip", 3), ("bz2", 3), ("lzma", 3), ("xz", 3)])
def test_the_version_in_a_file_of_joblibs_is_read(tmp_path, compress):
    """Arrays between the opcodes and each of joblib's compressions make no difference."""
    joblib.dump({"weights": np.arange(1000.0), "model": FITTED}, tmp_path / "model.joblib", compress=compress)
    assert [each.written for each in pickles.pickled([tmp_path])] == [(INSTALLED,)]


def test_another_version_is_said(tmp_path):
    """A file of another release is one that may fail; the page says both versions."""
    old = pickle.dumps(FITTED, 4).replace(b"\x8c" + bytes([len(INSTALLED)]) + INSTALLED.encode(), b"\x8c\x050.9.1")
    (tmp_path / "model.pkl").write_bytes(old)
    (read,) = pickles.pickled([tmp_path])
    assert (read.written, read.fits) == (("0.9.1",), False)
    assert f"model.pkl: scikit-learn 0.9.1, but {INSTALLED} is installed" in page(Found(model="M", pickles=[read]))


def test_what_is_no_model_is_passed_over(tmp_path):
    """Other files, other pickles, broken ones and those of an environment are not named."""
    (tmp_path / "data.pkl").write_bytes(pickle.dumps([1, 2, 3]))
    (tmp_path / "broken.joblib").write_bytes(b"\x1f\x8bnot gzip at all")
    (tmp_path / "notes.txt").write_bytes(pickle.dumps(FITTED))
    inside = tmp_path / ".venv" / "lib"
    inside.mkdir(parents=True)
    (inside / "model.pkl").write_bytes(pickle.dumps(FITTED))
    assert pickles.pickled([tmp_path]) == []


def test_a_saved_model_is_examined(tmp_path):
    """A path is examined as a class is: loaded and tried in a child, with the inputs that the file tells."""
    joblib.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), tmp_path / "line.joblib")
    done = subprocess.run(
        [sys.executable, "-m", "prefork", "check", "line.joblib", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    assert said["inputs"] == ["input FP64[-1, 1]"]
    assert said["style"] == "a saved model, served by sklearn"
    assert [stage["name"] for stage in said["stages"]][-2:] == ["load()", "predict"]
    assert "failed" not in said
