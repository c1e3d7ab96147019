"""The torch runtime beyond its cases: names and shapes of inputs, devices, threads, and what is refused in which words."""

from __future__ import annotations

import json
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from frameworks.cases.torch import ROWS, Dense, Table, answered, exported, scripted, traced
from prefork.errors import BadRequest, ModelLoadError
from prefork.payload import Kind, Payload, TensorSpec
from prefork.runtimes import torch as runtime
from prefork.runtimes.recognition import recognise
from prefork.runtimes.runtime import Opened, Options
from prefork.runtimes.saved import Saved

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]


def opened(path: Path, **parameters: Any) -> Opened:
    return runtime.open_(path, Options(parameters=parameters))


def asked(model: Opened, **given: Any) -> dict[str, Any]:
    return dict(model.run(model.takes.gather(Payload(Kind.TENSORS, given)), {}))


def script(module: torch.nn.Module, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(module.eval()).save(folder / "model.pt")
    return folder / "model.pt"


def program(module: torch.nn.Module, folder: Path, *given: Any, **options: Any) -> Path:
    torch.export.save(torch.export.export(module.eval(), given, **options), folder / "model.pt2")
    return folder / "model.pt2"


class Scaled(torch.nn.Module):
    """Arguments that need not be given, one of which is no tensor."""

    def forward(self, x: torch.Tensor, scale: float = 2.0, bias: torch.Tensor | None = None) -> torch.Tensor:
        return x * scale if bias is None else x * scale + bias


class Counted(torch.nn.Module):
    """A number that has to be given."""

    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        return x * times


class Found(NamedTuple):
    """Outputs with names."""

    best: torch.Tensor
    sums: torch.Tensor


class Nested(torch.nn.Module):
    """A dictionary of tensors in; what is nested out."""

    def forward(self, d: dict[str, torch.Tensor], scale: int = 3) -> dict[str, Any]:
        return {"best": d["a"] + d["b"], "both": [d["a"] * scale, d["b"]], "none": None}


class Changing(torch.nn.Module):
    """Writes into what it was given, and gives it back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)


class Half(torch.nn.Module):
    """In bfloat16, which numpy does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_program_says_what_it_takes(tmp_path: Path):
    """Names, datatypes and shapes with free axes, of inputs and outputs."""
    path, _ = exported(Table, ROWS, np.array([0, 1]))(tmp_path)
    assert recognise(path).runtime == "torch"
    found = opened(path)
    assert found.takes.described() == (TensorSpec("FP32", (-1, 4), "x"), TensorSpec("INT64", (-1,), "at"))
    assert found.outputs == (TensorSpec("FP32", (-1, 4), "sum"), TensorSpec("INT64", (-1,), "best"))
    assert found.takes.is_batched


def test_any_number_of_rows(tmp_path: Path):
    """A free axis takes any number of rows, and an axis that is fixed only its own."""
    path, _ = exported(Dense, ROWS)(tmp_path)
    found = opened(path)
    for rows in (np.zeros((1, 4), np.float32), np.ones((7, 4), np.float32)):
        np.testing.assert_array_equal(asked(found, x=rows)["output"], answered(Dense(), rows)["output"])
    with pytest.raises(BadRequest, match=r"input 'x' has the shape \[2, 3\], which does not fit \[-1, 4\]"):
        asked(found, x=ROWS[:, :3])
    fixed = opened(program(Dense(), tmp_path, torch.zeros(2, 4)))
    assert fixed.takes.described() == (TensorSpec("FP32", (2, 4), "x"),)
    assert not fixed.takes.is_batched


def test_a_bound_of_an_axis(tmp_path: Path):
    """More rows than the program was exported for are the client's mistake."""
    rows = torch.export.Dim("rows", max=4)
    found = opened(program(Dense(), tmp_path, torch.zeros(2, 4), dynamic_shapes={"x": {0: rows}}))
    with pytest.raises(BadRequest, match=r"the model does not take these inputs: .*size\(\)\[0\] <= 4"):
        asked(found, x=np.zeros((5, 4), np.float32))


def test_datatypes_of_a_program(tmp_path: Path):
    """JSON's numbers become what it wants where nothing is lost; else the input is named."""
    path, _ = exported(Table, ROWS, np.array([0, 1]))(tmp_path)
    found = opened(path)
    expected = answered(Table(), ROWS, np.array([0, 1]))
    answer = asked(found, x=ROWS.astype(np.float64), at=np.array([0.0, 1.0]))
    np.testing.assert_array_equal(answer["sum"], expected["sum"])
    with pytest.raises(BadRequest, match=r"input 'at' has the datatype FP64 and values that do not fit INT64"):
        asked(found, x=ROWS, at=np.array([0.5, 1.0]))
    with pytest.raises(BadRequest, match="missing input 'at'"):
        asked(found, x=ROWS)


def test_nested_arguments(tmp_path: Path):
    """A dictionary of tensors is flattened with its name before each; what was fixed at the export stays."""
    given = {"a": torch.zeros(2, 4), "b": torch.zeros(2, 4)}
    found = opened(program(Nested(), tmp_path, given, 5))
    assert [spec.name for spec in found.takes.described()] == ["d_a", "d_b"]
    answer = asked(found, d_a=ROWS, d_b=ROWS)
    assert list(answer) == ["best", "both_0", "both_1"] == [spec.name for spec in found.outputs or ()]
    np.testing.assert_array_equal(answer["both_0"], ROWS * 5)


def test_bfloat16(tmp_path: Path):
    """It travels as FP32."""
    found = opened(program(Half(), tmp_path, torch.zeros(2, 4, dtype=torch.bfloat16)))
    assert found.takes.described() == (TensorSpec("FP32", (2, 4), "x"),)
    answer = asked(found, x=np.full((2, 4), 1.5, np.float32))["output"]
    assert answer.dtype == np.float32
    np.testing.assert_array_equal(answer, np.full((2, 4), 3.0))


def test_a_named_tuple(tmp_path: Path):
    """Its fields are the outputs' names."""

    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Found:
            return Found(x.argmax(1), x.sum(1))

    answer = asked(opened(script(Two(), tmp_path)), x=ROWS)
    assert list(answer) == ["best", "sums"]


def test_script_without_words_on_its_inputs(tmp_path: Path):
    """Numbers with a fraction become the module's floats; what it refuses is the client's mistake, in torch's words."""
    path, _ = scripted(Dense, ROWS)(tmp_path)
    assert recognise(path).runtime == "torch"
    found = opened(path)
    assert found.takes.described() == (TensorSpec("", None, "x"),)
    expected = answered(Dense(), ROWS)["output"]
    np.testing.assert_array_equal(asked(found, x=ROWS.astype(np.float64))["output"], expected)
    with pytest.raises(
        BadRequest, match=r"the model does not take these inputs: mat1 and mat2 shapes cannot be multiplied"
    ):
        asked(found, x=ROWS[:, :3])
    with pytest.raises(BadRequest, match=r"but got Long and Float"):
        asked(found, x=ROWS.astype(np.int64))
    with pytest.raises(BadRequest, match=r"input 'x' has no numbers"):
        asked(found, x=np.array(["a"], object))


def test_a_double_module(tmp_path: Path):
    """Floats become the datatype of its parameters."""
    found = opened(script(Dense().double(), tmp_path))
    answer = asked(found, x=ROWS.astype(np.float64))["output"]
    np.testing.assert_array_equal(answer, answered(Dense().double(), ROWS.astype(np.float64))["output"])


def test_arguments_that_need_not_be_given(tmp_path: Path):
    """A tensor with a default is an optional input; a number with one is left alone; without one it is refused."""
    found = opened(script(Scaled(), tmp_path))
    assert found.takes.described() == (TensorSpec("", None, "x"), TensorSpec("", None, "bias", optional=True))
    np.testing.assert_array_equal(asked(found, x=ROWS)["output"], ROWS * 2)
    np.testing.assert_array_equal(asked(found, x=ROWS, bias=ROWS)["output"], ROWS * 2 + ROWS)
    with pytest.raises(ModelLoadError, match=r"forward takes 'times', a int; only tensors are served"):
        opened(script(Counted(), tmp_path))


def test_the_parameter_inputs(tmp_path: Path):
    """It declares datatypes and shapes, as a list or as JSON; what it says is checked."""
    path, _ = scripted(Dense, ROWS)(tmp_path)
    said = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    for each in (said, json.dumps(said)):
        found = opened(path, inputs=each)
        assert found.takes.described() == (TensorSpec("FP32", (-1, 4), "x"),)
        expected = answered(Dense(), np.ones((2, 4), np.float32))["output"]
        np.testing.assert_array_equal(asked(found, x=np.ones((2, 4), np.int64))["output"], expected)
    for wrong, message in (
        ([{"name": "y", "datatype": "FP32"}], r"inputs: 'y' is none of x"),
        ([{"name": "x", "datatype": "float"}], r"inputs: 'x': 'float' is no datatype of a tensor"),
        ([{"name": "x"}], r"inputs: Object missing required field `datatype`"),
        ("[", r"inputs: "),
    ):
        with pytest.raises(ModelLoadError, match=message):
            opened(path, inputs=wrong)
    program_path, _ = exported(Dense, ROWS)(tmp_path)
    with pytest.raises(ModelLoadError, match="an exported program says itself what it takes"):
        opened(program_path, inputs=said)


def test_a_traced_module_knows_datatypes(tmp_path: Path):
    """It has kept the inputs that it was traced with, of which the example is made too."""
    path, expected = traced(tmp_path)
    model = Saved("torch", path, Options())
    model.load()
    assert model.predict.takes.described() == (TensorSpec("FP32", (-1, -1), "x"),)
    assert model.example is not None
    assert model.example.value["x"].shape == (1, 4)
    for _ in range(4):  # the executor specialises after some calls
        answer = model.predict(Payload(Kind.TENSORS, {"x": ROWS})).value
        np.testing.assert_array_equal(answer["output"], expected["output"])
    model.close()


def test_a_requests_memory_is_its_own(tmp_path: Path):
    """What a module changes in place is not the request's array, if that is read-only; its answer is no view of an input."""
    found = opened(script(Changing(), tmp_path))
    given = ROWS.copy()
    given.flags.writeable = False
    np.testing.assert_array_equal(asked(found, x=given)["output"], ROWS + 1)
    np.testing.assert_array_equal(given, ROWS)
    writable = ROWS.copy()
    assert not np.shares_memory(asked(found, x=writable)["output"], writable)


@pytest.mark.parametrize("kind", ["state_dict", "module", "legacy"])
def test_weights_are_refused(tmp_path: Path, kind: str):
    """They have no code: nothing takes them for a model, and who insists is told what to do."""
    path = tmp_path / "weights.pt"
    torch.save(
        Dense() if kind == "module" else Dense().state_dict(), path, _use_new_zipfile_serialization=kind != "legacy"
    )
    assert not runtime.recognises(path)
    with pytest.raises(
        ModelLoadError, match=r"holds no program: it is a state_dict, .*save the model with torch.export.save"
    ):
        opened(path)


def test_a_damaged_program(tmp_path: Path):
    """What is wrong is said in a line, with both versions."""
    path, _ = exported(Dense, ROWS)(tmp_path)
    damaged = tmp_path / "damaged.pt2"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(damaged, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(b'"torch.ops.aten.linear.default"', b'"torch.ops.aten.gone.default"'))
    with pytest.raises(
        ModelLoadError, match=rf"cannot be loaded by torch {torch.__version__[:4]}.*written by torch 2\."
    ):
        opened(damaged)


def test_a_program_may_be_called_otherwise(tmp_path: Path):
    """Its name needs no `.pt2`."""
    path, expected = exported(Dense, ROWS)(tmp_path)
    moved = path.rename(tmp_path / "model.bin")
    assert recognise(moved).runtime == "torch"
    np.testing.assert_array_equal(asked(opened(moved), x=ROWS)["output"], expected["output"])


def test_a_program_that_others_can_write(tmp_path: Path):
    """An archive of torch.export has pickles inside: it is read only where nobody else could have written it, or where that is allowed."""
    path, _ = exported(Dense, ROWS)(tmp_path)
    path.chmod(0o666)
    with pytest.raises(ModelLoadError, match="everybody can write"):
        opened(path)
    assert runtime.open_(path, Options(allow_pickle=True)).outputs


def test_devices(tmp_path: Path):
    """The CPU unless there is a GPU; one that is asked for and not there is an error."""
    path, _ = exported(Dense, ROWS)(tmp_path)
    assert ", cpu, " in opened(path, device="cpu").facts
    with pytest.raises(ModelLoadError, match="device 'gpu'"):
        opened(path, device="gpu")
    if torch.cuda.is_available():
        found = runtime.open_(path, Options(device=0))
        assert ", cuda, " in found.facts
        np.testing.assert_allclose(asked(found, x=ROWS)["output"], answered(Dense(), ROWS)["output"], rtol=1e-3)
    else:
        assert ", cpu, " in runtime.open_(path, Options(device=0)).facts
        with pytest.raises(ModelLoadError, match=r"device 'cuda:0': torch .* finds no GPU here"):
            opened(path, device="cuda:0")


def test_threads(tmp_path: Path):
    """As many as the budget says, or the parameter."""
    path, _ = exported(Dense, ROWS)(tmp_path)
    before = torch.get_num_threads()
    try:
        runtime.open_(path, Options(threads=2))
        assert torch.get_num_threads() == 2
        opened(path, threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compile(tmp_path: Path):
    """A program is compiled where that is asked for; TorchScript is refused."""
    path, expected = exported(Dense, ROWS)(tmp_path)
    answer = asked(opened(path, compile=True), x=ROWS)["output"]
    np.testing.assert_allclose(answer, expected["output"], rtol=1e-5)
    with pytest.raises(ModelLoadError, match="TorchScript is compiled already"):
        opened(scripted(Dense, ROWS)(tmp_path)[0], compile=True)
