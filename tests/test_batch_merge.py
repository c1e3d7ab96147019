"""merge: which requests are merged, that nothing is lost on the way in and out, and which answers have no rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prefork.batch.merge import Merge, split
from prefork.errors import BadAnswer
from prefork.model import Model
from prefork.payload import DATATYPES, Kind, ModelSpec, Payload, TensorSpec

SPEC = ModelSpec("m")
X = np.array([[1.0, 2.0]])


def tensor(value: Any = X, **more: Any) -> Payload:
    return Payload(Kind.TENSOR, np.asarray(value), **more)


def tensors(**value: Any) -> Payload:
    return Payload(Kind.TENSORS, {name: np.asarray(array) for name, array in value.items()})


def fit(one: Payload, other: Payload, spec: ModelSpec = SPEC) -> bool:
    merge = Merge(spec)
    key, also = merge.measure(one)[1], merge.measure(other)[1]
    return key is not None and key == also


MERGED = {
    "rows": (tensor(), tensor(np.ones((5, 2)))),
    "vectors": (tensor([1.0, 2.0]), tensor([1.0])),
    "named": (tensors(a=X, b=[1]), tensors(a=np.ones((3, 2)), b=[1, 2, 3])),
    "the same names": (tensor(names=["a", "b"]), tensor(names=["a", "b"])),
    "no names": (tensor(names=[]), tensor()),
    "the same parameters": (tensor(parameters={"t": 1}), tensor(parameters={"t": 1})),
    "parameters of the queue": (tensor(parameters={"timeout": 5, "priority": 1}), tensor()),
    "those in meta": (tensor(meta={"parameters": {"timeout": 5}}), tensor()),
    "Seldon's accounts": (tensor(meta={"puid": "1", "routing": {"a": 1}}), tensor(meta={"puid": "2", "metrics": []})),
    "empty tags": (tensor(meta={"tags": {}}), tensor(meta=None)),
    "the same tags": (tensor(meta={"tags": {"a": 1}}), tensor(meta={"tags": {"a": 1}, "puid": "3"})),
}
APART = {
    "dtypes": (tensor(), tensor(np.array([[1, 2]]))),
    "columns": (tensor(), tensor([[1.0, 2.0, 3.0]])),
    "axes": (tensor(), tensor([1.0, 2.0])),
    "kinds": (tensor(), tensors(a=X)),
    "inputs": (tensors(a=X), tensors(b=X)),
    "the order of inputs": (tensors(a=X, b=X), tensors(b=X, a=X)),
    "names": (tensor(names=["a", "b"]), tensor(names=["b", "a"])),
    "parameters": (tensor(parameters={"t": 1}), tensor(parameters={"t": 2})),
    "types of parameters": (tensor(parameters={"t": 1}), tensor(parameters={"t": True})),
    "parameters in meta": (tensor(meta={"parameters": {"t": 1}}), tensor()),
    "tags": (tensor(meta={"tags": {"a": 1}}), tensor()),
    "headers": (tensor(meta={"headers": {"a": "1"}}), tensor(meta={"headers": {"a": "2"}})),
}
ALONE = {
    "another method": tensor(method="transform_input"),
    "feedback": Payload(Kind.FEEDBACK, None, "send_feedback"),
    "aggregate": Payload(Kind.MANY, [tensor()], "aggregate"),
    "raw": Payload(Kind.RAW, {"data": 1}),
    "JSON": Payload(Kind.JSON, [1, 2]),
    "text": Payload(Kind.TEXT, "x"),
    "bytes": Payload(Kind.BYTES, b"x"),
    "no axis": tensor(1.0),
    "no rows": tensor(np.empty((0, 2))),
    "no inputs": tensors(),
    "unequal rows": tensors(a=[1, 2], b=[1]),
    "what JSON cannot say": tensor(meta={"model": object()}),
}


@pytest.mark.parametrize("case", MERGED)
def test_merged(case):
    """Requests that the model could not tell apart but by their rows have one key."""
    assert fit(*MERGED[case])


@pytest.mark.parametrize("case", APART)
def test_kept_apart(case):
    """Requests that differ in anything that the model is shown have different keys."""
    assert all(Merge(SPEC).measure(one)[1] is not None for one in APART[case])
    assert not fit(*APART[case])


@pytest.mark.parametrize("case", ALONE)
def test_alone(case):
    """What has no rows, or is no prediction, has no key, and counts at least one row."""
    rows, key = Merge(SPEC).measure(ALONE[case])
    assert key is None
    assert rows >= 1


@pytest.mark.parametrize("spec", [ModelSpec("m", streams=True), ModelSpec("m", raw=frozenset({"predict"}))])
def test_models_that_are_never_batched(spec):
    """A model that streams, or that wants the message whole, gets its requests one by one."""
    assert Merge(spec).measure(tensor())[1] is None


def test_rows_are_counted_along_the_first_axis():
    """A request has as many rows as its arrays have along the first axis, merged or not."""
    merge = Merge(SPEC)
    assert merge.measure(tensor(np.ones((5, 2))))[0] == 5
    assert merge.measure(tensors(a=[1, 2, 3], b=np.ones((3, 4))))[0] == 3
    assert merge.measure(tensor(np.ones((7, 2)), method="transform_input"))[0] == 7


# --- the named style ---------------------------------------------------------------------------------------------


class Threshold:
    def predict(self, x: np.ndarray, threshold: float = 0.5) -> np.ndarray:
        return x > threshold


class Row:
    def predict(self, a: float, b: float) -> float:
        return a + b


class Columns:
    def predict(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b


def spec_of(user_object: object) -> ModelSpec:
    return Model(user_object, "m").spec


def test_an_input_without_rows_has_to_be_equal_and_is_passed_on_once():
    """`threshold: float` is one value for a whole call: requests with the same one are merged, others are not."""
    spec = spec_of(Threshold())
    one, same, other = (tensors(x=[float(at), 1.0], threshold=[t]) for at, t in enumerate((0.5, 0.5, 0.7)))
    assert fit(one, same, spec)
    assert not fit(one, other, spec)
    merged = Merge(spec).merge([one, same])
    assert merged.value["x"].tolist() == [0.0, 1.0, 1.0, 1.0]
    assert merged.value["threshold"].tolist() == [0.5]


def test_a_predict_for_one_row_is_not_batched():
    """A predict whose inputs all are single values cannot take more than one row, however that comes."""
    spec = spec_of(Row())
    assert Merge(spec).measure(tensors(a=[1.0], b=[2.0]))[1] is None
    assert Merge(spec).measure(tensor([[1.0, 2.0]]))[1] is None


def test_a_matrix_for_the_only_required_input_is_merged():
    """One array without names is that input; with names its columns might be the single values."""
    spec = spec_of(Threshold())
    assert fit(tensor(), tensor(), spec)
    assert not fit(tensor(names=["x", "threshold"]), tensor(names=["x", "threshold"]), spec)
    assert fit(tensor(names=["a", "b"]), tensor(names=["a", "b"]), spec_of(Columns()))


def test_what_fits_a_declared_shape_only_by_chance_is_not_merged():
    """A single element fits any shape of ones, two of them do not; [n] and [n,1] stand for each other."""
    declared = ModelSpec("m", inputs=(TensorSpec("FP64", (-1, 1, 1), "a"),))
    assert not fit(tensors(a=[1.0]), tensors(a=[1.0]), declared)
    assert fit(tensors(a=[[[1.0]]]), tensors(a=[[[1.0]]]), declared)
    assert fit(tensors(a=[[1.0]]), tensors(a=[[1.0]]), ModelSpec("m", inputs=(TensorSpec("FP64", (-1,), "a"),)))
    assert not fit(tensors(b=[1.0]), tensors(b=[1.0]), declared)


def test_an_input_called_timeout_is_the_models():
    """A model with an input called `timeout` has the word for itself."""
    merge = Merge(
        ModelSpec("m", inputs=(TensorSpec("", (-1,), "x"), TensorSpec("FP64", (1,), "timeout", optional=True)))
    )
    one = Payload(Kind.TENSORS, {"x": np.array([1.0])}, parameters={"timeout": 5, "priority": 2})
    assert merge.for_queue(one) == {"priority": 2}
    assert merge.merge([one, one]).parameters == {"timeout": 5}


# --- there and back ----------------------------------------------------------------------------------------------


def elements(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.binary(), st.text()) if dtype.kind == "O" else hnp.from_dtype(dtype, allow_nan=False)


@st.composite
def some_requests(draw: Any) -> list[Payload]:
    """Requests of one key, of either kind."""
    count = draw(st.integers(1, 5))
    rows = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    kind = draw(st.sampled_from([Kind.TENSOR, Kind.TENSORS]))
    names = draw(st.lists(st.text(), min_size=1, max_size=3, unique=True)) if kind is Kind.TENSORS else [""]
    forms = [
        (draw(st.sampled_from(list(DATATYPES.values()))), draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)))
        for _ in names
    ]
    found = []
    for count in rows:
        arrays = [draw(hnp.arrays(dtype, (count, *shape), elements=elements(dtype))) for dtype, shape in forms]
        value = dict(zip(names, arrays, strict=True)) if kind is Kind.TENSORS else arrays[0]
        found.append(Payload(kind, value))
    return found


def same(one: Payload, other: Payload) -> bool:
    values, others = (each.value if each.kind is Kind.TENSORS else {"": each.value} for each in (one, other))
    return list(values) == list(others) and all(
        values[name].dtype == others[name].dtype and np.array_equal(values[name], others[name]) for name in values
    )


@given(some_requests())
def test_an_echo_comes_back_to_whom_it_belongs(requests):
    """Merged, echoed and split, every request gets its own rows back, with their dtype, whatever its kind."""
    merge = Merge(SPEC)
    measured = [merge.measure(request) for request in requests]
    assert all(key == measured[0][1] is not None for _, key in measured)
    merged = merge.merge(requests)
    parts = split(Payload(merged.kind, merged.value), [rows for rows, _ in measured])
    assert all(same(part, request) for part, request in zip(parts, requests, strict=True))


def test_everybody_has_the_answers_head():
    """Names, parameters and tags go to each, tags as a copy; metrics are to be counted once and go to nobody here."""
    answer = Payload(Kind.TENSOR, np.arange(3), names=["p"], parameters={"a": 1}, tags={"t": 1}, metrics=[{"key": "k"}])
    one, other = split(answer, [1, 2])
    assert (one.value.tolist(), other.value.tolist()) == ([0], [1, 2])
    assert (one.names, one.parameters, one.tags, one.metrics) == (["p"], {"a": 1}, {"t": 1}, None)
    assert one.tags == other.tags
    assert one.tags is not other.tags


@pytest.mark.parametrize(
    ("kind", "value", "parts"),
    [
        (Kind.JSON, ["a", "b", "c"], [["a"], ["b", "c"]]),
        (Kind.JSON, {"p": [1, 2, 3], "q": [[4], [5], [6]]}, [{"p": [1], "q": [[4]]}, {"p": [2, 3], "q": [[5], [6]]}]),
        (Kind.TENSOR, [1, "x", None], [[1], ["x", None]]),
    ],
)
def test_lists_are_rows_too(kind, value, parts):
    """A list, and an object of lists, that have an element for each row are split as arrays are."""
    assert [part.value for part in split(Payload(kind, value), [1, 2])] == parts


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (Kind.TENSOR, np.zeros((2, 3)), r"the shape \[2, 3\] to a batch of 3 rows"),
        (Kind.TENSOR, np.array(1.0), r"the shape \[\]"),
        (Kind.TENSORS, {"p": np.zeros(3), "labels": np.zeros(2)}, r"'labels' with the shape \[2\]"),
        (Kind.JSON, [1], "1 elements"),
        (Kind.JSON, {"label": "cat"}, "'label' with a str"),
        (Kind.TEXT, "cat", "a str, which has no rows"),
        (Kind.BYTES, b"cat", "a bytes, which has no rows"),
    ],
)
def test_answers_without_the_requests_rows(kind, value, said):
    """An answer that has other rows than the batch, or none, is an error that says what it is and what it must be."""
    with pytest.raises(BadAnswer, match=said) as caught:
        split(Payload(kind, value), [1, 2])
    assert "one row for each row" in caught.value.message


# --- meta --------------------------------------------------------------------------------------------------------


def test_the_model_is_shown_what_all_share():
    """The merged request has the tags and parameters that are everybody's, and no account of a single one."""
    requests = [
        tensor(
            meta={"puid": puid, "tags": {"a": 1}, "parameters": {"t": 1, "timeout": 9}},
            parameters={"t": 1, "priority": 1},
        )
        for puid in "12"
    ]
    merged = Merge(SPEC).merge(requests)
    assert merged.meta == {"tags": {"a": 1}, "parameters": {"t": 1}}
    assert merged.parameters == {"t": 1}
    assert Merge(SPEC).merge([tensor(meta={"puid": "1"}), tensor()]).meta is None


def test_what_the_model_writes_into_meta_is_everybodys():
    """What a predict adds to the merged `meta` is in that of each request, whose own entries stay."""
    merge = Merge(SPEC)
    requests = [tensor(meta={"puid": "1", "tags": {"a": 1}}), tensor(meta={"puid": "2", "tags": {"a": 1}})]
    merged = merge.merge(requests)
    merged.meta_for_model()["tags"]["b"] = 2
    merged.meta_for_model()["seen"] = True
    merge.write_back(merged, requests)
    assert [request.meta for request in requests] == [
        {"puid": puid, "tags": {"a": 1, "b": 2}, "seen": True} for puid in "12"
    ]


def test_a_merged_request_is_cancelled_when_all_are():
    """`meta["cancelled"]()` of a merged call is true once nobody at all waits; where one cannot tell, it is false."""
    gone: set[int] = set()
    requests = [tensor(cancelled=lambda at=at: at in gone) for at in range(2)]
    cancelled = Merge(SPEC).merge(requests).meta_for_model()["cancelled"]
    assert not cancelled()
    gone.add(0)
    assert not cancelled()
    gone.add(1)
    assert cancelled()
    assert not Merge(SPEC).merge([*requests, tensor()]).meta_for_model()["cancelled"]()
