"""Seldon's /metadata body."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from prefork.compat.user_model import SeldonComponent
from prefork.errors import BadMetadata
from prefork.model import Model
from prefork.payload import TensorSpec
from running import serving

TENSOR = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}


def described(**said: Any) -> type:
    class Described:
        calls = 0

        def init_metadata(self):
            type(self).calls += 1
            return said

    return Described


def test_defaults_are_the_models_own():
    """Without a hook or an image the name and the version are those under which the model is served."""
    assert Model(object(), "iris", "3").metadata() == {
        "name": "iris",
        "versions": ["3"],
        "platform": "",
        "inputs": [],
        "outputs": [],
        "custom": {},
    }
    assert Model(SeldonComponent(), "iris").metadata()["name"] == "iris"


@pytest.mark.parametrize(
    ("image", "name", "version"),
    [("host:5000/plum:1.2", "host:5000/plum", "1.2"), ("plum", "plum", "1")],
)
def test_defaults_of_an_image(image: str, name: str, version: str):
    """The image gives name and version, split at its last colon."""
    said = Model(object(), "iris", image=image).metadata()
    assert (said["name"], said["versions"]) == (name, [version])


def test_the_override_wins_field_by_field():
    """MODEL_METADATA replaces the fields that it has, init_metadata() the defaults."""
    user_object = described(name="own", platform="sklearn", inputs=[TENSOR])()
    said = Model(user_object, "iris", metadata={"name": "operator"}, image="plum:2").metadata()
    assert (said["name"], said["platform"], said["versions"], said["inputs"]) == (
        "operator",
        "sklearn",
        ["2"],
        [TENSOR],
    )


def test_the_hook_is_called_once():
    """init_metadata() is called once, however often the body is asked for."""
    cls = described(name="own")
    model = Model(cls(), "iris")
    assert model.metadata() == model.metadata()
    assert cls.calls == 1


def test_messages_are_inputs_too():
    """An input may be a message type with its schema."""
    port = {"messagetype": "jsonData", "schema": {"type": "object"}}
    assert Model(described(outputs=[port])(), "m").metadata()["outputs"] == [port]


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"name": 3}, r"\$\.name"),
        ({"versions": "1"}, r"\$\.versions"),
        ({"inputs": [{**TENSOR, "datatype": "FLOAT"}]}, r"\$\.inputs\[0\]\.datatype"),
        ({"inputs": [{"name": "x"}]}, r"\$\.inputs\[0\]"),
        ({"outputs": [{"messagetype": "jsonData"}]}, r"\$\.outputs\[0\]"),
        ({"custom": {"a": 1}}, r"\$\.custom"),
        ({"nope": 1}, "nope"),
    ],
)
def test_what_is_no_metadata_names_the_field(said: dict[str, Any], field: str):
    """A field that is not what it must be is a BadMetadata that names it."""
    with pytest.raises(BadMetadata, match=field):
        Model(described(**said)(), "m").metadata()


def test_a_failing_hook_is_bad_metadata():
    """What init_metadata() raises is told as bad metadata, with the exception chained."""

    class Fails:
        def init_metadata(self):
            raise KeyError("no such file")

    with pytest.raises(BadMetadata, match="KeyError") as caught:
        Model(Fails(), "m").metadata()
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_hook_that_gives_no_dict_is_ignored(caplog: pytest.LogCaptureFixture):
    """A result that is no dict is logged and passed over."""

    class Lists:
        def init_metadata(self):
            return ["name"]

    assert Model(Lists(), "m").metadata()["name"] == "m"
    assert "init_metadata() returned a list" in caplog.text


def test_declared_tensors_are_shown_and_not_checked():
    """What the metadata declares is in `described`, for V2's metadata; requests are not held to it."""
    model = Model(described(inputs=[TENSOR])(), "m")
    assert model.spec.inputs is None
    assert model.described.inputs == (TensorSpec("FP32", (-1, 4), "x"),)
    assert model.described.outputs is None
    assert Model(described(name=3)(), "m").described.inputs is None


def test_a_typed_signature_is_metadata():
    """Inputs and outputs of the named style are in the body as far as their datatypes and shapes are known."""

    class Typed:
        def predict(
            self, x: Annotated[np.ndarray, TensorSpec("FP32", (-1, 4))], y: np.ndarray, z: float = 1.0
        ) -> Annotated[np.ndarray, TensorSpec("INT64", (-1,))]:
            return x

    said = Model(Typed(), "m").metadata()
    assert said["inputs"] == [TENSOR, {"name": "z", "datatype": "FP64", "shape": [1]}]
    assert said["outputs"] == [{"name": "predict", "datatype": "INT64", "shape": [-1]}]
    assert Model(Typed(), "m").described == Model(Typed(), "m").spec


@pytest.mark.parametrize("host", ["worker", "process"])
def test_bad_metadata_is_the_same_error_in_both_hosts(tmp_path: Path, host: str):
    """A 500 with Seldon's reason and the field at /metadata, with the traceback in the log; everything else is served."""
    source = """
        class M:
            def predict(self, X, names):
                return X
            def init_metadata(self):
                raise KeyError("nothing of the kind")
    """
    with serving(tmp_path, source, "--host", host, model="M") as running, running.client() as client:
        answer = client.get("/metadata")
        assert (answer.status_code, answer.json()["status"]["reason"]) == (500, "MICROSERVICE_BAD_METADATA")
        assert "init_metadata() raised KeyError: 'nothing of the kind'" in answer.json()["status"]["info"]
        assert client.get("/v2/models/M").json()["inputs"] == []
        assert client.post("/predict", json={"strData": "x"}).json()["strData"] == "x"
        assert "in init_metadata\n" in running.log
