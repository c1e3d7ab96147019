"""One model's folder: which versions it has, what each serves, and what is wrong before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.errors import RepositoryError
from prefork.repository import folder, policy
from prefork.repository.config import ModelConfig, VersionPolicy
from prefork.repository.folder import Known, Place, Recognised, class_of
from prefork.repository.source import Source
from repository_files import MODEL, put

SERVED = [
    ({"1/model.py": MODEL}, {1: "model:Model"}),
    ({"model.py": MODEL}, {1: "model:Model"}),
    ({"model.py": MODEL, "iris.joblib": "", "data/a.csv": ""}, {1: "model:Model"}),
    ({"1/model.py": MODEL, "2/model.py": MODEL, "10/model.py": MODEL}, {10: "model:Model"}),
    ({"1/w.bin": "", "2/w.bin": "", "model.py": MODEL}, {2: "model:Model"}),
    ({"model.yaml": "versions: all", "1/model.py": MODEL, "2/Iris.py": "class Iris:\n    def predict(self): ..."},
     {1: "model:Model", 2: "Iris:Iris"}),
    ({"model.yaml": "versions: [1, 7]", "1/model.py": MODEL, "2/model.py": MODEL}, {1: "model:Model"}),
    ({"01/model.py": MODEL, "abc/model.py": MODEL, "1/model.py": MODEL}, {1: "model:Model"}),
    ({"model.yaml": "class: iris:Forest", "1/iris.py": "class Forest: ..."}, {1: "iris:Forest"}),
    ({"model.yaml": "class: Iris", "1/Iris.py": "class Iris: ..."}, {1: "Iris:Iris"}),
    ({"model.yaml": "class: pkg.iris.Forest", "1/pkg/iris.py": "class Forest: ..."}, {1: "pkg.iris:Forest"}),
    ({"model.yaml": "class: pkg:make", "pkg/__init__.py": "def make(): ..."}, {1: "pkg:make"}),
    ({"model.yaml": "class: model:Forest", "model.py": "from forests import Forest"}, {1: "model:Forest"}),
    ({"model.yaml": "file: served.py", "1/served.py": MODEL, "1/model.py": "x"}, {1: "served:Model"}),
    ({"model.yaml": "class: a:B\npython: /opt/env", "a.py": "match x: nonsense"}, {1: "a:B"}),
    ({"config.pbtxt": "", "1/model.py": "class TritonPythonModel:\n    def execute(self, requests): ..."},
     {1: "model:TritonPythonModel"}),
    ({"config.pbtxt": "version_policy { all {} }", "model.yaml": "threads: 2", "1/model.py": MODEL, "2/model.py": MODEL},
     {1: "model:Model", 2: "model:Model"}),
    ({"Iris.py": "class Iris:\n    def predict(self): ...", "helpers.py": "class Other: ...", "test_iris.py": "class Test_Iris: ..."},
     {1: "Iris:Iris"}),
]  # fmt: skip

REFUSED = [
    ({}, "at least one version must be available under the version policy of model 'm'; there is none"),
    ({"config.pbtxt": ""}, "at least one version must be available"),
    ({"01/model.py": MODEL}, "at least one version must be available"),
    ({"model.yaml": "versions: [3]", "1/model.py": MODEL, "2/model.py": MODEL}, "there are 1, 2"),
    ({"1/": ""}, "m/1: there is nothing to serve; model.py"),
    ({"1/weights.bin": ""}, "m/1: there is nothing to serve; model.py"),
    ({"model.yaml": "versions: all", "1/model.py": MODEL, "2/": ""}, "m/2: there is nothing to serve"),
    ({"model.yaml": "file: served.py", "1/model.py": MODEL}, "m/1: there is no served.py"),
    ({"model.yaml": "class: iris:Iris", "1/model.py": MODEL}, "'iris:Iris': there is no iris.py in "),
    ({"model.yaml": "class: model:Iris", "1/model.py": MODEL}, "1/model.py: there is no 'Iris'; it has Model"),
    ({"model.yaml": "class: model:Iris", "1/model.py": ""}, "1/model.py: there is no 'Iris'; it has no class"),
    ({"model.yaml": "class: a/b.py", "1/model.py": MODEL}, "'a/b.py' is no import path"),
    ({"model.yaml": "class: '..x:Y'", "1/model.py": MODEL}, "is no import path"),
    ({"model.yaml": "runtime: onnx", "1/model.onnx": ""}, "there is no runtime 'onnx'; there is none"),
    ({"model.yaml": "name: other", "1/model.py": MODEL}, "calls the model 'other', its folder 'm'"),
    ({"model.yaml": "treads: 2", "1/model.py": MODEL}, "model.yaml: treads: no such key"),
    ({"config.pbtxt": "name: 3", "1/model.py": MODEL}, "config.pbtxt: name: "),
    ({"1/model.py": "class A:\n  def predict(self): ...\nclass B:\n  def predict(self): ..."},
     "1/model.py: any of A, B could be meant; say `class: model:Class` in model.yaml"),
    ({"1/model.py": "x = 1"}, "1/model.py: there is no class with predict"),
    ({"1/model.py": "def f(:\n"}, "1/model.py: line 1: "),
    ({"1/model.py": "\0"}, "1/model.py: "),
    ({"A.py": "class A: ...", "B.py": "class B: ..."}, "any of A.py, B.py could be meant"),
    ({"model.yaml": "warmup: a.json", "1/model.py": MODEL}, "m/1: there is no a.json, which the warm-up names"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "classes"), SERVED, ids=[" ".join(files) for files, _ in SERVED])
def test_what_is_served(tmp_path: Path, files: dict[str, str], classes: dict[int, str]):
    """The versions that the policy takes, and the class of each, out of what the folder holds."""
    found = folder.read(put(tmp_path / "m", files), "m")
    assert {number: version.config.class_ for number, version in found.versions.items()} == classes
    assert all(version.config.name == "m" for version in found.versions.values())
    assert [version.number for version in found.versions.values()] == list(classes)


@pytest.mark.parametrize(("files", "problem"), REFUSED, ids=[" ".join(files) or "nothing" for files, _ in REFUSED])
def test_what_is_refused(tmp_path: Path, files: dict[str, str], problem: str):
    """What could not be loaded is told before anything is started, with the file."""
    with pytest.raises(RepositoryError) as caught:
        folder.read(put(tmp_path / "m", files), "m")
    assert problem in caught.value.message


def test_where_a_version_is(tmp_path: Path):
    """A version has its own folder, and the model's that all of them share; a single version has one for both."""
    model = put(tmp_path / "m", {"model.yaml": "versions: all", "1/model.py": MODEL, "3/model.py": MODEL})
    places = {number: (each.folder, each.model_folder) for number, each in folder.read(model, "m").versions.items()}
    assert places == {1: (model / "1", model), 3: (model / "3", model)}
    single = put(tmp_path / "s", {"model.py": MODEL})
    version = folder.read(single, "s").versions[1]
    assert (version.folder, version.model_folder) == (single, single)


def test_what_is_noted(tmp_path: Path):
    """Folders that look like versions, versions that are asked for and missing, and Triton's fields without effect are notes."""
    files = {"config.pbtxt": "optimization { eager_batching: true }", "model.yaml": "versions: [1, 4]"}
    found = folder.read(put(tmp_path / "m", {**files, "1/model.py": MODEL, "02/": "", "v3/": "", "lib/": ""}), "m")
    assert found.notes == (
        "optimization has no effect",
        "02 is no version and is ignored",
        "v3 is no version and is ignored",
        "version 4 is not there",
    )


def test_model_yaml_goes_over_config_pbtxt(tmp_path: Path):
    """Where both are there, what model.yaml says counts, and the rest is config.pbtxt's."""
    files = {"config.pbtxt": "max_batch_size: 8 instance_group { count: 2 }", "model.yaml": "instances: 5"}
    found = folder.read(put(tmp_path / "m", {**files, "1/model.py": MODEL}), "m")
    assert (found.config.max_rows, found.config.instances) == (8, 5)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("env/bin/python", "{m}/env/bin/python"),
        ("./env", "{m}/env"),
        ("/opt/env", "/opt/env"),
        ("python3.12", "python3.12"),
    ],
)
def test_an_interpreter_of_its_own(tmp_path: Path, said: str, found: str):
    """A relative path starts at the model's folder; a plain name is looked up where commands are."""
    model = put(tmp_path / "m", {"model.yaml": f"python: {said}", "model.py": MODEL})
    assert folder.read(model, "m").config.python == found.format(m=model)


def test_a_config_instead_of_the_files(tmp_path: Path):
    """A config that is given stands for all that the folder's files say."""
    model = put(tmp_path / "m", {"model.yaml": "threads: 3\nbroken: 1", "1/model.py": MODEL, "2/model.py": MODEL})
    found = folder.read(model, "m", ModelConfig(versions=VersionPolicy(specific=(1,))))
    assert list(found.versions) == [1]
    assert found.config.threads == 1


def test_a_recogniser_is_asked_for_what_is_no_class(tmp_path: Path):
    """What is no Python class is what the first recogniser says, unless the config says it; a class needs none."""

    def onnx(place: Place, config: ModelConfig) -> Recognised | None:
        return Recognised(runtime="onnx") if place.find(config.file or "model.onnx") else None

    known = Known((onnx,), frozenset({"onnx", "other"}))
    model = put(tmp_path / "m", {"1/model.onnx": ""})
    assert folder.read(model, "m", known=known).versions[1].config.runtime == "onnx"
    named = ModelConfig(file="a.onnx")
    assert folder.read(put(tmp_path / "n", {"1/a.onnx": ""}), "n", named, known).versions[1].config.runtime == "onnx"
    said = ModelConfig(runtime="other")
    assert folder.read(model, "m", said, known).versions[1].config.runtime == "other"
    with pytest.raises(RepositoryError, match="there is no runtime 'third'; there are onnx, other"):
        folder.read(model, "m", ModelConfig(runtime="third"), known)
    both = put(tmp_path / "b", {"1/model.onnx": "", "1/model.py": MODEL})
    assert folder.read(both, "b", known=known).versions[1].config.class_ == "model:Model"


# --- which class --------------------------------------------------------------------------------------------------

HOOKED = "class {}({}):\n    def predict(self, X): ...\n"
CLASSES = [
    (MODEL, "Model"),
    (HOOKED.format("Anything", ""), "Anything"),
    ("class Config: ...\n" + HOOKED.format("Forest", ""), "Forest"),
    (HOOKED.format("_Hidden", "") + HOOKED.format("Forest", ""), "Forest"),
    (HOOKED.format("Base", "") + "class Iris(Base): ...\n", "Iris"),
    (HOOKED.format("Other", "") + HOOKED.format("My_Iris", ""), "My_Iris"),
    (HOOKED.format("Model", "") + HOOKED.format("MyIris", ""), "MyIris"),
    (HOOKED.format("Other", "") + HOOKED.format("Model", ""), "Model"),
    (HOOKED.format("Other", "") + HOOKED.format("TritonPythonModel", ""), "TritonPythonModel"),
    ("from lib import Base\nclass Forest(Base): ...\n", "Forest"),
    ("from lib import Base\nclass Forest(Base): ...\nclass Model(Base): ...\n", "Model"),
    ("class Forest:\n    async def predict(self, X): ...\n", "Forest"),
    ("class Forest:\n    predict = property(print)\nclass Other: ...\n", "Forest"),
    ("class Forest:\n    def predict_raw(self, msg): ...\nclass Other: ...\n", "Forest"),
    ("try:\n    import a\nexcept ImportError:\n    class Forest:\n        def predict(self): ...\n", "Forest"),
    ("class A(A):\n    x = 1\n", "A"),
]


@pytest.mark.parametrize(("source", "name"), CLASSES, ids=[str(number) for number in range(len(CLASSES))])
def test_which_class_is_meant(tmp_path: Path, source: str, name: str):
    """The class with hooks; of several the one called like the model, the file or `Model`; never one that is derived from."""
    place = Place("my-iris", put(tmp_path, {"model.py": source}), tmp_path)
    assert class_of(place, ModelConfig()) == Recognised(class_=f"model:{name}")


@pytest.mark.parametrize(
    "source",
    ["class B: ...", "def B(): ...", "import B", "from a import c as B", "B = make()", "A, B = 1, 2", "B: int = 1",
     "from a import *", "def __getattr__(name): ...", "if x:\n  class B: ...", "with x:\n  B = 1"],
)  # fmt: skip
def test_what_may_be_a_class(tmp_path: Path, source: str):
    """A name that a module binds, or may bind in a way that its text does not tell, is no error before the module is run."""
    put(tmp_path, {"a.py": source})
    Source(tmp_path / "a.py").check("B.C")


def test_the_module_is_not_run(tmp_path: Path):
    """Looking at a module does not execute it."""
    model = put(tmp_path / "m", {"model.py": f"open({str(tmp_path / 'ran')!r}, 'w')\n{MODEL}"})
    folder.read(model, "m")
    assert not (tmp_path / "ran").exists()


# --- versions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "versions"),
    [
        (VersionPolicy(), (5,)),
        (VersionPolicy(latest=2), (3, 5)),
        (VersionPolicy(latest=9), (1, 3, 5)),
        (VersionPolicy(all=True), (1, 3, 5)),
        (VersionPolicy(specific=(5, 1, 4, 1)), (1, 5)),
    ],
)
def test_policies(said: VersionPolicy, versions: tuple[int, ...]):
    """The latest so many, all, or those that are named and there."""
    assert policy.served(said, [5, 1, 3]) == versions
    assert policy.served(said, []) == ()


@pytest.mark.parametrize(
    ("name", "number"),
    [("1", 1), ("20240131", 20240131), ("0", None), ("01", None), ("-1", None), ("1.0", None), ("a", None), ("", None),
     ("\u0661", None), ("9" * 19, None)],
)  # fmt: skip
def test_version_names(name: str, number: int | None):
    """A version is a whole number of at least 1 in ASCII, without leading zeros, that fits in 64 bits."""
    assert policy.number(name) == number


@given(st.sets(st.integers(1, 50)), st.integers(1, 60))
def test_latest_are_the_highest(there: set[int], latest: int):
    """No version that is left out is higher than one that is served."""
    served = policy.served(VersionPolicy(latest=latest), there)
    assert len(served) == min(latest, len(there))
    assert all(each < min(served) for each in there - set(served))


def test_code_may_be_as_long_as_python_takes_it(tmp_path: Path):
    """A class behind thousands of branches is found; one at the end of too many bases is the model's error."""
    branches = "".join(f"elif x == {number}:\n    pass\n" for number in range(1000))
    place = put(tmp_path / "a", {"model.py": f"x = 1\nif x == -1:\n    pass\n{branches}{MODEL}"})
    assert folder.read(place, "a").versions[1].config.class_ == "model:Model"
    bases = "".join(f"class C{number + 1}(C{number}): ...\n" for number in range(3000))
    place = put(tmp_path / "b", {"model.py": f"class C0: ...\n{bases}"})
    with pytest.raises(RepositoryError, match="nests too deep to be read"):
        folder.read(place, "b")
