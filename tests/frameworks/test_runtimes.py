"""Every saved model in both hosts over four protocols: what is answered is what the library itself predicts.

`--matrix FILE` of `frameworks/matrix.py` makes docs/runtimes.md's table out of what passed here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput

from frameworks.cases.case import Array, Case, Tensors
from prefork.payload import datatype_of
from running import Running, launched

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

KINDS = sorted(
    path.stem for path in (Path(__file__).parent / "cases").glob("*.py") if path.stem not in {"__init__", "case"}
)
CASES: dict[str, Case] = {case.name: case for kind in KINDS for case in import_module(f"frameworks.cases.{kind}").CASES}
HOSTS = ("worker", "process")


class Served:
    """A case's model behind a server."""

    def __init__(self, case: Case, running: Running, expected: Tensors) -> None:
        self.case = case
        self.running = running
        self.expected = expected
        self.url = running.url


@pytest.fixture(scope="module", params=[(name, host) for name in CASES for host in HOSTS], ids="-".join)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The model of a case in one host."""
    name, host = request.param
    case = CASES[name]
    folder = tmp_path_factory.mktemp(name)
    path, expected = case.make(folder)
    parameters = ["--parameters", json.dumps(typed(case.parameters))] if case.parameters else []
    flags = [str(path), "--name", "m", "--host", host, "--workers", "1", *parameters]
    with launched(folder, *flags, env={"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}) as running:
        yield Served(case, running, expected)


def typed(parameters: Any) -> list[dict[str, str]]:
    """Parameters as Seldon's operator writes them."""
    kinds = {bool: "BOOL", int: "INT", float: "FLOAT", str: "STRING"}
    return [{"name": name, "type": kinds[type(value)], "value": str(value)} for name, value in parameters.items()]


def listed(array: Array) -> Any:
    """As JSON has it."""
    found = array.tolist()
    return json.loads(json.dumps(found, default=bytes.decode))


def same(found: Any, expected: Array, *, exact: bool) -> None:
    """The answer is the library's; texts, whole numbers and, where it is promised, every bit of a float."""
    array = np.asarray(found)
    assert array.shape == expected.shape
    if expected.dtype.kind in "OSU":
        texts = [each.decode() if isinstance(each, bytes) else str(each) for each in array.ravel().tolist()]
        assert texts == [each.decode() if isinstance(each, bytes) else str(each) for each in expected.ravel().tolist()]
    elif exact or expected.dtype.kind in "biu":
        np.testing.assert_array_equal(array.astype(expected.dtype), expected)
    else:
        np.testing.assert_allclose(array.astype(np.float64), expected.astype(np.float64), rtol=2e-6, atol=1e-7)


def check(answer: dict[str, Any], served: Served) -> None:
    """All outputs by name."""
    assert set(answer) == set(served.expected)
    for name, array in served.expected.items():
        same(answer[name], array, exact=served.case.is_exact)


def asked(url: str, body: Any) -> Any:
    answer = httpx.post(url, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_v2_json(served: Served):
    """V2's JSON: names, datatypes and values are the library's."""
    inputs = [
        {"name": name, "shape": list(array.shape), "datatype": datatype_of(array), "data": listed(array)}
        for name, array in served.case.given.items()
    ]
    answer = asked(f"{served.url}/v2/models/m/infer", {"inputs": inputs})
    found = {each["name"]: np.array(each["data"]).reshape(each["shape"]) for each in answer["outputs"]}
    check(found, served)
    for each in answer["outputs"]:
        assert each["datatype"] == datatype_of(served.expected[each["name"]])


def test_v2_binary(served: Served):
    """V2's binary tensors, by Triton's own client: bit for bit what came out of the library."""
    inputs = []
    for name, array in served.case.given.items():
        tensor = InferInput(name, list(array.shape), datatype_of(array))
        inputs.append(tensor.set_data_from_numpy(array))
    client = InferenceServerClient(served.url.removeprefix("http://"))
    try:
        answer = client.infer("m", inputs)
    finally:
        client.close()
    check({name: answer.as_numpy(name) for name in served.expected}, served)


def matrix(given: Tensors) -> Any:
    """Seldon's ndarray of it: the only input, or a row of all columns."""
    arrays = [listed(array) for array in given.values()]
    return arrays[0] if len(arrays) == 1 else [list(row) for row in zip(*arrays, strict=True)]


def seldon(given: Tensors) -> dict[str, Any]:
    """A SeldonMessage: one array with names for columns, else jsonData."""
    if len(given) == 1:
        return {"data": {"ndarray": matrix(given)}}
    if all(array.ndim == 1 for array in given.values()):
        return {"data": {"names": list(given), "ndarray": matrix(given)}}
    return {"jsonData": {name: listed(array) for name, array in given.items()}}


def test_seldon(served: Served):
    """Seldon's protocol: one output is `data`, several are `jsonData`."""
    answer = asked(f"{served.url}/api/v1.0/predictions", seldon(served.case.given))
    expected = served.expected
    if len(expected) == 1:
        ((name, array),) = expected.items()
        check({name: np.array(answer["data"]["ndarray"]).reshape(array.shape)}, served)
    else:
        check({name: np.array(value) for name, value in answer["jsonData"].items()}, served)


FORMS: dict[str, Callable[[Tensors], Any]] = {
    "instances": lambda given: [
        dict(zip(given, row, strict=True)) for row in zip(*map(listed, given.values()), strict=True)
    ],
    "inputs": lambda given: {name: listed(array) for name, array in given.items()},
}


@pytest.mark.parametrize("form", FORMS)
def test_v1(served: Served, form: str):
    """V1's rows and columns."""
    given = served.case.given
    if form == "instances" and len({len(array) for array in given.values()}) > 1:
        form = "inputs"  # these inputs are no rows
    answer = asked(f"{served.url}/v1/models/m:predict", {form: FORMS[form](given)})
    found = next(iter(answer.values()))
    expected = served.expected
    if len(expected) == 1:
        ((name, array),) = expected.items()
        check({name: np.array(found).reshape(array.shape)}, served)
    elif isinstance(found, list):
        check({name: np.array([row[name] for row in found]).reshape(expected[name].shape) for name in expected}, served)
    else:
        check({name: np.array(value) for name, value in found.items()}, served)


def test_data_frame(served: Served):
    """A table's columns come as MLflow's data frame too, in any order, and one matrix as its rows; what is neither is refused."""
    answer = httpx.post(f"{served.url}/invocations", json={"dataframe_split": frame(served.case)}, timeout=60)
    if not served.case.is_frame and not is_matrix(served.case):
        assert answer.status_code == 400, answer.text
        assert "input" in answer.json()["message"]
        return
    assert answer.status_code == 200, answer.text
    found = answer.json()["predictions"]
    if len(served.expected) == 1:
        found = {next(iter(served.expected)): found}
    check({name: np.array(found[name]).reshape(each.shape) for name, each in served.expected.items()}, served)


def is_matrix(case: Case) -> bool:
    """Whether the model takes one array of rows."""
    return [array.ndim for array in case.given.values()] == [2]


def frame(case: Case) -> dict[str, Any]:
    """The inputs as pandas would write them, as far as they are a table's."""
    if is_matrix(case):
        return {"data": listed(next(iter(case.given.values())))}
    names = list(case.given)[::-1]
    return {
        "columns": names,
        "data": [list(row) for row in zip(*(listed(case.given[each]) for each in names), strict=False)],
    }


def test_metadata(served: Served):
    """The metadata names the inputs and outputs, each with its datatype and shape, and the platform."""
    said = httpx.get(f"{served.url}/v2/models/m").json()
    assert {each["name"] for each in said["inputs"]} >= set(served.case.given) or not served.case.is_frame
    assert all(each["datatype"] and each["shape"] for each in said["inputs"])
    assert said["platform"] != "python"


def test_a_wrong_shape_is_the_clients_mistake(served: Served):
    """What does not fit is a 400 in words, and the next request is answered."""
    answer = httpx.post(f"{served.url}/v1/models/m:predict", json={"inputs": [[[[[1.0, 2.0]]]]]}, timeout=60)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]
    test_v2_json(served)
