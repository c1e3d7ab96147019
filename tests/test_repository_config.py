"""model.yaml: what it may say, how it is read, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prefork.errors import RepositoryError
from prefork.payload import TensorSpec
from prefork.repository import model_yaml
from prefork.repository.config import Batching, LevelQueue, ModelConfig, VersionPolicy, Warmup, read
from prefork.repository.reading import Wrong, keys

READ: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("# nothing\n", {}),
    ("threads:\n", {}),
    ("class: iris:Iris", {"class_": "iris:Iris"}),
    ("runtime: onnx\nfile: a.onnx", {"runtime": "onnx", "file": "a.onnx"}),
    ("name: iris\nhost: worker", {"name": "iris", "host": "worker"}),
    ("instances: 2\nthreads: '3'", {"instances": 2, "threads": 3}),
    ("devices: [0, '1', GPU-8f6d]", {"devices": (0, 1, "GPU-8f6d")}),
    ("devices: 2", {"devices": (2,)}),
    ("environment: {A: b, N: 1}", {"environment": {"A": "b", "N": "1"}}),
    ("allocator: jemalloc\npython: env/bin/python", {"allocator": "jemalloc", "python": "env/bin/python"}),
    ("memory_limit: 2G", {"memory_limit": 2 << 30}),
    ("memory_limit: 1000", {"memory_limit": 1000}),
    ("parameters: {depth: 3, names: [a]}", {"parameters": {"depth": 3, "names": ["a"]}}),
    ("parameters: {version: 2024-01-01, at: 1:30}", {"parameters": {"version": "2024-01-01", "at": "1:30"}}),
    ("parameters: [{name: depth, type: INT, value: '3'}]", {"parameters": {"depth": 3}}),
    (
        "inputs: [{name: A, datatype: FP32, shape: [-1, 4]}, {name: B, optional: true}]",
        {"inputs": (TensorSpec("FP32", (-1, 4), "A"), TensorSpec(name="B", optional=True))},
    ),
    ("outputs: []", {"outputs": ()}),
    ("labels: {Y: ['no', maybe, 1]}", {"labels": {"Y": ("no", "maybe", "1")}}),
    ("batching: {max_batch_size: 8, preferred_batch_sizes: [4, 8]}",
     {"batching": Batching(max_batch_size=8, preferred_batch_sizes=(4, 8))}),
    ("batching: {timeout_action: delay, retry_alone: yes}", {"batching": Batching(timeout_action="delay", retry_alone=True)}),
    ("batching: {}", {"batching": Batching()}),
    ("batching: {priority_levels: 2, priority_queues: {1: {max_queue: 4}, '2': {timeout_action: delay}}}",
     {"batching": Batching(
         priority_levels=2, priority_queues={1: LevelQueue(max_queue=4), 2: LevelQueue(timeout_action="delay")})}),
    ("versions: all", {"versions": VersionPolicy(all=True)}),
    ("versions: [3, 1]", {"versions": VersionPolicy(specific=(3, 1))}),
    ("versions: {latest: 2}", {"versions": VersionPolicy(latest=2)}),
    ("warmup: true", {"warmup": (Warmup(),)}),
    ("warmup: false", {"warmup": ()}),
    ("warmup: example.json", {"warmup": (Warmup(file="example.json"),)}),
    ("warmup: [{count: 3}, b.json]", {"warmup": (Warmup(count=3), Warmup(file="b.json"))}),
    ("warmup: {inputs: [{name: A, shape: [1], datatype: FP32, data: [1.0]}]}",
     {"warmup": (Warmup(inputs=({"name": "A", "shape": [1], "datatype": "FP32", "data": [1.0]},)),)}),
    ("load_timeout: 0.5\nunload_timeout: 3", {"load_timeout": 0.5, "unload_timeout": 3.0}),
]  # fmt: skip

REFUSED = [
    ("clas: a:B", "clas: no such key; did you mean class?"),
    ("frobnicate: 1", "frobnicate: no such key; known: name, class, runtime"),
    ("1: 2", "1: no such key"),
    ("- a", "a mapping is needed, of name, class"),
    ("a: b: c", "line 1, column 5"),
    ("threads: 1\nthreads: 2", "line 2, column 1: threads is said twice"),
    ("batching: {max_queue: 1, max_queue: 2}", "max_queue is said twice"),
    ("parameters: {x: !!binary aGVsbG8=}", "line 1, column 17: the tag !!binary has no meaning here"),
    ('parameters: {x: "\\ud800"}', "line 1, column 17: half of a surrogate pair is no text"),
    ("parameters: {x: " + "[" * 3000 + "]" * 3000 + "}", "it nests deeper than 100 levels"),
    ("threads: 0", "threads: a whole number from 1 to 1024 is needed"),
    ("instances: true", "instances: a whole number"),
    ("host: cloud", "host: one of process, worker, auto is needed"),
    ("name: a/b", "name: a name without spaces"),
    ("class: 1.5", "class: text is needed; put it in quotes"),
    ("class: a:B\nruntime: onnx", "runtime: only one of class and runtime"),
    ("memory_limit: lots", "memory_limit: a number of bytes is needed"),
    ("load_timeout: -1", "load_timeout: a number of seconds"),
    ("allocator: mimalloc", "allocator: one of jemalloc, tcmalloc is needed"),
    ("devices: [-1]", "devices.1: a device's number"),
    ("environment: {A: [1]}", "environment.A: text is needed"),
    ("environment: {'A=B': c}", "environment.A=B: a variable's name is needed, without = and NUL"),
    ('environment: {"A\\0": b}', "a variable's name is needed, without = and NUL"),
    ("environment: {'': b}", "environment.: a variable's name is needed"),
    ('environment: {A: "b\\0c"}', "environment.A: text without the character NUL is needed"),
    ('python: "a\\0"', "python: text without the character NUL is needed"),
    ('devices: ["a\\0"]', "devices.1: text without the character NUL is needed"),
    ("environment: [A]", "environment: a mapping of variables to texts"),
    ("parameters: {a-b: 1}", "parameters: parameter 'a-b'"),
    ("parameters: {a: {null: 1}}", "parameters.a: the key None is no text; put it in quotes"),
    ("parameters: {a: [{1: b}]}", "parameters.a.1: the key 1 is no text; put it in quotes"),
    ("parameters: {a: .inf}", "parameters.a: a finite number is needed"),
    ("parameters: [{name: a, type: [b], value: 1}]", "parameters: parameter 'a': type is ['b']"),
    ("warmup: {inputs: [{name: A, data: {null: 1}}]}", "warmup.1.inputs.1.data: the key None is no text"),
    ("inputs: {A: FP32}", "inputs: a list of tensors"),
    ("inputs: [{datatype: FP32}]", "inputs.1: a name is needed"),
    ("inputs: [{name: A, datatype: FLOAT}]", "inputs.1.datatype: one of BOOL"),
    ("inputs: [{name: A, shape: [1, -2]}]", "inputs.1.shape.2: a whole number of at least -1"),
    ("inputs: [{name: A}, {name: A}]", "inputs: two tensors are called 'A'"),
    ("inputs: [{name: A, dims: [1]}]", "inputs.1.dims: no such key"),
    ("labels: {Y: [no]}", "labels.Y.1: text is needed; put it in quotes"),
    ("labels: {Y: yes}", "labels.Y: a list of labels"),
    ("batching: {max_batch_sise: 8}", "batching.max_batch_sise: no such key; did you mean max_batch_size?"),
    ("batching: {priority_queues: [1]}", "batching.priority_queues: a mapping of levels"),
    ("batching: {priority_queues: {high: {}}}", "batching.priority_queues.high: a level of at least 1 is needed"),
    ("batching: {priority_queues: {0: {}}}", "batching.priority_queues.0: a level of at least 1 is needed"),
    ("batching: {priority_queues: {1: {max: 1}}}", "batching.priority_queues.1.max: no such key"),
    (
        "batching: {priority_levels: 2, priority_queues: {3: {}}}",
        "batching.priority_queues.3: there is no such level; priority_levels is 2",
    ),
    ("batching: 8", "batching: a mapping is needed, of max_batch_size"),
    ("batching: {preferred_batch_sizes: [0]}", "batching.preferred_batch_sizes.1: a whole number of at least 1"),
    ("versions: {latest: 0}", "versions.latest: a whole number of at least 1"),
    ("versions: {latest: 1, all: true}", "versions: only one of latest, all can be meant"),
    ("versions: []", "versions.specific: at least one version"),
    ("versions: [0]", "versions.specific.1: a whole number of at least 1"),
    ("instances: 1025", "instances: a whole number from 1 to 1024 is needed"),
    ("threads: 1025", "threads: a whole number from 1 to 1024 is needed"),
    ("memory_limit: 9223372036854775808", "memory_limit: a number of bytes within 64 bits is needed"),
    ("memory_limit: 8589934592G", "memory_limit: a number of bytes within 64 bits is needed"),
    ("max_queue: 9223372036854775808", "max_queue: a whole number of at least 0 is needed, within 64 bits"),
    ("load_timeout: 1.0e+12", "load_timeout: a number of seconds of at most 1000000000 is needed"),
    (
        "batching: {max_batch_size: 4, preferred_batch_sizes: [2, 8]}",
        "batching.preferred_batch_sizes: sizes from 1 to max_batch_size, which is 4, are needed",
    ),
    (
        "batching: {preferred_batch_sizes: [2]}",
        "batching.preferred_batch_sizes: sizes from 1 to max_batch_size, which is 0",
    ),
    (
        "batching: {priority_levels: 2, default_priority: 3}",
        "batching.default_priority: there is no such level; priority_levels is 2",
    ),
    (
        "batching: {max_batch_delay: 1000000000000001}",
        "batching.max_batch_delay: a whole number from 0 to 1000000000000000 is needed",
    ),
    ("batching: {queue_timeout: 1000000000000001}", "batching.queue_timeout: a whole number from 0 to"),
    ("batching: {priority_levels: 101}", "batching.priority_levels: a whole number from 0 to 100 is needed"),
    ("labels: {'': [a]}", "labels.: the name of an output is needed"),
    ("labels: {Y: []}", "labels.Y: at least one label is needed"),
    ("labels: {Z: [a]}\noutputs: [{name: Y}]", "labels.Z: there is no such output; outputs has Y"),
    ("warmup: [{times: 1}]", "warmup.1.times: no such key"),
    ("warmup: {inputs: [A]}", "warmup.1.inputs.1: a mapping"),
    ("max_queue: -1", "max_queue: a whole number of at least 0"),
]


def yaml_file(folder: Path, text: str) -> Path:
    path = folder / "model.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("text", "said"), READ, ids=[text[:40] for text, _ in READ])
def test_what_is_read(tmp_path: Path, text: str, said: dict[str, Any]):
    """Each key is read as settings are, and what a file does not say has its default."""
    assert model_yaml.read(yaml_file(tmp_path, text)) == ModelConfig(**said)


@pytest.mark.parametrize(("text", "problem"), REFUSED, ids=[text[:40] for text, _ in REFUSED])
def test_what_is_refused(tmp_path: Path, text: str, problem: str):
    """What cannot be meant is one line that names the file and the key, or the line."""
    path = yaml_file(tmp_path, text)
    with pytest.raises(RepositoryError) as caught:
        model_yaml.read(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert problem in caught.value.message
    assert caught.value.status == 400


def test_a_file_that_cannot_be_read(tmp_path: Path):
    """A file that is not there, or is no text, is an error that names it."""
    with pytest.raises(RepositoryError, match=r"model\.yaml: cannot be read: No such file"):
        model_yaml.read(tmp_path / "model.yaml")
    (tmp_path / "model.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(RepositoryError, match=r"model\.yaml: "):
        model_yaml.read(tmp_path / "model.yaml")


def test_anchors_and_merges_are_yaml(tmp_path: Path):
    """A merge is no key that is said twice."""
    text = "environment: &e {A: a}\nparameters:\n  <<: *e\n  B: b\n"
    assert model_yaml.read(yaml_file(tmp_path, text)).parameters == {"A": "a", "B": "b"}


def test_a_file_goes_over_a_base(tmp_path: Path):
    """What the file says replaces what the base says, key by key, and the rest of the base stays."""
    base = ModelConfig(instances=3, threads=2)
    assert model_yaml.read(yaml_file(tmp_path, "threads: 5"), base) == ModelConfig(instances=3, threads=5)


@pytest.mark.parametrize(("text", "said"), READ, ids=[text[:40] for text, _ in READ])
def test_a_config_crosses_to_another_process(text: str, said: dict[str, Any]):
    """A config is the same after it has been JSON."""
    config = ModelConfig(**said)
    assert msgspec.json.decode(msgspec.json.encode(config), type=ModelConfig) == config


def test_a_mapping_is_read_as_a_file_is():
    """A config that is already parsed goes by the same rules."""
    assert read({"class": "a:B"}) == ModelConfig(class_="a:B")
    with pytest.raises(Wrong, match=r"^batching\.max_queue: "):
        read({"batching": {"max_queue": "x"}})


@pytest.mark.parametrize("kind", [ModelConfig, Batching, VersionPolicy, Warmup])
def test_every_key_is_written_about(kind: type[msgspec.Struct]):
    """Each key has its sentence beside its field."""
    for key in keys(kind).values():
        assert re.search(r"[.)]$", key.about.text), key.field
        assert "|" not in key.about.text
