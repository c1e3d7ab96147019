"""The inputs of saved models: what every protocol sends becomes the tensors or the table that a model declares, or a 400 in words."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.errors import BadRequest
from prefork.model import Model
from prefork.model.casting import kept, parsed
from prefork.model.columns import Columns
from prefork.model.declared import Declared
from prefork.model.tensor_inputs import Tensors
from prefork.payload import Kind, Payload, TensorSpec
from running import serving

MATRIX = np.array([[1.0, 2.0], [3.0, 4.0]])
TWO = Tensors((TensorSpec("FP32", (-1, 2), "a"), TensorSpec("INT64", (-1,), "n")))
ONE = Tensors((TensorSpec("FP32", (-1, 2), "x"),))
NAMED = Columns(names=("age", "size"))
FRAME = Columns(names=("age", "city"), datatypes={"city": "BYTES"}, frame=True)


def tensors(**arrays: Any) -> Payload:
    return Payload(Kind.TENSORS, {name: np.asarray(value) for name, value in arrays.items()})


def test_tensors_come_by_name_in_their_datatypes():
    """Each tensor has the declared datatype, in the declared order, whichever order they came in."""
    found = TWO.gather(tensors(n=[1.0, 2.0], a=MATRIX))
    assert list(found) == ["a", "n"]
    assert [array.dtype.str for array in found.values()] == ["<f4", "<i8"]


@pytest.mark.parametrize(
    "request_", [Payload(Kind.TENSOR, MATRIX), Payload(Kind.JSON, MATRIX.tolist()), tensors(x=MATRIX)]
)
def test_the_only_tensor_needs_no_name(request_: Payload):
    """A matrix without a name is the one input, from whichever protocol."""
    np.testing.assert_array_equal(ONE.gather(request_)["x"], MATRIX)


def test_several_tensors_come_as_columns():
    """A matrix has a column for each input, by their names or in their order; numbers among texts are numbers again."""
    both = Tensors((TensorSpec("INT64", (-1,), "n"), TensorSpec("BYTES", (-1,), "t")))
    mixed = np.array([["7", "one"], ["9007199254740993", "two"]], dtype=object)
    for names in (None, ["n", "t"]):
        found = both.gather(Payload(Kind.TENSOR, mixed, names=names))
        assert found["n"].tolist() == [7, 9007199254740993]
        assert found["t"].tolist() == [b"one", b"two"]


TENSOR_MISTAKES = [
    (TWO, tensors(a=MATRIX), r"missing input 'n'; the model takes a FP32 \[-1, 2\], n INT64 \[-1\]"),
    (TWO, tensors(a=MATRIX, n=[1], z=[1]), "unexpected input 'z'"),
    (TWO, tensors(a=MATRIX, n=[1.5]), "input 'n' has the datatype FP64 and values that do not fit INT64"),
    (TWO, Payload(Kind.TENSOR, MATRIX[:, :1]), "the inputs have to be named"),
    (TWO, Payload(Kind.TEXT, "a"), "the inputs have to be named"),
    (ONE, tensors(y=MATRIX), "unexpected input 'y'"),
    (ONE, tensors(x=np.zeros((2, 3))), r"input 'x' has the shape \[2, 3\], which does not fit \[-1, 2\]"),
    (ONE, tensors(x=[[2**24 + 1, 0]]), "input 'x' has the datatype INT64 and values that do not fit FP32"),
    (ONE, Payload(Kind.JSON, [[1, 2], [3]]), "ragged inputs are not supported, pad them to one length"),
    (ONE, Payload(Kind.RAW, {}), "Invalid request data type"),
]


@pytest.mark.parametrize(("takes", "request_", "said"), TENSOR_MISTAKES)
def test_tensors_that_do_not_fit(takes: Tensors, request_: Payload, said: str):
    """What is missing, unknown, of another shape or cannot be converted without loss is a 400 that names the input."""
    with pytest.raises(BadRequest, match=said):
        takes.gather(request_)


TABLES = [
    Payload(Kind.TENSOR, MATRIX),
    Payload(Kind.TENSOR, MATRIX, names=["t:0", "t:1"]),
    Payload(Kind.TENSOR, MATRIX[:, ::-1], names=["size", "age"]),
    Payload(Kind.JSON, MATRIX.tolist()),
    tensors(anything=MATRIX),
    tensors(size=MATRIX[:, 1], age=MATRIX[:, :1]),
    Payload(Kind.JSON, {"age": [1, 3], "size": [2, 4]}),
]


@pytest.mark.parametrize("request_", TABLES)
def test_a_table_comes_whole_or_by_columns(request_: Payload):
    """A matrix, one tensor of any name, or the columns by name in any order make the same table; made-up names count as none."""
    found = NAMED.gather(request_)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, MATRIX)


def test_one_row_needs_no_nesting():
    """As many values as there are columns are one row."""
    assert NAMED.gather(Payload(Kind.TENSOR, np.array([1, 2]))).tolist() == [[1, 2]]


def test_missing_values_are_nan():
    """A null among numbers is NaN."""
    found = NAMED.gather(Payload(Kind.TENSOR, np.array([[1, None]], dtype=object)))
    assert found[0, 0] == 1
    assert np.isnan(found[0, 1])


TABLE_MISTAKES = [
    (tensors(age=[1, 2]), "missing column 'size'; the model takes age, size"),
    (tensors(age=[1], size=[1], city=[1]), "unexpected column 'city'"),
    (tensors(age=[1, 2], size=[1]), "the columns have different numbers of rows: age 2, size 1"),
    (tensors(age=[[1, 2]], size=[1]), r"column 'age' has the shape \[1, 2\]; one value a row is needed"),
    (tensors(age=np.array([b"old"], object), size=[1]), "column 'age' has the value 'old', which is no number"),
    (tensors(age=[2**53 + 1], size=[1]), "column 'age' has the datatype INT64 and values that do not fit FP64"),
    (Payload(Kind.TENSOR, MATRIX[:, :1]), r"the input has the shape \[2, 1\]; rows of 2 columns are needed"),
    (Payload(Kind.TENSOR, MATRIX, names=["age", "weight"]), "missing column 'size'"),
    (Payload(Kind.BYTES, b""), "the model takes rows of columns"),
]


@pytest.mark.parametrize(("request_", "said"), TABLE_MISTAKES)
def test_tables_that_do_not_fit(request_: Payload, said: str):
    """What is missing, unknown, uneven or no number is a 400 that names the column."""
    with pytest.raises(BadRequest, match=said):
        NAMED.gather(request_)


def test_a_frame_keeps_each_columns_type():
    """A model that takes a data frame gets one, in the columns' order, texts as texts and numbers as numbers."""
    mixed = np.array([["20", "a"], ["30", "b"]], dtype=object)
    for request in (
        Payload(Kind.TENSOR, mixed),
        Payload(Kind.TENSOR, mixed[:, ::-1], names=["city", "age"]),
        tensors(city=np.array([b"a", b"b"], object), age=[20, 30]),
    ):
        found = FRAME.gather(request)
        pd.testing.assert_frame_equal(found, pd.DataFrame({"age": [20, 30], "city": ["a", "b"]}))


def test_what_metadata_lists():
    """A table with names is a tensor a column, one without is a matrix."""
    assert FRAME.described() == (TensorSpec("FP64", (-1,), "age"), TensorSpec("BYTES", (-1,), "city"))
    assert Columns(4, datatype="FP32").described() == (TensorSpec("FP32", (-1, 4), "input"),)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_are_kept_or_refused(values: list[int]):
    """A whole number either is the same number as a float, or is refused."""
    array = np.array(values, dtype=np.int64)
    for datatype in ("FP32", "FP64"):
        try:
            found = kept(array, datatype)
        except BadRequest:
            continue
        assert [int(each) for each in found.tolist()] == values


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)), min_size=1))
def test_numbers_come_back_from_text(values: list[Any]):
    """A column of texts that are numbers is those numbers."""
    texts = np.array([repr(each) for each in values], dtype=object)
    kind = float if any(isinstance(each, float) for each in values) else int
    assert parsed(texts).tolist() == [kind(each) for each in values]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.booleans())
def test_numbers_beside_texts_are_the_same_numbers(values: list[int], with_null: bool):
    """A column of whole numbers in a table that has texts too keeps every digit, or is refused; so does one with a null in it."""
    cells = [*values, None] if with_null else values
    rows = np.array([[each, "text"] for each in cells], dtype=object)
    request = Payload(Kind.TENSOR, rows, names=["n", "t"])
    if not with_null:
        assert parsed(rows[:, 0]).tolist() == values
    takes = Columns(names=("n", "t"), datatypes={"n": "FP64" if with_null else "INT64", "t": "BYTES"}, frame=True)
    try:
        found = takes.gather(request)["n"].tolist()
    except BadRequest:
        assert any(abs(each) > 2**53 for each in values)
        return
    assert [int(each) for each in found[: len(values)]] == values


class Saved:
    """As a saved model looks to `Model`: its predict is there once it is loaded."""

    def load(self) -> None:
        outputs = (TensorSpec("FP64", (-1, 2), "p"),)
        self.predict = Declared(NAMED, outputs, {"p": ("no", "yes")}, lambda x, _: {"p": x / 2}, "halving")


def test_a_declared_predict_is_a_models():
    """The spec has outputs, labels and platform from the table, lets every request through, and is described with the inputs."""
    model = Model(Saved(), "m")
    model.load()
    assert (model.spec.platform, model.spec.inputs, model.spec.labels) == ("halving", None, {"p": ("no", "yes")})
    assert model.described.inputs == NAMED.described()
    answer = model.answer(Payload(Kind.TENSOR, MATRIX))
    assert answer.names == ["no", "yes"]
    np.testing.assert_array_equal(answer.value["p"], MATRIX / 2)
    assert [each["name"] for each in model.metadata()["inputs"]] == ["age", "size"]


def test_a_column_may_be_left_out():
    """One that is optional; the metadata says so, and the frame is made of the others."""
    table = Columns(names=("age", "size"), frame=True, optional=frozenset({"size"}))
    assert [spec.optional for spec in table.described()] == [False, True]
    assert list(table.gather(tensors(age=[1.0])).columns) == ["age"]
    with pytest.raises(BadRequest, match="missing column 'age'"):
        table.gather(tensors(size=[1.0]))


def test_a_number_is_no_text():
    """A column of texts that gets numbers is refused by its name; a null among texts is one."""
    with pytest.raises(BadRequest, match=r"column 'city' has the datatype INT64; text \(BYTES\) is needed"):
        FRAME.gather(tensors(age=[1.0], city=[3]))
    assert FRAME.gather(tensors(age=[1.0, 2.0], city=np.array(["Oslo", None], object)))["city"].isna().tolist() == [
        False,
        True,
    ]


ROWS = """
    import numpy as np
    from prefork.model.declared import Declared
    from prefork.model.tensor_inputs import Tensors
    from prefork.payload import TensorSpec

    class Model:
        def load(self):
            takes = Tensors((TensorSpec("FP64", ({rows}, 2), "x"),))
            self.predict = Declared(takes, None, {{}}, self.run)

        def run(self, inputs, parameters):
            return {{"rows": np.full(len(inputs["x"]), len(inputs["x"]))}}
"""


@pytest.mark.parametrize("host", ["worker", "process"])
@pytest.mark.parametrize(("rows", "is_batched"), [(-1, True), (1, False)])
def test_a_fixed_number_of_rows_is_never_a_batch(tmp_path: Path, host: str, rows: int, is_batched: bool):
    """Requests that wait together are put together, but not for a model whose first axis is fixed: it would refuse the batch."""
    source = ROWS.format(rows=rows)
    flags = ("--host", host, "--workers", "1", "--max-batch-size", "2", "--max-batch-delay", "20000000")
    with serving(tmp_path, source, *flags) as running, running.client() as client, ThreadPoolExecutor(2) as pool:
        message = {"data": {"ndarray": [[1.0, 2.0]]}}
        answers = list(pool.map(lambda _: client.post("/predict", json=message), range(2)))
    assert [each.status_code for each in answers] == [200] * 2
    assert [each.json()["data"]["ndarray"] for each in answers] == [[2 if is_batched else 1]] * 2
