"""The named style: V2 inputs and outputs out of the annotations of `predict`."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Annotated, Any, NotRequired, Optional, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from typing_extensions import TypeAliasType

from prefork.errors import BadAnswer, BadRequest, ModelLoadError
from prefork.model import Model
from prefork.model.casting import as_bytes, cast
from prefork.model.typed import Named, is_named
from prefork.payload import DATATYPES, Kind, Payload, TensorSpec

Rows = Annotated[np.ndarray, TensorSpec("FP32", (-1, 4))]
T = TypeVar("T", bound=np.generic)
Aliased = TypeAliasType("Aliased", Rows)
Of = TypeAliasType("Of", np.ndarray[Any, np.dtype[T]], type_params=(T,))


def spec_of(predict: Any) -> tuple[TensorSpec, ...]:
    inputs = Named(predict).inputs
    assert inputs is not None
    return inputs


def taken(predict: Any, request: Payload) -> dict[str, Any]:
    """The keyword arguments that a request becomes."""
    return Named(predict).arguments(request)


def tensors(**arrays: Any) -> Payload:
    return Payload(Kind.TENSORS, {name: np.asarray(array) for name, array in arrays.items()})


def text(*elements: bytes) -> np.ndarray:
    return np.array(elements, dtype=object)


# --- which style -------------------------------------------------------------------------------------------------


def sepal(sepal: np.ndarray, threshold: float = 0.5): ...
def only(x: np.ndarray): ...
def with_meta(x: np.ndarray, meta=None): ...
def seldon_plain(X, names): ...
def seldon_typed(X: np.ndarray, names: Iterable[str], meta: dict | None = None): ...
def seldon_other(features: np.ndarray, features_names: list[str]): ...
def seldon_default(X: np.ndarray, feature_names: list[str] | None = None): ...
def half(X: np.ndarray, threshold=0.5): ...
def open_ended(x: np.ndarray, **kwargs): ...
def positional(x: np.ndarray, /): ...
def nothing(meta: dict): ...


@pytest.mark.parametrize(
    ("predict", "named"),
    [
        (sepal, True),
        (only, True),
        (with_meta, True),
        (seldon_plain, False),
        (seldon_typed, False),
        (seldon_other, False),
        (seldon_default, False),
        (half, False),
        (open_ended, False),
        (positional, False),
        (nothing, False),
        (print, False),
    ],
)
def test_the_style_is_read_off_the_signature(predict: Any, named: bool):
    """Every parameter annotated and no `names` as the second: the named style. Everything else is Seldon's."""
    assert is_named(predict) is named


# --- what annotations mean ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "datatype", "shape", "optional"),
    [
        (np.ndarray, "", None, False),
        (npt.NDArray[np.float32], "FP32", None, False),
        (npt.NDArray[np.longlong], "INT64", None, False),
        (npt.NDArray[np.bool_], "BOOL", None, False),
        (npt.NDArray[np.str_], "BYTES", None, False),
        (npt.NDArray[np.floating], "", None, False),
        (npt.NDArray[Any], "", None, False),
        (Rows, "FP32", (-1, 4), False),
        (Annotated[np.ndarray, "words", TensorSpec("BF16")], "BF16", None, False),
        (Annotated[npt.NDArray[np.int8], TensorSpec(shape=(2,))], "INT8", (2,), False),
        (float, "FP64", (1,), False),
        (int, "INT64", (1,), False),
        (bool, "BOOL", (1,), False),
        (str, "BYTES", (1,), False),
        (bytes, "BYTES", (1,), False),
        (list[float], "FP64", (-1,), False),
        (list[list[int]], "INT64", (-1, -1), False),
        (Sequence[str], "BYTES", (-1,), False),
        (list, "", None, False),
        (Optional[float], "FP64", (1,), True),  # noqa: UP045 - users write it
        (float | None, "FP64", (1,), True),
        (Rows | None, "FP32", (-1, 4), True),
        (Aliased, "FP32", (-1, 4), False),
        (Aliased | None, "FP32", (-1, 4), True),
        (Of[np.int8], "INT8", None, False),
        (Annotated[Of[np.int8], TensorSpec(shape=(2,))], "INT8", (2,), False),
        (TypeAliasType("Maybe", Aliased | None), "FP32", (-1, 4), True),
        ("np.ndarray", "", None, False),
    ],
)
def test_annotations_are_tensors(annotation: Any, datatype: str, shape: tuple[int, ...] | None, optional: bool):
    """Each annotation of an input has its datatype, its shape, and whether it may be absent."""

    def predict(x): ...

    predict.__annotations__ = {"x": annotation}
    assert spec_of(predict) == (TensorSpec(datatype, shape, "x", optional),)


def test_a_default_makes_optional():
    """A parameter with a default need not be sent."""
    assert spec_of(sepal) == (TensorSpec("", None, "sepal"), TensorSpec("FP64", (1,), "threshold", optional=True))


@pytest.mark.parametrize("annotation", [dict, set[int], complex, int | str, "Missing", list[dict], [1]])
def test_what_is_no_input_stops_the_start(annotation: Any):
    """An annotation that is no input is refused with the parameter's name, what it is, and what there is instead."""

    def predict(x, y: float): ...

    predict.__annotations__["x"] = annotation
    with pytest.raises(ModelLoadError, match=r"predict\(x: .*use np.ndarray"):
        Named(predict)


def test_annotations_behind_decorators_are_found():
    """functools.wraps keeps the annotations, and the names in them are the original's."""

    @functools.wraps(sepal)
    def wrapped(*args, **kwargs): ...

    assert spec_of(wrapped) == spec_of(sepal)


# --- from requests to arguments ----------------------------------------------------------------------------------


def test_inputs_come_by_name():
    """V2's tensors are the arguments of their names; one that is absent is left to its default."""
    assert {name: value.tolist() for name, value in taken(sepal, tensors(sepal=[1.0, 2.0])).items()} == {
        "sepal": [1.0, 2.0]
    }
    assert taken(sepal, tensors(sepal=[1.0], threshold=[0.25]))["threshold"] == 0.25


def test_parameters_are_inputs_too():
    """A request parameter of V2 with an input's name is that input; a tensor of that name comes first."""
    request = tensors(sepal=[1.0])
    request.parameters = {"threshold": 0.75, "priority": 1}
    assert taken(sepal, request)["threshold"] == 0.75
    request.value["threshold"] = np.array([0.5])
    assert taken(sepal, request)["threshold"] == 0.5


def everything(  # noqa: PLR0917 - one of each
    a: float, b: int, c: bool, d: str, e: bytes, f: list[str], g: list[list[int]], h: npt.NDArray[np.str_], i: Rows
): ...


def test_values_are_what_the_annotation_promises():
    """Elements are Python's own, text is str where that is asked for, lists are nested lists, arrays are arrays."""
    request = tensors(
        a=[1], b=[2], c=[True], d=text("é".encode()), e=text(b"\xff"), f=text(b"x", b"y"), g=[[1], [2]], h=text(b"z"),
        i=np.zeros((2, 4), np.float32),
    )  # fmt: skip
    got = taken(everything, request)
    assert [got[name] for name in "abcdefg"] == [1.0, 2, True, "é", b"\xff", ["x", "y"], [[1], [2]]]
    assert [type(got[name]) for name in "abcd"] == [float, int, bool, str]
    assert (got["h"].dtype.kind, got["i"].dtype, got["i"].shape) == ("U", np.dtype("f4"), (2, 4))


def test_optional_without_a_default_is_none():
    """`T | None` may be absent, and is None then; JSON's null is absent."""

    def predict(x: np.ndarray, limit: float | None): ...

    assert taken(predict, tensors(x=[1]))["limit"] is None
    assert taken(predict, Payload(Kind.JSON, {"x": [1], "limit": None}))["limit"] is None


def test_meta_is_passed_when_it_is_asked_for():
    """A parameter called meta gets the request's meta, and is no input."""
    assert taken(with_meta, Payload(Kind.TENSOR, np.zeros(1), meta={"puid": "p"}))["meta"] == {"puid": "p"}
    assert [spec.name for spec in spec_of(with_meta)] == ["x"]


MATRIX = np.array([[1.0, 2.0], [3.0, 4.0]])


def two(a: np.ndarray, b: np.ndarray): ...
def column(a: Annotated[np.ndarray, TensorSpec("FP64", (-1, 1))], b: list[float]): ...


@pytest.mark.parametrize(
    ("predict", "names", "got"),
    [
        (only, None, {"x": [[1.0, 2.0], [3.0, 4.0]]}),
        (only, ["p", "q"], {"x": [[1.0, 2.0], [3.0, 4.0]]}),
        (sepal, None, {"sepal": [[1.0, 2.0], [3.0, 4.0]]}),
        (two, None, {"a": [1.0, 3.0], "b": [2.0, 4.0]}),
        (two, [{}, "a"], {"a": [1.0, 3.0], "b": [2.0, 4.0]}),
        (two, ["b", "a"], {"b": [1.0, 3.0], "a": [2.0, 4.0]}),
        (column, None, {"a": [[1.0], [3.0]], "b": [2.0, 4.0]}),
    ],
)
def test_one_array_is_the_only_input_or_its_columns(predict: Any, names: list[Any] | None, got: dict[str, Any]):
    """Seldon's array is the only input that is required, or each input's column by name, else by order."""
    found = taken(predict, Payload(Kind.TENSOR, MATRIX, names=names))
    assert {name: np.asarray(value).tolist() for name, value in found.items()} == got


def test_columns_of_one_row_are_single_values():
    """A row of named columns is a value for each parameter."""

    def predict(height: float, age: int): ...

    found = taken(predict, Payload(Kind.TENSOR, np.array([[1.5, 30.0]]), names=["height", "age"]))
    assert found == {"height": 1.5, "age": 30}
    with pytest.raises(BadRequest, match="input 'height' has the shape"):
        taken(predict, Payload(Kind.TENSOR, MATRIX, names=["height", "age"]))


def test_json_objects_are_inputs_by_key():
    """A JSON object's keys are the inputs, its numbers, texts and lists their values."""
    found = taken(everything, Payload(Kind.JSON, {
        "a": 1, "b": 2.0, "c": True, "d": "é", "e": "b", "f": ["x"], "g": [[1]], "h": ["z"], "i": [[1, 2, 3, 4]],
    }))  # fmt: skip
    assert [found[name] for name in "abcdefg"] == [1.0, 2, True, "é", b"b", ["x"], [[1]]]
    assert found["i"].dtype == np.float32


def test_one_value_is_the_only_input():
    """Text, bytes and a bare JSON value are the one input that there is."""

    def says(said: str): ...
    def reads(blob: bytes, limit: int = 3): ...

    assert taken(says, Payload(Kind.TEXT, "s")) == {"said": "s"}
    assert taken(reads, Payload(Kind.BYTES, b"\0b\0")) == {"blob": b"\0b\0"}
    assert taken(only, Payload(Kind.JSON, [[1, 2]]))["x"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("predict", "request_", "message"),
    [
        (sepal, tensors(threshold=[1.0]), "missing input 'sepal'; the model takes sepal, threshold"),
        (two, Payload(Kind.TENSOR, MATRIX, names=["a", "c"]), "missing input 'b'"),
        (two, Payload(Kind.TENSOR, np.zeros((1, 3))), "missing input 'a', 'b'"),
        (two, Payload(Kind.TEXT, "s"), "missing input 'a', 'b'"),
        (sepal, tensors(sepal=[1.0], petal=[2.0]), "unexpected input 'petal'; the model takes sepal, threshold"),
        (sepal, tensors(sepal=[1.0], threshold=[1.0, 2.0]), "input 'threshold' has the shape"),
        (sepal, Payload(Kind.JSON, {"sepal": [[1], [2, 3]]}), "input 'sepal' is a list of unequal elements"),
        (sepal, Payload(Kind.JSON, {"sepal": [1], "threshold": "high"}), "input 'threshold' has the datatype BYTES, which does not fit FP64"),
        (everything, Payload(Kind.JSON, {"b": 2.5, "a": 1}), "input 'b' has the datatype FP64, which does not fit INT64"),
        (everything, Payload(Kind.JSON, {"a": 1, "b": 1, "c": 1}), "input 'c' has the datatype INT64, which does not fit BOOL"),
        (everything, Payload(Kind.JSON, {"a": 1, "b": 1, "c": True, "d": 5}), "input 'd' has the datatype INT64, which does not fit BYTES"),
        (everything, tensors(a=[1], b=[1], c=[True], d=text(b"\xff")), "input 'd' is not UTF-8"),
        (two, Payload(Kind.RAW, {"customData": 1}), "Invalid request data type"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_named(predict: Any, request_: Payload, message: str):
    """A missing, unexpected or unfitting input is a 400 that names it and, where that is at fault, both datatypes."""
    with pytest.raises(BadRequest) as caught:
        taken(predict, request_)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("shape", "sent", "got"),
    [((-1,), (3, 1), (3,)), ((-1, 1), (3,), (3, 1)), ((1, 1), (1,), (1, 1)), ((-1, 4), (2, 4), (2, 4)), ((2,), (3,), None), ((-1, 4), (4,), None)],
)  # fmt: skip
def test_shapes_are_held_to(shape: tuple[int, ...], sent: tuple[int, ...], got: tuple[int, ...] | None):
    """A column may come with or without its second axis; any other shape than the declared one is a 400 that says both."""

    def predict(x): ...

    predict.__annotations__ = {"x": Annotated[np.ndarray, TensorSpec("FP64", shape)]}
    if got is not None:
        assert taken(predict, tensors(x=np.zeros(sent)))["x"].shape == got
        return
    with pytest.raises(BadRequest, match="input 'x' has the shape") as caught:
        taken(predict, tensors(x=np.zeros(sent)))
    assert str(list(sent)) in caught.value.message
    assert str(list(shape)) in caught.value.message


# --- data frames -------------------------------------------------------------------------------------------------


def framed(frame: pd.DataFrame, limit: float = 0.5): ...


@pytest.mark.parametrize(
    "request_",
    [
        tensors(a=[1.0, 3.0], b=text(b"x", b"y")),
        tensors(a=[[1.0], [3.0]], b=text(b"x", b"y")),
        Payload(Kind.TENSOR, np.array([[1.0, "x"], [3.0, "y"]], dtype=object), names=["a", "b"]),
        Payload(Kind.JSON, {"a": [1.0, 3.0], "b": ["x", "y"]}),
        Payload(Kind.JSON, [{"a": 1.0, "b": "x"}, {"a": 3.0, "b": "y"}]),
    ],
)
def test_a_data_frame_takes_all_columns(request_: Payload):
    """A data frame gets every column by name, numbers as numbers and text as str, from whatever protocol."""
    frame = taken(framed, request_)["frame"]
    pd.testing.assert_frame_equal(frame, pd.DataFrame({"a": [1.0, 3.0], "b": ["x", "y"]}), check_dtype=False)
    assert frame["a"].dtype == np.float64


def test_a_data_frame_without_names():
    """A matrix without names is a data frame with numbered columns; other parameters keep their own names."""
    assert taken(framed, Payload(Kind.TENSOR, MATRIX))["frame"].columns.tolist() == [0, 1]
    found = taken(framed, tensors(a=[1.0], limit=[0.25]))
    assert (found["frame"].columns.tolist(), found["limit"]) == (["a"], 0.25)
    assert Named(framed).inputs is None


def test_a_data_frame_known_by_name_only():
    """An annotation that cannot be resolved but is called DataFrame is pandas' data frame."""

    def predict(frame): ...

    predict.__annotations__ = {"frame": "nowhere.DataFrame"}
    assert isinstance(taken(predict, Payload(Kind.TENSOR, MATRIX))["frame"], pd.DataFrame)


@pytest.mark.parametrize("request_", [tensors(a=[1.0], b=[1.0, 2.0]), Payload(Kind.TEXT, "s")])
def test_what_makes_no_data_frame_is_refused(request_: Payload):
    """Columns of several lengths, and text, are a 400."""
    with pytest.raises(BadRequest, match="data frame"):
        taken(framed, request_)


def test_two_data_frames_stop_the_start():
    """One data frame takes all columns; a second cannot have any."""

    def predict(one: pd.DataFrame, other: pd.DataFrame): ...

    with pytest.raises(ModelLoadError, match="two data frames"):
        Named(predict)


# --- what it returns ---------------------------------------------------------------------------------------------


class Out(TypedDict):
    label: str
    scores: Annotated[np.ndarray, TensorSpec("FP32", (-1,))]
    count: int
    more: NotRequired[float]


def outputs(annotation: Any) -> tuple[TensorSpec, ...] | None:
    def predict(x: float): ...

    predict.__annotations__["return"] = annotation
    return Named(predict).outputs


def test_a_typed_dict_declares_outputs():
    """A TypedDict's keys are the outputs, with their datatypes, shapes and whether they may be absent."""
    assert outputs(Out) == (
        TensorSpec("BYTES", (1,), "label"),
        TensorSpec("FP32", (-1,), "scores"),
        TensorSpec("INT64", (1,), "count"),
        TensorSpec("FP64", (1,), "more", optional=True),
    )


@pytest.mark.parametrize(
    ("annotation", "declared"),
    [
        (Rows, (TensorSpec("FP32", (-1, 4), "predict"),)),
        (float, (TensorSpec("FP64", (1,), "predict"),)),
        (npt.NDArray[np.int8], (TensorSpec("INT8", None, "predict"),)),
        (Iterator[Rows], (TensorSpec("FP32", (-1, 4), "predict"),)),
        (AsyncIterator[str], (TensorSpec("BYTES", (1,), "predict"),)),
        (dict[str, np.ndarray], None),
        (pd.DataFrame, None),
        (None, None),
        ("Missing", None),
    ],
)
def test_one_output_is_called_predict(annotation: Any, declared: tuple[TensorSpec, ...] | None):
    """An array or an element is one output, `predict`; what names its outputs at run time declares none."""
    assert outputs(annotation) == declared


def test_an_iterator_streams():
    """A return annotation that is an iterator makes the model a streaming one, as a generator function does."""

    def gives(x: float) -> Iterator[str]:
        return iter(())

    assert Named(gives).streams
    assert not Named(sepal).streams


def answered(annotation: Any, result: Any) -> Payload:
    def predict(x: float):
        return result

    predict.__annotations__["return"] = annotation
    return Model(type("Own", (), {"predict": staticmethod(predict)})(), "m").answer(tensors(x=[1.0]))


def plain(value: Any) -> Any:
    return {name: array.tolist() for name, array in value.items()} if isinstance(value, dict) else value.tolist()


@pytest.mark.parametrize(
    ("annotation", "result", "kind", "value"),
    [
        (dict[str, np.ndarray], {"a": np.zeros(1), "b": 1.5, "c": "é"}, Kind.TENSORS, {"a": [0.0], "b": [1.5], "c": ["é".encode()]}),
        (dict[str, Any], {"a": ["x", "y"], "b": np.array(["z"]), "c": np.int8(3)}, Kind.TENSORS, {"a": [b"x", b"y"], "b": [b"z"], "c": [3]}),
        (Out, {"label": "l", "scores": [1, 2], "count": 3}, Kind.TENSORS, {"label": [b"l"], "scores": [1.0, 2.0], "count": [3]}),
        (np.ndarray, np.zeros((1, 2)), Kind.TENSOR, [[0.0, 0.0]]),
        (npt.NDArray[np.float32], [1, 2], Kind.TENSOR, [1.0, 2.0]),
        (float, 3, Kind.TENSOR, [3.0]),
        (None, True, Kind.TENSOR, [True]),
    ],
)  # fmt: skip
def test_results_are_tensors(annotation: Any, result: Any, kind: Kind, value: Any):
    """Results go out as tensors of the declared datatypes; an element has the shape [1], text is BYTES."""
    answer = answered(annotation, result)
    assert (answer.kind, plain(answer.value)) == (kind, value)


def test_declared_datatypes_are_kept():
    """An output has the datatype that its annotation says, not the one that numpy chose."""
    answer = answered(Out, {"label": "l", "scores": [0.1, 2], "count": np.int32(3)})
    assert (answer.value["scores"].dtype, answer.value["count"].dtype) == (np.dtype("f4"), np.dtype("i8"))


@pytest.mark.parametrize("result", [{"a": {"b": 1}}, {"a": None}, {1: 2.0}])
def test_other_dicts_are_json(result: dict[Any, Any]):
    """A dict that holds more than tensors is JSON."""
    assert (answered(dict, result).kind, answered(dict, result).value) == (Kind.JSON, result)


def test_text_and_bytes_stay_what_they_are():
    """A str and bytes answer as such, for protocols that have a form for them."""
    assert (answered(str, "s").kind, answered(bytes, b"b").kind) == (Kind.TEXT, Kind.BYTES)


@pytest.mark.parametrize(
    ("annotation", "result", "message"),
    [
        (Out, {"label": "l", "count": 1}, "output 'scores' is missing; the model returned label, count"),
        (Out, {"label": "l", "scores": {}, "count": 1}, "output 'scores' is a dict, which is no tensor"),
        (Out, {"label": "l", "scores": ["a"], "count": 1}, "output 'scores' has the datatype BYTES, which does not fit FP32"),
        (Out, {"label": "l", "scores": [1], "count": 1.5}, "output 'count' has the datatype FP64, which does not fit INT64"),
        (npt.NDArray[np.int8], [300], "output 'predict' has the datatype INT64, which does not fit INT8"),
        (np.ndarray, None, "Unknown data type returned"),
    ],
)  # fmt: skip
def test_results_that_are_not_what_was_promised_are_named(annotation: Any, result: Any, message: str):
    """A result that breaks its own annotation is a 500 that names the output."""
    with pytest.raises(BadAnswer) as caught:
        answered(annotation, result)
    assert caught.value.message.startswith(message)


# --- casting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "datatype", "kept"),
    [
        (np.array([1, 2]), "FP32", True),
        (np.array([1, 2]), "FP64", True),
        (np.array([0.1]), "FP32", True),
        (np.array([1.0, -2.0]), "INT8", True),
        (np.array([1.5]), "INT64", False),
        (np.array([np.nan]), "INT64", False),
        (np.array([np.nan, np.inf]), "FP16", True),
        (np.array([1e300]), "FP32", False),
        (np.array([1e5]), "FP16", False),
        (np.array([300]), "UINT8", False),
        (np.array([-1]), "UINT64", False),
        (np.array([2**63], dtype="u8"), "INT64", False),
        (np.array([2.0**63]), "INT64", False),
        (np.array([True]), "INT8", True),
        (np.array([1]), "BOOL", False),
        (np.array(["1"]), "FP64", False),
        (np.array([1]), "BYTES", False),
        (np.array([], dtype="f8"), "INT8", True),
        (np.array([2**70], dtype=object), "FP64", False),
        (np.array([1j]), "FP64", False),
        (np.array([1.5]), "BF16", True),
        (np.array([1.5]), "", True),
    ],
)
def test_casts_lose_nothing(array: np.ndarray, datatype: str, kept: bool):
    """Numbers become another datatype where they keep their value, up to the rounding of fractions; text and booleans do not."""
    found = cast(array, datatype)
    assert (found is not None) is kept
    if found is not None and datatype in DATATYPES:
        assert found.dtype == DATATYPES[datatype]


NUMBERS = [name for name in DATATYPES if name not in {"BYTES", "BOOL"}]


@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_integers_survive_or_are_refused(data: st.DataObject, one: str, other: str):
    """A cast to an integer datatype is the same numbers, or none."""
    array = data.draw(hnp.arrays(DATATYPES[one], hnp.array_shapes(max_dims=2, max_side=3)))
    found = cast(array, other)
    if found is not None and other.startswith(("INT", "UINT")):
        assert [int(value) for value in found.ravel().tolist()] == array.ravel().tolist()


@given(st.lists(st.text() | st.binary(), max_size=4))
def test_text_is_utf_8(elements: list[str | bytes]):
    """Text becomes bytes in UTF-8, bytes stay."""
    found = as_bytes(np.fromiter(elements, dtype=object, count=len(elements)))
    assert found is not None
    assert found.tolist() == [element.encode() if isinstance(element, str) else element for element in elements]
