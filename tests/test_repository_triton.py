"""Triton's model configuration: read as text and as JSON, and shown as its `/config` does."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from prefork.errors import RepositoryError
from prefork.payload import ModelSpec, TensorSpec
from prefork.repository import triton, triton_types
from prefork.repository.config import Batching, LevelQueue, ModelConfig, VersionPolicy, Warmup
from prefork.repository.triton_form import fields
from vectors import same_json

VECTORS = Path(__file__).parent / "vectors" / "v2.jsonl"
CONFIGS = {
    name: (VECTORS.parent / "v2_repository" / name / "config.pbtxt").read_text() for name in ("add", "two", "count")
}
RECORDED = {
    line["id"].removeprefix("model/config-"): line["response"]["body"]["text"]
    for line in map(json.loads, VECTORS.read_text().splitlines())
    if line["id"].startswith("model/config-")
}

Case = tuple[str, dict[str, Any]]
READ: list[Case] = [
    ('name: "iris"', {"name": "iris"}),
    ('backend: "python"', {}),
    ('backend: "onnxruntime" platform: "onnxruntime_onnx"', {"runtime": "onnxruntime", "platform": "onnxruntime_onnx"}),
    ('default_model_filename: "my.py"', {"file": "my.py"}),
    ('default_model_filename: "model.py"', {}),
    ("max_batch_size: 8", {"max_rows": 8}),
    ('input { name: "A" data_type: TYPE_STRING dims: 2 dims: -1 optional: true }',
     {"inputs": (TensorSpec("BYTES", (2, -1), "A", optional=True),)}),
    ('max_batch_size: 4 output { name: "B" data_type: TYPE_BF16 dims: [3] }',
     {"max_rows": 4, "outputs": (TensorSpec("BF16", (-1, 3), "B"),)}),
    ("max_batch_size: 8 dynamic_batching { }",
     {"max_rows": 8, "batching": Batching(max_batch_size=8, allow_timeout_override=False)}),
    ("""max_batch_size: 8 dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 100 priority_levels: 3
        default_priority_level: 2 default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5
        allow_timeout_override: true max_queue_size: 7 } }""",
     {"max_rows": 8, "batching": Batching(
         max_batch_size=8, preferred_batch_sizes=(4, 8), max_batch_delay=100, priority_levels=3, default_priority=2,
         timeout_action="delay", queue_timeout=5, allow_timeout_override=True, max_queue=7)}),
    ("""max_batch_size: 8 dynamic_batching { priority_levels: 2 priority_queue_policy { key: 1 value { max_queue_size: 4
        timeout_action: DELAY } } priority_queue_policy { key: 2 value { default_timeout_microseconds: 9 } } }""",
     {"max_rows": 8, "batching": Batching(
         max_batch_size=8, priority_levels=2, allow_timeout_override=False, priority_queues={
             1: LevelQueue(max_queue=4, timeout_action="delay", allow_timeout_override=False),
             2: LevelQueue(queue_timeout=9, allow_timeout_override=False)})}),
    ("instance_group [{ kind: KIND_CPU count: 3 }]", {"instances": 3}),
    ("instance_group { count: 2 kind: KIND_GPU gpus: [0, 1] }", {"instances": 2, "devices": (0, 1)}),
    ("instance_group [{ count: 2 gpus: 0 kind: KIND_GPU }, { count: 1 gpus: 1 kind: KIND_GPU }]", {"devices": (0, 0, 1)}),
    ("instance_group [{ count: 2 kind: KIND_CPU }, { gpus: 1 kind: KIND_GPU }]", {"devices": ("cpu", "cpu", 1)}),
    ("instance_group [{ count: 2 }, { count: 3 }]", {"instances": 5}),
    ("version_policy: { latest: { num_versions: 2 } }", {"versions": VersionPolicy(latest=2)}),
    ("version_policy { all {} }", {"versions": VersionPolicy(all=True)}),
    ("version_policy { specific { versions: [1, 3] } }", {"versions": VersionPolicy(specific=(1, 3))}),
    ('parameters { key: "k" value: { string_value: "v" } } parameters { key: "l" value { string_value: "w" } }',
     {"parameters": {"k": "v", "l": "w"}}),
    ('parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/opt/env" } }', {"python": "/opt/env"}),
    ("model_transaction_policy { decoupled: true }", {"decoupled": True}),
    ("optimization { input_pinned_memory { enable: true } } # no counterpart", {}),
    ("""max_batch_size: 2 model_warmup { batch_size: 2 count: 3 inputs { key: "A" value { data_type: TYPE_INT32 dims: 2 zero_data: true } } }""",
     {"max_rows": 2,
      "warmup": (Warmup(({"name": "A", "shape": [2, 2], "datatype": "INT32", "data": [0, 0, 0, 0]},), count=3),)}),
    ("""model_warmup { batch_size: 1 inputs { key: "A" value { data_type: TYPE_INT32 dims: 2 zero_data: true } } }""",
     {"warmup": (Warmup(({"name": "A", "shape": [2], "datatype": "INT32", "data": [0, 0]},)),)}),
]  # fmt: skip

NOTES = [
    ("optimization { priority: PRIORITY_MAX }", "optimization has no effect"),
    ("response_cache { enable: true }", "response_cache is not known and has no effect"),
    ('metric_tags { key: "a" value: "b" }', "metric_tags has no effect"),
    ('input { name: "A" data_type: TYPE_FP32 dims: 1 reshape { shape: [] } }', "input.reshape has no effect"),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 allow_ragged_batch: true }',
        "input.allow_ragged_batch has no effect",
    ),
    ('input { name: "A" data_type: TYPE_FP32 dims: 1 format: FORMAT_NHWC }', "input.format has no effect"),
    ("dynamic_batching { preserve_ordering: true }", "dynamic_batching.preserve_ordering has no effect"),
    ("instance_group { passive: true }", "instance_group.passive has no effect"),
    ("instance_group { kind: KIND_GPU }", "instance_group: KIND_GPU without gpus"),
    (
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
        "parameters.FORCE_CPU_ONLY_INPUT_TENSORS has no effect",
    ),
]

REFUSED = [
    ("name: ", "line 1, column 7: a value is needed"),
    ('name: "a" name: "b"', "name: one value is needed, not 2"),
    ("max_batch_size: -1", "max_batch_size: a whole number of at least 0"),
    ('max_batch_size: "x"', "max_batch_size: Expected `int`, got `str`"),
    ("input: 1", "input: an object is needed"),
    ("input { dims: 1 data_type: TYPE_FP32 }", "input.name is needed"),
    ('input { name: "A" dims: 1 }', "input.A: data_type: one of TYPE_BOOL"),
    ('input { name: "A" data_type: TYPE_FP32 dims: -2 }', "input.A: dims: sizes of at least -1"),
    ('input { name: "A" data_type: TYPE_FP32 dims: x }', "input[0].dims[0]: Expected `int`"),
    ("ensemble_scheduling { step [{}] }", "ensemble_scheduling: ensembles are not served here"),
    ('platform: "ensemble"', "ensemble_scheduling: ensembles"),
    ("sequence_batching { direct {} }", "sequence_batching: sequences are not served here"),
    ("version_policy { specific { } }", "version_policy.specific.versions: versions of at least 1"),
    ("instance_group { count: -1 }", "instance_group: count: a whole number"),
    ("instance_group { count: 1025 }", "instance_group: count: a whole number from 0 to 1024 is needed"),
    ("max_batch_size: 99999999999999999999", "max_batch_size: a number within 64 bits is needed"),
    (
        "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 8 ] }",
        "dynamic_batching.preferred_batch_sizes: sizes from 1 to max_batch_size, which is 4, are needed",
    ),
    (
        "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: -1 }",
        "dynamic_batching.max_queue_delay_microseconds: a whole number from 0 to 1000000000000000 is needed",
    ),
    (
        "max_batch_size: 4 dynamic_batching { priority_levels: 2 default_priority_level: 3 }",
        "dynamic_batching.default_priority: there is no such level; priority_levels is 2",
    ),
    (
        "max_batch_size: 4 dynamic_batching { default_queue_policy { max_queue_size: -1 } }",
        "dynamic_batching.default_queue_policy.max_queue_size: a whole number of at least 0 is needed",
    ),
    ("dynamic_batching { default_queue_policy { timeout_action: LATER } }", "timeout_action: REJECT or DELAY is needed"),
    ("dynamic_batching { priority_levels: 1 priority_queue_policy { key: 2 value { } } }",
     "priority_queue_policy.2: there is no such level; priority_levels is 1"),
    ('dynamic_batching { priority_levels: 1 priority_queue_policy { key: 1 value { timeout_action: "NO" } } }',
     "priority_queue_policy.1.timeout_action: REJECT or DELAY is needed"),
    ('parameters { key: "a" }  parameters: 1', "parameters: an entry has one key and one value"),
    (
        'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }',
        "parameters.EXECUTION_ENV_PATH: unpack ",
    ),
    ('output { name: "B" data_type: TYPE_FP32 dims: 1 label_filename: "no.txt" }', "output.B.label_filename: no.txt cannot be read"),
    ("model_warmup { }", "model_warmup.1: inputs are needed"),
    (
        'model_warmup { batch_size: 2 inputs { key: "A" value { data_type: TYPE_INT32 dims: 2 zero_data: true } } }',
        "model_warmup.1: batch_size: 1 to 1 is needed",
    ),
    ('model_warmup { inputs { key: "A" value { dims: 1 zero_data: true } } }', "model_warmup.1.inputs.A: data_type"),
    ('model_warmup { inputs { key: "A" value { data_type: TYPE_FP32 dims: 1 } } }', "one of zero_data, random_data"),
    ('model_warmup { inputs { key: "A" value { data_type: TYPE_FP32 dims: -1 zero_data: true } } }', "dims: sizes of at least 0"),
    (
        'model_warmup { inputs { key: "A" value { data_type: TYPE_FP32 dims: 1 input_data_file: "x" } } }',
        "input_data_file: warmup/x cannot be read",
    ),
]  # fmt: skip


def pbtxt_file(folder: Path, text: str) -> Path:
    path = folder / "config.pbtxt"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("text", "said"), READ, ids=[text[:40] for text, _ in READ])
def test_what_is_read(tmp_path: Path, text: str, said: dict[str, Any]):
    """Each field of config.pbtxt that has a counterpart is that."""
    assert triton.read_file(pbtxt_file(tmp_path, text)).config == ModelConfig(**said)


@pytest.mark.parametrize(("text", "note"), NOTES, ids=[text[:40] for text, _ in NOTES])
def test_what_has_no_effect(tmp_path: Path, text: str, note: str):
    """Each field that has no counterpart, or that nobody knows, is a note, and no error."""
    (found,) = triton.read_file(pbtxt_file(tmp_path, text)).notes
    assert found.startswith(note)


@pytest.mark.parametrize(("text", "problem"), REFUSED, ids=[text[:60] for text, _ in REFUSED])
def test_what_is_refused(tmp_path: Path, text: str, problem: str):
    """What cannot be meant, and what would be served wrongly, is one line that names the file and the field."""
    path = pbtxt_file(tmp_path, text)
    with pytest.raises(RepositoryError) as caught:
        triton.read_file(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert problem in caught.value.message


def test_files_that_a_config_names(tmp_path: Path):
    """Labels are a file's lines, an environment may start at the model's folder, and warm-up data is the raw bytes in `warmup`."""
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "a").write_bytes(np.array([1.5, 2.5], "<f4").tobytes())
    (tmp_path / "warmup" / "t").write_bytes(
        b"".join(struct.pack("<I", len(t)) + t for t in (b"one", b"", "\u00e9".encode()))
    )
    text = """
        max_batch_size: 4
        output { name: "B" data_type: TYPE_FP32 dims: 2 label_filename: "labels.txt" }
        parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env" } }
        model_warmup { batch_size: 2
          inputs { key: "A" value { data_type: TYPE_FP32 dims: 2 input_data_file: "a" } } }
        model_warmup {
          inputs { key: "T" value { data_type: TYPE_STRING dims: 3 input_data_file: "t" } } }
    """
    config = triton.read_file(pbtxt_file(tmp_path, text)).config
    assert config.labels == {"B": ("cat", "dog")}
    assert config.python == str(tmp_path / "env")
    assert [each.inputs[0]["data"] for each in config.warmup] == [[1.5, 2.5, 1.5, 2.5], ["one", "", "\u00e9"]]
    (tmp_path / "warmup" / "t").write_bytes(b"\x05\0\0\0one")
    with pytest.raises(
        RepositoryError, match=r"model_warmup\.2\.inputs\.T: input_data_file: .* ends within an element"
    ):
        triton.read_file(tmp_path / "config.pbtxt")


@pytest.mark.parametrize("name", sorted({*triton_types.DATATYPES} - {"TYPE_BF16"}))
def test_drawn_warmup_data(tmp_path: Path, name: str):
    """Drawn values fit their datatype and are the same every time, so that nothing looks changed."""
    value = f"{{ data_type: {name} dims: [3, 5] random_data: true }}"
    path = pbtxt_file(tmp_path, f'model_warmup {{ inputs {{ key: "A" value {value} }} }}')
    first, second = (triton.read_file(path).config for _ in range(2))
    (drawn,) = first.warmup[0].inputs
    assert first == second
    assert len(drawn["data"]) == 15
    assert len(set(drawn["data"])) > 1
    if name != "TYPE_STRING":
        dtype = np.dtype({"TYPE_BOOL": "?"}.get(name, name.removeprefix("TYPE_").lower().replace("fp", "float")))
        assert np.array_equal(np.array(drawn["data"]), np.array(drawn["data"]).astype(dtype)) or dtype.kind == "f"


JSON = [
    ({"max_batch_size": 8}, {"max_rows": 8}),
    ({"maxBatchSize": "8", "versionPolicy": {"latest": {"numVersions": 2}}}, {"max_rows": 8, "versions": VersionPolicy(2)}),
    ({"backend": "python", "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": ["-1", 4]}]},
     {"inputs": (TensorSpec("FP32", (-1, 4), "A"),)}),
    ({"parameters": {"k": {"string_value": "v"}}, "instance_group": None}, {"parameters": {"k": "v"}}),
    ({"version_policy": {"specific": {"versions": [2]}}}, {"versions": VersionPolicy(specific=(2,))}),
]  # fmt: skip


@pytest.mark.parametrize(("value", "said"), JSON, ids=[str(value)[:40] for value, _ in JSON])
def test_json_is_read(value: dict[str, Any], said: dict[str, Any]):
    """The JSON form says the same, in either spelling of the names and with numbers as texts."""
    assert triton.is_triton(value)
    found = triton.read_json(value)
    assert found.config == ModelConfig(**said)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"input": {"name": "A"}}, "input: a list is needed"),
        ({"parameters": []}, "parameters: an object is needed"),
        ({"max_batch_size": 1, "maxBatchSize": 2}, "max_batch_size is said twice"),
        ({"input": [1]}, "input: an object is needed"),
        ([], "the config: an object is needed"),
        (
            {"output": [{"name": "B", "data_type": "TYPE_FP32", "label_filename": "x"}]},
            "there is no folder to read x from",
        ),
    ],
)
def test_json_is_refused(value: Any, problem: str):
    """A JSON config that cannot be meant is an error that names the field."""
    with pytest.raises(ValueError, match=problem):
        triton.read_json(value)


@pytest.mark.parametrize(
    ("value", "is_triton"),
    [
        ({}, False),
        ({"class": "a:B", "parameters": {"depth": 3}}, False),
        ({"name": "x", "platform": "python"}, False),
        ({"parameters": {"depth": {"string_value": "3"}}}, True),
        ({"dynamicBatching": {}}, True),
        ({"backend": "python"}, True),
    ],
)
def test_whose_config_it_is(value: dict[str, Any], is_triton: bool):
    """A JSON config is Triton's when a key is Triton's alone, or a parameter is written in its way."""
    assert triton.is_triton(value) is is_triton


@pytest.mark.parametrize("name", CONFIGS)
def test_recorded_configs(tmp_path: Path, name: str):
    """`/config` of the recorded models is, key by key and in order, what Triton answered."""
    found = triton.read_file(pbtxt_file(tmp_path, CONFIGS[name]))
    body = triton.as_triton(found.config, ModelSpec(name))
    assert json.dumps(body, separators=(",", ":")) == RECORDED[name]
    assert same_json(json.dumps(body), RECORDED[name])
    assert found.notes == ()


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_config_is_read_back(tmp_path: Path, name: str):
    """What Triton's `/config` answers, given back to a load, is the config that the file was, without a note."""
    found = triton.read_json(json.loads(RECORDED[name]))
    assert found == triton.read_file(pbtxt_file(tmp_path, CONFIGS[name]))


def test_a_config_of_ours_as_tritons():
    """What a class or model.yaml says is shown in Triton's words."""
    config = ModelConfig(
        instances=2,
        devices=(0, 1),
        batching=Batching(
            max_batch_size=16,
            max_batch_delay=100,
            preferred_batch_sizes=(8,),
            queue_timeout=5,
            max_queue=3,
            priority_levels=1,
            priority_queues={1: LevelQueue(max_queue=2)},
        ),
        versions=VersionPolicy(specific=(1, 3)),
        parameters={"depth": 3, "name": "x"},
        labels={"Y": ("no", "yes")},
        warmup=(Warmup(({"name": "A", "shape": [1, 4], "datatype": "FP32", "data": [0] * 4},), count=2),),
    )
    inputs, outputs = (TensorSpec("FP32", (-1, 4), "A"), TensorSpec("", None, "X")), (TensorSpec("BYTES", (-1,), "Y"),)
    body = triton.as_triton(config, ModelSpec("m", inputs=inputs, outputs=outputs, streams=True))
    assert body["max_batch_size"] == 16
    assert [(each["name"], each["data_type"], each["dims"]) for each in body["input"]] == [
        ("A", "TYPE_FP32", [4]),
        ("X", "TYPE_FP64", [-1]),
    ]
    assert (body["output"][0]["dims"], body["output"][0]["label_filename"]) == ([], "")
    assert body["version_policy"] == {"specific": {"versions": [1, 3]}}
    assert body["dynamic_batching"] == {
        "preferred_batch_size": [8],
        "max_queue_delay_microseconds": 100,
        "preserve_ordering": False,
        "priority_levels": 1,
        "default_priority_level": 0,
        "default_queue_policy": {
            "timeout_action": "REJECT",
            "default_timeout_microseconds": 5,
            "allow_timeout_override": True,
            "max_queue_size": 3,
        },
        "priority_queue_policy": {
            "1": {
                "timeout_action": "REJECT",
                "default_timeout_microseconds": 0,
                "allow_timeout_override": True,
                "max_queue_size": 2,
            }
        },
    }
    (group,) = body["instance_group"]
    assert (group["kind"], group["count"], group["gpus"]) == ("KIND_GPU", 2, [0, 1])
    assert body["parameters"] == {"depth": {"string_value": "3"}, "name": {"string_value": "x"}}
    assert body["model_warmup"][0]["inputs"] == {"A": {"data_type": "TYPE_FP32", "dims": [1, 4]}}
    assert body["model_transaction_policy"] == {"decoupled": True}


def test_a_model_that_says_nothing():
    """A class without a signature has no inputs and no batch; fixed first axes are no batch either."""
    assert triton.as_triton(ModelConfig(max_rows=8), ModelSpec("m"))["input"] == []
    spec = ModelSpec("m", inputs=(TensorSpec("FP32", (3, 4), "A"),), outputs=())
    body = triton.as_triton(ModelConfig(batching=Batching(max_batch_size=8)), spec)
    assert (body["max_batch_size"], body["input"][0]["dims"]) == (0, [3, 4])
    assert triton.as_triton(ModelConfig(versions=VersionPolicy(all=True)), spec)["version_policy"] == {"all": {}}


def test_ignored_fields_exist():
    """What is listed as ignored is a field, so that none of them is ignored under a wrong name."""
    for kind, names in triton_types.IGNORED.items():
        assert set(names) <= set(fields(kind)), kind
        assert issubclass(kind, msgspec.Struct)
