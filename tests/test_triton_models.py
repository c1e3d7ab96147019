"""Models written for Triton's Python backend, served as they stand in its repositories."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from prefork.triton import backend_utils as pb_utils
from prefork.triton import stand_in
from repositories import index, load, repository_server, unload
from running import DEADLINE, launched, wait_until
from test_vectors import VECTORS, ask, check_v2, raw, v2_lines

SERVED = {each.name for each in (VECTORS / "v2_repository").iterdir()}
OF_A_MODEL = [
    line for line in v2_lines() if line["request"]["path"].removeprefix("/v2/models/").split("/")[0] in SERVED
]

HEAD = """
import json, os, pathlib, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

PLACE = pathlib.Path({place!r})

def x(request):
    return pb_utils.get_input_tensor_by_name(request, "X").as_numpy()

def answer(value, **more):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.asarray(value, np.float32).reshape(-1))], **more)
"""
CONFIG = """
input [{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }]
"""
DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }"


def add(folder: Path, name: str, source: str, config: str | None = CONFIG) -> Path:
    """A model of a repository `models` under the folder."""
    model = folder / "models" / name
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(HEAD.format(place=str(folder)) + textwrap.dedent(source))
    if config is not None:
        (model / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "python"\n{config}')
    return model


@contextmanager
def serving(folder: Path, source: str, config: str | None = CONFIG):
    """A server of that model, called m, and a client of it."""
    add(folder, "m", source, config)
    with repository_server(folder, "--control", "explicit", "--load-model", "m") as server, server.client() as client:
        yield server, client


@contextmanager
def refusing(folder: Path, source: str):
    """A client of a server that cannot load that model, and what it has said of it."""
    add(folder, "m", source)
    with repository_server(folder, "--control", "explicit") as server, server.client() as client:
        refused = load(client, "m")
        assert refused.status_code >= 400
        yield client, refused.text


def infer(client: httpx.Client, *values: float, name: str = "m", **more: object) -> httpx.Response:
    inputs = [{"name": "X", "shape": [len(values)], "datatype": "FP32", "data": values}]
    return client.post(f"/v2/models/{name}/infer", json={"inputs": inputs, **more})


def output(answer: httpx.Response) -> list[float]:
    assert answer.status_code == 200, answer.text
    data: list[float] = answer.json()["outputs"][0]["data"]
    return data


def events(client: httpx.Client, *values: float) -> list[dict[str, object]]:
    """What generate_stream gives."""
    text = client.post("/v2/models/m/generate_stream", json={"X": list(values)}).text
    return [json.loads(line.removeprefix("data:")) for line in text.splitlines() if line.startswith("data:")]


# --- the recorded repository ---


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A client of the repository from which a real Triton has answered, not a byte of it changed."""
    folder = tmp_path_factory.mktemp("recorded")
    shutil.copytree(VECTORS / "v2_repository", folder / "models")
    with repository_server(folder) as server, server.client() as client:
        yield client


@pytest.mark.parametrize("line", OF_A_MODEL, ids=lambda line: line["id"])
def test_recorded(line, recorded):
    """Its models answer here what they answered there, or what the line says that Prefork answers instead."""
    check_v2(line, ask(recorded, line["request"], raw(line["request"]["body"])))


@pytest.mark.parametrize("values", [[1.5, 2, 3, 4], [0, 0, 0, 0]])
def test_other_protocols(recorded, values):
    """Seldon's and TensorFlow Serving's clients may ask them too."""
    seldon = recorded.post("/v1/models/add:predict", json={"instances": [values]})
    assert seldon.json() == {"predictions": [[each + 1 for each in values]]}


# --- its life ---

LIFE = """
class TritonPythonModel:
    def initialize(self, args):
        (PLACE / "args").write_text(json.dumps(args))
    def execute(self, requests):
        return [answer(x(each) * 2) for each in requests]
    def finalize(self):
        (PLACE / "finalized").write_text("")
"""


def test_life(tmp_path):
    """`initialize` is told who and where it is, as texts; `finalize` runs when the model is unloaded."""
    with serving(tmp_path, LIFE) as (_, client):
        args = json.loads((tmp_path / "args").read_text())
        config = json.loads(args.pop("model_config"))
        assert args == {
            "model_instance_kind": "CPU",
            "model_instance_name": "m_0_0",
            "model_instance_device_id": "0",
            "model_repository": str(tmp_path / "models" / "m"),
            "model_version": "1",
            "model_name": "m",
        }
        assert config["input"][0]["name"] == "X"
        assert config["max_batch_size"] == 0
        assert output(infer(client, 1, 2)) == [2, 4]
        assert not (tmp_path / "finalized").exists()
        assert unload(client, "m").status_code == 200
        assert (tmp_path / "finalized").exists()


def test_load_fails(tmp_path):
    """What `initialize` raises is the reason for which the model is not there."""
    source = """
    class TritonPythonModel:
        def initialize(self, args):
            raise RuntimeError("no weights")
        def execute(self, requests):
            return []
    """
    with refusing(tmp_path, source) as (client, words):
        assert "no weights" in words
        assert index(client)["m/1"] == "UNAVAILABLE"


def test_no_execute(tmp_path):
    """A class without `execute` is refused in words."""
    with refusing(tmp_path, "class TritonPythonModel:\n    def predict(self, X, names): return X\n") as (_, words):
        assert "TritonPythonModel has no execute" in words


def test_auto_complete(tmp_path):
    """`auto_complete_config` says what config.pbtxt does not; there may be none at all."""
    source = """
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            config.set_max_batch_size(4)
            config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
            config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [2]})
            return config
        def initialize(self, args):
            self.size = json.loads(args["model_config"])["max_batch_size"]
        def execute(self, requests):
            return [answer([self.size]) for _ in requests]
    """
    with serving(tmp_path, source, None) as (_, client):
        inputs = client.get("/v2/models/m").json()["inputs"]
        assert inputs == [{"name": "X", "datatype": "FP32", "shape": [-1, 2]}]
        answered = client.post(
            "/v2/models/m/infer", json={"inputs": [{"name": "X", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
        )
        assert output(answered) == [4]


COMPLETES = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [1]})
        return config
    def execute(self, requests):
        time.sleep(0.01)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x(each) * 0 + len(x(each)))]) for each in requests]
"""


def test_auto_complete_sets_the_batching(tmp_path):
    """What it sets holds as if config.pbtxt had said it: requests are put together, and /config shows all of it."""

    def ask(_):
        inputs = [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]
        return output(client.post("/v2/models/m/infer", json={"inputs": inputs}))

    with serving(tmp_path, COMPLETES, None) as (_, client), ThreadPoolExecutor(6) as pool:
        said = client.get("/v2/models/m/config").json()
        assert (said["max_batch_size"], said["input"][0]["dims"], "dynamic_batching" in said) == (8, [1], True)
        wait_until(lambda: max(pool.map(ask, range(6))) > [1], "a batch of several")


def test_auto_complete_leaves_what_the_file_says(tmp_path):
    """A smaller batch and a delay of the file's own hold; /config shows them, with what was completed."""
    config = """
    max_batch_size: 4
    dynamic_batching { max_queue_delay_microseconds: 3000 }
    input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
    """
    with serving(tmp_path, COMPLETES, config) as (_, client):
        said = client.get("/v2/models/m/config").json()
        assert (said["max_batch_size"], said["dynamic_batching"]["max_queue_delay_microseconds"]) == (4, 3000)
        assert [each["name"] for each in said["output"]] == ["Y"]


def test_auto_complete_makes_it_decoupled(tmp_path):
    """Then it answers in parts, and an error behind some of them is the last event."""
    source = """
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            config.set_model_transaction_policy({"decoupled": True})
            config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1]})
            config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
            return config
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            sender.send(answer(0))
            sender.send(answer(1))
            raise RuntimeError("behind two")
    """
    with serving(tmp_path, source, None) as (_, client):
        assert client.get("/v2/models/m/config").json()["model_transaction_policy"] == {"decoupled": True}
        assert [event.get("Y", event.get("error")) for event in events(client, 1)] == [0, 1, "behind two"]


# --- its answers ---


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("UNKNOWN", 400),
        ("INTERNAL", 500),
        ("NOT_FOUND", 404),
        ("INVALID_ARG", 400),
        ("UNAVAILABLE", 503),
        ("UNSUPPORTED", 501),
        ("ALREADY_EXISTS", 400),
        ("CANCELLED", 400),
    ],
)
def test_errors(erring, code, status):
    """An error's code decides about the status, as in Triton."""
    codes = ["UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS"]
    answered = infer(erring, ([*codes, "CANCELLED"]).index(code))
    assert (answered.status_code, answered.json()) == (status, {"error": "of the model"})


@pytest.fixture(scope="module")
def erring(tmp_path_factory):
    """A client of a model that answers the error whose code is asked for."""
    source = """
    class TritonPythonModel:
        def execute(self, requests):
            return [answer(0, error=pb_utils.TritonError("of the model", int(x(each)[0]))) for each in requests]
    """
    with serving(tmp_path_factory.mktemp("erring"), source) as (_, client):
        yield client


WRONG = """
class TritonPythonModel:
    def execute(self, requests):
        what = int(x(requests[0])[0])
        if what == 0:
            return None
        if what == 1:
            return []
        if what == 2:
            return ["no response"]
        if what == 3:
            requests[0].get_response_sender()
            return None
        if what == 4:
            raise ValueError("its own")
        if what == 5:
            requests[0].exec()
        return [answer(what)]
"""


def test_wrong_answers(tmp_path):
    """What a model answers wrongly is a 500 that says so, and the next request is served."""
    said = [
        "Expected a list in the execute return",
        "0 responses for 1 request",
        "an InferenceResponse is needed for each request, not a str",
        "let go of its response sender without a response",
        "its own",
        "cannot ask another one from here",
    ]
    with serving(tmp_path, WRONG) as (_, client):
        for what, words in enumerate(said):
            answered = infer(client, what)
            assert answered.status_code == 500
            assert words in answered.json()["error"]
        assert output(infer(client, 9)) == [9]


def test_request(tmp_path):
    """A request has its inputs, parameters and timeout, and nobody has cancelled it."""
    source = """
    class TritonPythonModel:
        def execute(self, requests):
            (each,) = requests
            said = {
                "inputs": [(t.name(), list(t.shape()), t.triton_dtype(), t.is_cpu()) for t in each.inputs()],
                "parameters": json.loads(each.parameters()), "timeout": each.timeout(), "cancelled": each.is_cancelled(),
                "model": [each.model_name, each.model_version], "absent": pb_utils.get_input_tensor_by_name(each, "Z"),
                "wanted": each.requested_output_names(),
            }
            (PLACE / "said").write_text(json.dumps(said))
            return [answer(x(each), parameters={"how": "well", "often": 2})]
    """
    with serving(tmp_path, source) as (_, client):
        answered = infer(client, 1, 2, parameters={"timeout": 5_000_000, "mine": "yes"})
        assert output(answered) == [1, 2]
        assert answered.json()["parameters"] == {"how": "well", "often": 2}
    said = json.loads((tmp_path / "said").read_text())
    assert said["parameters"]["mine"] == "yes"
    assert said == {
        "inputs": [["X", [2], "TYPE_FP32", True]],
        "parameters": said["parameters"],
        "timeout": 5_000_000,
        "cancelled": False,
        "model": ["m", 1],
        "absent": None,
        "wanted": ["Y"],
    }


def test_wanted_outputs(tmp_path):
    """Outputs that the client has not asked for are left out."""
    source = """
    class TritonPythonModel:
        def execute(self, requests):
            two = [pb_utils.Tensor(name, x(requests[0])) for name in ("Y", "Z")]
            return [pb_utils.InferenceResponse(output_tensors=two)]
    """
    with serving(tmp_path, source, CONFIG + 'output [{ name: "Z" data_type: TYPE_FP32 dims: [ -1 ] }]') as (_, client):
        assert [each["name"] for each in infer(client, 1).json()["outputs"]] == ["Y", "Z"]
        assert [each["name"] for each in infer(client, 1, outputs=[{"name": "Z"}]).json()["outputs"]] == ["Z"]


def test_batched(tmp_path):
    """With dynamic_batching a batch is one request of many rows, and each client gets its own."""
    source = """
    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x(each) + 1)]) for each in requests]
    """
    config = """
    max_batch_size: 8
    dynamic_batching { max_queue_delay_microseconds: 100000 }
    input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
    output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
    """
    with serving(tmp_path, source, config) as (_, client):
        for value in (1.0, 2.0):
            inputs = [{"name": "X", "shape": [2, 1], "datatype": "FP32", "data": [value, -value]}]
            answered = client.post("/v2/models/m/infer", json={"inputs": inputs})
            assert output(answered) == [value + 1, 1 - value]


def test_metrics(tmp_path):
    """A model's own counters and gauges are on /metrics."""
    source = """
    class TritonPythonModel:
        def initialize(self, args):
            families = pb_utils.MetricFamily
            self.seen = families("seen", "rows", families.COUNTER).Metric(labels={"kind": "row"})
            self.last = families("last", "value", families.GAUGE).Metric(labels={"kind": "any"})
        def execute(self, requests):
            self.seen.increment(len(x(requests[0])))
            self.last.set(float(x(requests[0])[0]))
            return [answer(self.seen.value())]
    """
    with serving(tmp_path, source) as (_, client):
        infer(client, 7, 8)
        assert output(infer(client, 9)) == [3]
        lines = client.get("/metrics").text.splitlines()
    series = {line.split("{")[0]: line.split()[-1] for line in lines if line.startswith(("seen", "last"))}
    assert (series["seen_total"], series["last"]) == ("3.0", "9.0")


# --- response senders ---


def test_decoupled(tmp_path):
    """Responses come as they are sent, from another thread and after `execute` has returned too."""
    source = """
    def later(sender, count):
        for number in range(count):
            sender.send(answer(number))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    class TritonPythonModel:
        def execute(self, requests):
            for each in requests:
                threading.Thread(target=later, args=(each.get_response_sender(), int(x(each)[0]))).start()
    """
    with serving(tmp_path, source, DECOUPLED) as (_, client):
        assert [event["Y"] for event in events(client, 3)] == [0, 1, 2]
        assert events(client, 0) == []
        assert infer(client, 1).status_code == 501


RULES = """
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
KEPT = []

def refused(sender, *args, **more):
    try:
        sender.send(*args, **more)
    except pb_utils.TritonModelException as error:
        return str(error)
    return ""

class TritonPythonModel:
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        KEPT.append(sender)
        what = int(x(requests[0])[0])
        if what == 1:
            raise ValueError("in the middle")
        if what == 2:
            sender.send(answer(0))
            KEPT.clear()
            return None
        if what == 3:
            sender.send(answer(0, error=pb_utils.TritonError("told")))
            return None
        if what == 4:
            return [answer(0)]
        said = [refused(sender), refused(sender, answer(0), flags=8), refused(sender, 5)]
        sender.send(answer(0), FINAL)
        said += [refused(sender, answer(1)), refused(sender, flags=FINAL)]
        (PLACE / "said").write_text(json.dumps(said))
"""


def test_sender_rules(tmp_path):
    """What a sender does not take raises in the model; after the end it takes nothing, and holds nothing though it is kept."""
    with serving(tmp_path, RULES, DECOUPLED) as (_, client):
        assert [event["Y"] for event in events(client, 0)] == [0]
        wait_until((tmp_path / "said").exists, "the model to have said it")
        wait_until(lambda: len(json.loads((tmp_path / "said").read_text() or "[]")) == 5, "all of it")
        said = json.loads((tmp_path / "said").read_text())
        assert [words.split(".")[0].split(" unless")[0] for words in said] == [
            "a response is needed",
            "Unable to send response",
            "an InferenceResponse is needed, not a int",
            "Unable to send response",
            "",
        ]
        assert unload(client, "m").status_code == 200


@pytest.mark.parametrize(
    ("what", "words"),
    [(1, "in the middle"), (2, "let go of its sender"), (3, "told"), (4, "a decoupled execute must return None")],
)
def test_sender_ends(tmp_path, what, words):
    """Whatever a decoupled model does, its request ends, with the error that says what it was; and the next one is served."""
    with serving(tmp_path, RULES, DECOUPLED) as (_, client):
        answered = client.post("/v2/models/m/generate_stream", json={"X": [what]})
        assert words in answered.text
        assert [event["Y"] for event in events(client, 0)] == [0]


def test_decoupled_async(tmp_path):
    """An `async def execute` serves many requests at once."""
    source = """
    import asyncio
    waiting = []

    class TritonPythonModel:
        async def execute(self, requests):
            sender = requests[0].get_response_sender()
            waiting.append(1)
            while len(waiting) < 2:
                await asyncio.sleep(0.005)
            sender.send(answer(x(requests[0])), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """

    with serving(tmp_path, source, DECOUPLED) as (_, client), ThreadPoolExecutor(2) as pool:
        found = [event["Y"] for each in pool.map(lambda value: events(client, value), (1, 2)) for event in each]
    assert found == [1, 2]


def test_async_needs_decoupled(tmp_path):
    """Of a model that has one response for a request an `async def execute` is refused in words."""
    source = "class TritonPythonModel:\n    async def execute(self, requests):\n        return None\n"
    with refusing(tmp_path, source) as (_, words):
        assert "decoupled: true" in words


def test_one_by_sender(tmp_path):
    """A model with one response for a request may send it, later too."""
    source = """
    def later(sender, value):
        time.sleep(0.05)
        sender.send(answer(value), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    class TritonPythonModel:
        def execute(self, requests):
            threading.Thread(target=later, args=(requests[0].get_response_sender(), x(requests[0]))).start()
    """
    with serving(tmp_path, source) as (_, client):
        assert output(infer(client, 5)) == [5]


def test_died(tmp_path):
    """One that ends its process is replaced, as any model is."""
    source = """
    class TritonPythonModel:
        def execute(self, requests):
            if x(requests[0])[0] < 0:
                os._exit(3)
            return [answer(os.getpid())]
    """
    with serving(tmp_path, source) as (_, client):
        (before,) = output(infer(client, 1))
        assert infer(client, -1).status_code == 503
        (after,) = output(infer(client, 1))
        assert before != after != os.getpid()


# --- what models import ---


def test_bytes():
    """Arrays of text cross `serialize_byte_tensor` and back; what ends too early is refused."""
    array = np.array([b"", b"a", "ü", b"x" * 300], dtype=object)
    packed = pb_utils.serialize_byte_tensor(array)
    assert pb_utils.deserialize_bytes_tensor(packed.tobytes()).tolist() == [b"", b"a", "ü".encode(), b"x" * 300]
    assert pb_utils.deserialize_bytes_tensor(b"").tolist() == []
    for cut in (1, 3, 4, 6):
        with pytest.raises(ValueError, match="ends behind"):
            pb_utils.deserialize_bytes_tensor(packed.tobytes()[4 : 4 + cut])


@pytest.mark.parametrize("name", ["TYPE_BOOL", "TYPE_FP16", "TYPE_FP64", "TYPE_INT8", "TYPE_UINT64", "TYPE_STRING"])
def test_types(name):
    """Triton's names of datatypes are numpy's dtypes, and back."""
    assert pb_utils.numpy_to_triton_type(pb_utils.triton_string_to_numpy(name)) == name
    with pytest.raises(ValueError, match="numpy has no dtype"):
        pb_utils.triton_string_to_numpy("TYPE_BF16")
    with pytest.raises(ValueError, match="there is no datatype"):
        pb_utils.numpy_to_triton_type(np.complex64)


def test_tensor():
    """A tensor takes arrays and DLPack, and nothing else."""
    array = np.arange(4, dtype=np.float32)
    tensor = pb_utils.Tensor.from_dlpack("x", pb_utils.Tensor("y", array))
    assert tensor.name() == "x"
    assert tensor.as_numpy().tolist() == [0, 1, 2, 3]
    assert tensor.to_dlpack() is not None
    with pytest.raises(TypeError, match="takes a numpy array, not a list"):
        pb_utils.Tensor("x", [1])


def test_config():
    """A configuration is completed and not contradicted."""
    x = {"name": "X", "data_type": "TYPE_FP32", "dims": [2]}
    config = pb_utils.ModelConfig({"max_batch_size": 4, "input": [x]})
    config.set_max_batch_size(8)
    config.set_dynamic_batching()
    config.add_input(x)
    config.add_output({**x, "name": "Y"})
    config.set_model_transaction_policy({"decoupled": True})
    said = config.as_dict()
    assert said["max_batch_size"] == 4
    assert pb_utils.get_input_config_by_name(said, "X") == x
    assert pb_utils.get_output_config_by_name(said, "X") is None
    assert pb_utils.using_decoupled_model_transaction_policy(said)
    for change, words in (
        (lambda: config.set_max_batch_size(2), "says 4"),
        (lambda: config.add_input({**x, "dims": [3]}), r"dims is \[2\]"),
        (lambda: config.add_input({**x, "shape": [3]}), "'shape' is not known"),
        (lambda: config.add_output({"name": "Z"}), "'data_type' is needed"),
        (lambda: config.set_model_transaction_policy({}), "something else"),
    ):
        with pytest.raises(ValueError, match=words):
            change()


def test_metric_rules():
    """A counter neither falls nor is set, and there are no histograms here."""
    families = pb_utils.MetricFamily
    counter = families("c", "", families.COUNTER).Metric()
    for change in (
        lambda: counter.increment(-1),
        lambda: counter.set(1),
        lambda: families("h", "", families.HISTOGRAM),
    ):
        with pytest.raises(pb_utils.TritonModelException):
            change()


def test_served_alone(tmp_path):
    """Served like any class, such a module is refused with what to do instead."""
    add(tmp_path, "m", LIFE)
    flags = ("--model-dir", str(tmp_path / "models" / "m" / "1"))
    with launched(tmp_path, "model:TritonPythonModel", *flags, ready=False) as server:
        assert server.process.wait(DEADLINE) == 3
        assert "is for Triton's Python backend: serve its repository" in server.log


def test_documented(tmp_path):
    """The model in docs/repository.md is served with the configuration that stands above it, and can be imported in a test."""
    page = (Path(__file__).parents[1] / "docs" / "repository.md").read_text()
    blocks = {each.splitlines()[0]: each.partition("```")[0] for each in page.split("```text\n")[1:]}
    model = tmp_path / "models" / "iris"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(blocks["# 1/model.py"])
    (model / "config.pbtxt").write_text(blocks["# config.pbtxt"])
    body = {"inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP64", "data": [1, 2, 3, 4]}]}
    with repository_server(tmp_path) as server, server.client() as client:
        assert output(client.post("/v2/models/iris/infer", json=body)) == [2, 3, 4, 5]
    stand_in()
    scope = {}
    exec(blocks["# 1/model.py"], scope)
    asked = pb_utils.InferenceRequest(inputs=[pb_utils.Tensor("X", np.ones(2))])
    (answered,) = scope["TritonPythonModel"]().execute([asked])
    assert pb_utils.get_output_tensor_by_name(answered, "Y").as_numpy().tolist() == [2, 2]
