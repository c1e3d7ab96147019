"""The `seldon_core` names that model classes import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from prefork.compat import Storage, env_utils, metrics, microservice, utils
from prefork.compat.flask_utils import SeldonMicroserviceException
from prefork.compat.proto import prediction_pb2
from prefork.compat.user_model import SeldonComponent, SeldonNotImplementedError, SeldonResponse
from prefork.errors import PreforkError
from prefork.instance import failure

SERVER = Path(__file__).parents[1] / "server"


def python(folder: Path, code: str, **variables: str) -> str:
    """What a fresh interpreter prints that runs a model file as the loader would."""
    (folder / "Model.py").write_text(code)
    run = "from prefork.model import loader; print(loader.find('Model')().said)"
    environment = {**os.environ, "PYTHONPATH": str(SERVER), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", run],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


EVERYTHING = """
import seldon_core
import seldon_core.user_model
from seldon_core import Storage, __version__
from seldon_core.user_model import SeldonComponent, SeldonResponse, SeldonNotImplementedError
from seldon_core.flask_utils import SeldonMicroserviceException
from seldon_core.metrics import create_counter, create_gauge, create_timer, validate_metrics, DEFAULT_LABELS
from seldon_core.proto import prediction_pb2
from seldon_core.utils import (
    json_to_seldon_message, seldon_message_to_json, get_data_from_proto, array_to_grpc_datadef,
    extract_request_parts_json, grpc_datadef_to_array, getenv_as_bool,
)
from seldon_core.env_utils import NONIMPLEMENTED_MSG
from seldon_core.microservice import parse_parameters, PARAMETERS_ENV_NAME
import prefork.compat.user_model, prefork.compat.proto.prediction_pb2

class Model(SeldonComponent):
    said = [
        seldon_core.user_model is prefork.compat.user_model,
        prediction_pb2 is prefork.compat.proto.prediction_pb2,
        SeldonComponent is seldon_core.user_model.SeldonComponent,
        seldon_core.user_model.__spec__.name,
        DEFAULT_LABELS["model_name"],
    ]
"""


def test_every_name_resolves_to_ours(tmp_path: Path):
    """Where seldon-core is not installed its names are ours, the same objects under both names."""
    said = python(tmp_path, EVERYTHING, PREDICTIVE_UNIT_ID="node")
    assert said == "[True, True, True, 'prefork.compat.user_model', 'node']"


def test_a_name_without_a_stand_in_says_what_to_do(tmp_path: Path):
    """A module or class that has no stand-in is an ImportError that says to install seldon-core."""
    code = """
class Model:
    said = []
for line in (
    "import seldon_core.tracing",
    "from seldon_core.seldon_client import SeldonClient",
    "from seldon_core.metrics import SeldonMetrics",
):
    try:
        exec(line)
    except ImportError as error:
        Model.said.append("install seldon-core" in str(error))
"""
    assert python(tmp_path, code) == "[True, True, True]"


REAL = {
    "__init__.py": "__version__ = 'real'\n",
    "user_model.py": """
class SeldonNotImplementedError(Exception):
    status_code = 400
class SeldonComponent:
    def predict(self, X, names, meta=None): raise SeldonNotImplementedError("predict is not implemented")
    def tags(self): raise SeldonNotImplementedError("tags is not implemented")
    def metrics(self): raise SeldonNotImplementedError("metrics is not implemented")
class SeldonResponse:
    def __init__(self, data, tags=None, metrics=None):
        self.data, self.tags, self.metrics = data, tags, metrics
""",
    "flask_utils.py": """
class SeldonMicroserviceException(Exception):
    status_code = 400
    def __init__(self, message, status_code=None, payload=None, reason="MICROSERVICE_BAD_DATA"):
        Exception.__init__(self)
        self.message, self.reason = message, reason
        if status_code is not None:
            self.status_code = status_code
""",
}

WITH_REAL = """
import seldon_core
from seldon_core.user_model import SeldonComponent, SeldonResponse
from seldon_core.flask_utils import SeldonMicroserviceException
from prefork.errors import PreforkError
from prefork.instance import LocalInstance
from prefork.model import Model as Loaded
from prefork.payload import Kind, Payload

class Answers(SeldonComponent):
    def predict(self, X, names):
        if X == "fail":
            raise SeldonMicroserviceException("own", status_code=418, reason="TEAPOT")
        return SeldonResponse([[1]], tags={"a": 1})

def ask(user_object, text):
    return next(LocalInstance(Loaded(user_object, "m")).infer(Payload(Kind.TEXT, text)))

class Model:
    answer, empty = ask(Answers(), "x"), ask(SeldonComponent(), "x")
    try:
        ask(Answers(), "fail")
    except PreforkError as error:
        failure = error
    said = [
        seldon_core.__version__, answer.value.tolist(), answer.tags, empty.value.tolist(),
        failure.status, failure.reason, failure.message,
    ]
"""


def test_a_real_package_is_left_alone_and_works(tmp_path: Path):
    """Where seldon-core is installed its names are its own, and classes made of them are served by duck typing."""
    (tmp_path / "seldon_core").mkdir()
    for name, text in REAL.items():
        (tmp_path / "seldon_core" / name).write_text(text)
    assert python(tmp_path, WITH_REAL) == "['real', [[1]], {'a': 1}, [], 418, 'TEAPOT', 'own']"


def test_the_exception_carries_its_status():
    """SeldonMicroserviceException is 400 with MICROSERVICE_BAD_DATA unless it says another status and reason."""
    plain = SeldonMicroserviceException("m")
    own = SeldonMicroserviceException("m", status_code=402, payload={"a": 1}, reason="R")
    assert (plain.status, plain.reason) == (400, "MICROSERVICE_BAD_DATA")
    assert (own.status, own.status_code, own.reason, own.payload) == (402, 402, "R", {"a": 1})
    assert own.to_dict() == {"status": {"code": -1, "info": "m", "reason": "R", "status": 1}}
    assert failure(own) is own


def test_a_subclass_need_not_call_the_constructor():
    """A subclass with its own constructor, or with a status on the class, is told to the client all the same."""

    class Own(SeldonMicroserviceException):
        status_code = 404

        def __init__(self, text):
            self.message = text

    error = Own("gone")
    assert isinstance(error, PreforkError)
    assert (error.status, error.message, error.reason, error.headers) == (404, "gone", "MICROSERVICE_BAD_DATA", ())


def test_every_method_of_the_base_class_refuses():
    """SeldonComponent's methods say that they are not implemented; load() does nothing."""
    component = SeldonComponent(anything=1)
    component.load()
    calls = {
        "predict": (1, []), "transform_input": (1, []), "transform_output": (1, []), "route": (1, []),
        "aggregate": ([], []), "send_feedback": (1, [], 0.0, 1, None), "predict_raw": ({},), "transform_input_raw": ({},),
        "transform_output_raw": ({},), "route_raw": ({},), "aggregate_raw": ({},), "send_feedback_raw": ({},),
        "health_status": (), "health_status_raw": (), "metrics": (), "tags": (), "class_names": (), "feature_names": (),
        "init_metadata": (),
    }  # fmt: skip
    for name, arguments in calls.items():
        with pytest.raises(SeldonNotImplementedError, match=f"^{name} is not implemented$"):
            getattr(component, name)(*arguments)


def test_seldon_response_wraps_once():
    """A SeldonResponse has data, tags and metrics, and is not wrapped twice."""
    response = SeldonResponse([1])
    assert (response.data, response.tags, response.metrics) == ([1], {}, [])
    assert SeldonResponse.create(response) is response
    assert SeldonResponse.create([1]).data == [1]


def test_metrics_are_made_and_validated():
    """create_* make metrics that validate_metrics accepts; what is none it refuses."""
    made = [metrics.create_counter("c", 1), metrics.create_gauge("g", 2.5, {"a": "b"}), metrics.create_timer("t", 3)]
    assert [metric["type"] for metric in made] == ["COUNTER", "GAUGE", "TIMER"]
    assert made[1] == {"key": "g", "type": "GAUGE", "value": 2.5, "tags": {"a": "b"}}
    assert metrics.validate_metrics(made)
    bad = [
        {"key": "c", "type": "COUNTER"},
        {"key": "c", "type": "X", "value": 1},
        {"key": "c", "type": "GAUGE", "value": "1"},
    ]
    for metric in [*bad, "text", {"key": "c", "type": [], "value": 1}]:
        assert not metrics.validate_metrics([metric])
    assert not metrics.validate_metrics("text")


def test_storage_finds_local_files_only(tmp_path: Path):
    """Storage.download gives local paths and file:// addresses, links them where it is told, and fetches nothing."""
    (tmp_path / "model files").mkdir()
    (tmp_path / "model files" / "w.bin").write_bytes(b"w")
    source = str(tmp_path / "model files")
    assert Storage.download(source) == source
    assert Storage.download((tmp_path / "model files").as_uri()) == source
    out = Storage.download(source, str(tmp_path / "out"))
    assert (Path(out) / "w.bin").read_bytes() == b"w"
    assert Storage.download(source, out) == out
    with pytest.raises(RuntimeError, match="does not exist"):
        Storage.download(str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match="s3://bucket/model"):
        Storage.download("s3://bucket/model")


def test_parameters_are_parsed_by_type():
    """parse_parameters gives typed values, and names the parameter that is not of its type."""
    given = [("INT", "3", 3), ("FLOAT", "0.5", 0.5), ("DOUBLE", "2", 2.0), ("STRING", "s", "s"), ("BOOL", "True", True)]
    for kind, text, value in given:
        assert microservice.parse_parameters([{"name": "p", "type": kind, "value": text}]) == {"p": value}
    for kind, text in (("INT", "x"), ("BOOL", "maybe"), ("LIST", "[]"), ("FLOAT", None)):
        with pytest.raises(SeldonMicroserviceException, match="'p'") as caught:
            microservice.parse_parameters([{"name": "p", "type": kind, "value": text}])
        assert caught.value.reason == "MICROSERVICE_BAD_PARAMETER"


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch):
    """getenv_as_bool knows 1, true and t; the names of the deployment are the operator's variables."""
    for text, value in (("1", True), ("TRUE", True), ("t", True), ("false", False), ("yes", False)):
        monkeypatch.setenv("PLUM", text)
        assert utils.getenv_as_bool("PLUM") is value
    monkeypatch.delenv("PLUM")
    assert utils.getenv_as_bool("PLUM", default=True) is True
    monkeypatch.setenv("PREDICTIVE_UNIT_IMAGE", "host:5000/plum:1.2")
    monkeypatch.setenv("PREDICTOR_LABELS", '{"version": "v7"}')
    assert (env_utils.get_image_name(), env_utils.get_image_version()) == ("host:5000/plum", "1.2")
    assert env_utils.get_predictor_version() == "v7"
    monkeypatch.setenv("PREDICTOR_LABELS", "{")
    monkeypatch.delenv("PREDICTIVE_UNIT_IMAGE")
    assert env_utils.get_predictor_version() == env_utils.get_image_name() == "NOT_IMPLEMENTED"


MESSAGE = {
    "meta": {"puid": "p", "tags": {"a": 1}, "metrics": [{"key": "k", "type": "GAUGE", "value": 1.5}]},
    "data": {"names": ["x"], "tensor": {"shape": [2, 1], "values": [1.0, 2.5]}},
}


@pytest.mark.parametrize(
    "message",
    [
        MESSAGE,
        {"strData": ""},
        {"binData": "AAE="},
        {"jsonData": {"a": [1, None]}},
        {"data": {"ndarray": [[1, "b"]]}},
        {"status": {"code": 400, "info": "i", "reason": "r", "status": 1}},
        {},
    ],
)
def test_messages_round_trip(message: dict[str, object]):
    """A JSON message becomes an object with attributes and the same JSON again."""
    assert utils.seldon_message_to_json(utils.json_to_seldon_message(message)) == message


def test_messages_read_as_protobufs_do():
    """An absent field reads as its default, and only what is set or filled is there; of `data_oneof` one field is."""
    message = prediction_pb2.SeldonMessage()
    assert (message.strData, message.data.tensor.values, message.meta.puid) == ("", [], "")
    assert message.WhichOneof("data_oneof") is None
    assert not message.HasField("meta")
    message.meta.tags["a"] = 1
    message.strData = "x"
    message.binData = b"y"
    assert message.HasField("meta")
    assert message.WhichOneof("data_oneof") == "binData"
    assert message.to_dict() == {"meta": {"tags": {"a": 1}}, "binData": "eQ=="}
    copy = prediction_pb2.SeldonMessage()
    copy.CopyFrom(message)
    assert copy == message
    with pytest.raises(AttributeError, match="no field 'strdata'"):
        message.strdata = "x"
    with pytest.raises(AttributeError, match="no field 'nope'"):
        _ = message.nope


def test_data_of_messages():
    """get_data_from_proto gives the array, text, bytes or JSON value that a message carries."""
    assert utils.get_data_from_proto(utils.json_to_seldon_message(MESSAGE)).tolist() == [[1.0], [2.5]]
    assert utils.get_data_from_proto(prediction_pb2.SeldonMessage(strData="s")) == "s"
    assert utils.get_data_from_proto(utils.json_to_seldon_message({"binData": "AAE="})) == b"\0\1"
    assert utils.get_meta_from_proto(utils.json_to_seldon_message(MESSAGE))["puid"] == "p"
    with pytest.raises(SeldonMicroserviceException):
        utils.get_data_from_proto(prediction_pb2.SeldonMessage())
    for bad in ({"nope": 1}, {"data": []}, {"binData": "A"}):
        with pytest.raises(SeldonMicroserviceException, match="Invalid JSON"):
            utils.json_to_seldon_message(bad)


@pytest.mark.parametrize("kind", ["tensor", "ndarray"])
def test_arrays_to_messages_and_back(kind: str):
    """array_to_grpc_datadef and grpc_datadef_to_array are each other's inverse."""
    array = np.array([[1.0, 2.0, 3.0]])
    datadef = utils.array_to_grpc_datadef(kind, array, ["a", "b", "c"])
    assert datadef.WhichOneof("data_oneof") == kind
    assert datadef.names == ["a", "b", "c"]
    assert np.array_equal(utils.grpc_datadef_to_array(datadef), array)


def test_parts_of_a_json_request():
    """extract_request_parts_json gives the data, the meta, the data object and the kind, the first of the four."""
    features, meta, datadef, kind = utils.extract_request_parts_json(
        {"data": {"ndarray": [[1]]}, "meta": {"puid": "p"}}
    )
    assert (features.tolist(), meta, datadef, kind) == ([[1]], {"puid": "p"}, {"ndarray": [[1]]}, "data")
    assert utils.extract_request_parts_json({"strData": "s", "binData": "AA=="})[::3] == ("s", "strData")
    assert utils.extract_request_parts_json({"binData": "AAE="})[0] == b"\0\1"
    with pytest.raises(SeldonMicroserviceException, match="Invalid request data type"):
        utils.extract_request_parts_json({})
