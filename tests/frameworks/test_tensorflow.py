"""The TensorFlow runtime beyond its cases: which signature answers, what is refused and in which words, what is given back."""

from __future__ import annotations

import gc
import json
import logging
import shutil
import subprocess
import sys
import weakref
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from frameworks.cases.tensorflow import NUMBERS, ROWS, TEXTS, WEIGHTS, keras_file, saved_model
from prefork.errors import BadRequest, ModelLoadError
from prefork.payload import Kind, Payload, TensorSpec
from prefork.runtimes import tensorflow
from prefork.runtimes.recognition import recognise
from prefork.runtimes.runtime import Opened, Options
from prefork.runtimes.saved import Saved

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

DENSE = ROWS @ WEIGHTS
FRESH = """
import json, os, pathlib, sys
from prefork.runtimes import tensorflow
from prefork.runtimes.runtime import Options

path = pathlib.Path(sys.argv[1])
first = tensorflow.open_(path, Options(threads=3, parameters={"onednn": False}))
second = tensorflow.open_(path, Options(threads=5, parameters={"onednn": False}))
config = __import__("tensorflow").config.threading
threads = [config.get_intra_op_parallelism_threads(), config.get_inter_op_parallelism_threads()]
facts = [model.facts.rpartition(", ")[2] for model in (first, second)]
print(json.dumps({"onednn": os.environ["TF_ENABLE_ONEDNN_OPTS"], "threads": threads, "facts": facts}))
"""


def opened(path: Path, **parameters: Any) -> Opened:
    return tensorflow.open_(path, Options(parameters=parameters))


def asked(model: Opened, parameters: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    gathered = model.takes.gather(Payload(Kind.TENSORS, given, parameters=parameters))
    return dict(model.run(gathered, parameters or {}))


def saved(folder: Path, function: Any) -> Path:
    """A SavedModel of one function."""
    module = tf.Module()
    module.f = function
    tf.saved_model.save(module, str(folder / "saved"), signatures=function)
    return folder / "saved"


def edited(path: Path, change: Any) -> Path:
    """A SavedModel whose graph somebody has changed."""
    file = path / "saved_model.pb"
    message = SavedModel.FromString(file.read_bytes())
    change(message.meta_graphs[0])
    file.write_bytes(message.SerializeToString())
    return path


def repacked(path: Path, name: str, old: bytes, new: bytes) -> Path:
    """A Keras file in one of whose members something else stands."""
    found = path.with_name("repacked.keras")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(found, "w") as other:
        for each in archive.namelist():
            data = archive.read(each)
            other.writestr(each, data.replace(old, new) if each == name else data)
    return found


def test_a_saved_model_is_recognised_by_what_is_in_it(tmp_path: Path):
    """A SavedModel folder, and a Keras file under any name, are TensorFlow's."""
    path, _ = keras_file(tmp_path)
    plain = shutil.copy(path, tmp_path / "model")
    assert recognise(saved_model(tmp_path, serving_default="dense")).runtime == "tensorflow"
    assert recognise(Path(plain)).runtime == "tensorflow"


def test_a_folder_of_versions_gives_the_newest(tmp_path: Path):
    """A base path as TensorFlow Serving has it: the highest number is the version."""
    for number in (2, 10):
        saved_model(tmp_path, serving_default="dense").rename(tmp_path / str(number))
    found = recognise(tmp_path)
    assert (found.runtime, found.version) == ("tensorflow", "10")


def test_metadata_is_the_signatures(tmp_path: Path):
    """Names, datatypes and shapes of inputs and outputs, a free size as -1."""
    model = opened(saved_model(tmp_path, serving_default="several"))
    assert set(model.takes.described()) == {TensorSpec("INT64", (-1,), "a"), TensorSpec("BYTES", (-1,), "t")}
    assert set(model.outputs or ()) == {TensorSpec("INT64", (-1,), "double"), TensorSpec("BYTES", (-1,), "said")}
    assert model.takes.is_batched


def test_inputs_are_in_the_order_of_the_functions_arguments(tmp_path: Path):
    """So that the columns of one matrix are what its author means; outputs are in the order of their names."""

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name=name) for name in ("weight", "age", "size", "income")]
    )
    def several(weight: Any, age: Any, size: Any, income: Any) -> Any:
        return tuple(weight + age * size - income + at for at in range(11))

    model = opened(saved(tmp_path, several))
    assert [spec.name for spec in model.takes.described()] == ["weight", "age", "size", "income"]
    given = model.takes.gather(Payload(Kind.TENSOR, np.float32([[1, 2, 3, 4]])))
    found = model.run(given, {})
    assert list(found) == [spec.name for spec in model.outputs or ()] == [f"output_{at}" for at in range(11)]
    assert [each.tolist() for each in found.values()] == [[3.0 + at] for at in range(11)]


def test_any_number_of_rows(tmp_path: Path):
    """The batch is as large as the request's."""
    model = opened(saved_model(tmp_path, serving_default="dense"))
    for count in (0, 1, 7):
        assert asked(model, x=np.zeros((count, 4), np.float32))["y"].shape == (count, 3)


def test_bytes_that_are_no_text(tmp_path: Path):
    """A string tensor holds any bytes, NUL and what is not UTF-8 among them."""
    model = opened(saved_model(tmp_path, serving_default="several"))
    texts = np.array([b"\xff\0", b""], object)
    assert asked(model, a=NUMBERS, t=texts)["said"].tolist() == [b"\xff\0!", b"!"]


def test_a_request_names_another_signature(tmp_path: Path):
    """`signature_name` in a request's parameters, as V1 sends it; an unknown one is a bad request that lists them."""
    model = opened(saved_model(tmp_path, serving_default="several", other="dense"))
    np.testing.assert_allclose(asked(model, {"signature_name": "other"}, x=ROWS)["y"], DENSE, rtol=1e-6)
    assert set(asked(model, {"signature_name": ""}, a=NUMBERS, t=TEXTS)) == {"double", "said"}
    with pytest.raises(BadRequest, match=r"signature_name 'third': the model has .*other"):
        asked(model, {"signature_name": "third"}, x=ROWS)
    with pytest.raises(BadRequest, match="signature_name '7'"):
        asked(model, {"signature_name": 7}, x=ROWS)
    with pytest.raises(BadRequest, match="unexpected input 'x'; the model takes a INT64"):
        asked(model, x=ROWS)


def test_the_only_signature_needs_no_name(tmp_path: Path):
    """Of one signature, whatever its name is, that is the one."""
    model = opened(saved_model(tmp_path, mine="dense"))
    np.testing.assert_allclose(asked(model, x=ROWS)["y"], DENSE, rtol=1e-6)


def test_several_signatures_without_a_default_have_to_be_named(tmp_path: Path):
    """The error lists them; the parameter `signature` names one; one that is not there is refused with the list."""
    path = saved_model(tmp_path, one="dense", two="several")
    with pytest.raises(ModelLoadError, match=r"no signature 'serving_default'; name one .* it has one, two"):
        opened(path)
    with pytest.raises(ModelLoadError, match="signature 'three': the model has one, two"):
        opened(path, signature="three")
    assert [spec.name for spec in opened(path, signature="one").takes.described()] == ["x"]


def test_no_signature_at_all(tmp_path: Path):
    """A SavedModel without signatures cannot be asked anything."""
    tf.saved_model.save(tf.Module(), str(tmp_path / "saved"))
    with pytest.raises(ModelLoadError, match="it has none"):
        opened(tmp_path / "saved")


def test_a_ragged_input_is_refused(tmp_path: Path):
    """At load, with what to do, and not served as the parts that it consists of."""

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.float32)])
    def total(rows: Any) -> Any:
        return {"total": tf.reduce_sum(rows, axis=1)}

    with pytest.raises(ModelLoadError, match="is a ragged tensor; only dense ones are served: export"):
        opened(saved(tmp_path, total))


def test_a_sparse_input_is_refused(tmp_path: Path):
    """As a ragged one."""

    @tf.function(input_signature=[tf.SparseTensorSpec([None, 4], tf.float32)])
    def total(rows: Any) -> Any:
        return {"total": tf.sparse.reduce_sum(rows, axis=1)}

    with pytest.raises(ModelLoadError, match="is a sparse tensor"):
        opened(saved(tmp_path, total))


def test_a_sparse_input_of_tensorflow_1_is_refused(tmp_path: Path):
    """A graph of TensorFlow 1 says in its signature that the tensor is sparse."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        rows = v1.sparse_placeholder(tf.float32, [None, 4])
        total = tf.sparse.reduce_sum(rows, 1)
        build = v1.saved_model.build_tensor_info
        signature = v1.saved_model.build_signature_def({"rows": build(rows)}, {"total": build(total)}, "predict")
        builder = v1.saved_model.Builder(str(tmp_path / "saved"))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    with pytest.raises(ModelLoadError, match="input 'rows' is a sparse or ragged tensor"):
        opened(tmp_path / "saved")


def test_a_graph_of_tensorflow_1(tmp_path: Path):
    """Its signatures are served, with names that are no names in Python."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        rows = v1.placeholder(tf.float32, [None, 4])
        weights = v1.get_variable("weights", initializer=WEIGHTS)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "saved"), {"in-put:0": rows}, {"out put": rows @ weights})
    model = opened(tmp_path / "saved")
    np.testing.assert_allclose(asked(model, **{"in-put:0": ROWS})["out put"], DENSE, rtol=1e-6)


def test_a_ragged_output_is_refused(tmp_path: Path):
    """Outputs are dense too."""

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def ragged(x: Any) -> Any:
        return {"rows": tf.RaggedTensor.from_tensor(x)}

    with pytest.raises(ModelLoadError, match="output 'rows' is a ragged tensor"):
        opened(saved(tmp_path, ragged))


def test_a_type_that_no_protocol_has(tmp_path: Path):
    """Complex numbers are refused at load, by name."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def turned(x: Any) -> Any:
        return {"turned": tf.complex(x, x)}

    with pytest.raises(ModelLoadError, match="output 'turned' has the type complex64, which no protocol carries"):
        opened(saved(tmp_path, turned))


def test_another_signature_that_cannot_be_served_is_no_obstacle(tmp_path: Path):
    """The default is served; who names the other is told why it is not."""

    class Both(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def twice(self, x: Any) -> Any:
            return {"twice": x + x}

        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.float32)])
        def total(self, rows: Any) -> Any:
            return {"total": tf.reduce_sum(rows, axis=1)}

    both = Both()
    tf.saved_model.save(both, str(tmp_path / "m"), signatures={"serving_default": both.twice, "total": both.total})
    model = opened(tmp_path / "m")
    assert asked(model, x=np.ones(2, np.float32))["twice"].tolist() == [2, 2]
    with pytest.raises(BadRequest, match=r"the signature 'total' cannot be served: .* ragged"):
        asked(model, {"signature_name": "total"}, x=ROWS)


def test_scalars_bfloat16_and_free_shapes(tmp_path: Path):
    """A scalar has the shape []; an input of any shape says so; bfloat16 travels as FP32."""

    @tf.function(
        input_signature=[tf.TensorSpec([], tf.float32, name="by"), tf.TensorSpec(None, tf.bfloat16, name="halves")]
    )
    def scaled(by: Any, halves: Any) -> Any:
        return {"scaled": halves * tf.cast(by, tf.bfloat16), "by": by}

    model = opened(saved(tmp_path, scaled))
    assert set(model.takes.described()) == {TensorSpec("FP32", (), "by"), TensorSpec("BF16", None, "halves")}
    assert not model.takes.is_batched
    found = asked(model, by=np.float32([2]), halves=np.float32([[0.5], [1.5]]))
    assert found["scaled"].dtype == np.float32
    assert found["scaled"].tolist() == [[1.0], [3.0]]
    assert found["by"].tolist() == 2.0


def test_what_the_graph_does_not_take_is_the_clients_mistake(tmp_path: Path):
    """The kernel's own words, without the names of nodes."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
    def dense(x: Any) -> Any:
        return {"y": tf.matmul(x, tf.constant(WEIGHTS))}

    model = opened(saved(tmp_path, dense))
    with pytest.raises(BadRequest) as raised:
        asked(model, x=np.zeros((2, 3), np.float32))
    assert raised.value.message == (
        "the model does not take these inputs: Matrix size-incompatible: In[0]: [2,3], In[1]: [4,3]"
    )


def test_an_operation_that_is_not_here_is_named(tmp_path: Path):
    """A custom op, with what to do and both versions."""

    def custom(graph: Any) -> None:
        graph.meta_info_def.tensorflow_version = "3.5.0"
        for function in graph.graph_def.library.function:
            for node in function.node_def:
                node.op = node.op.replace("MatMul", "TheirMatMul")

    path = edited(saved_model(tmp_path, serving_default="dense"), custom)
    with pytest.raises(ModelLoadError) as raised:
        opened(path)
    assert f"it needs the op TheirMatMul, which TensorFlow {tf.__version__} does not have" in str(raised.value)
    assert str(raised.value).endswith(f"it was written by TensorFlow 3.5.0, here is {tf.__version__}")


def test_a_folder_with_parts_missing(tmp_path: Path):
    """Without its variables, or with half of its graph, it is refused in words that name it."""
    path = saved_model(tmp_path, serving_default="dense")
    shutil.rmtree(path / "variables")
    with pytest.raises(ModelLoadError, match=r"saved cannot be loaded: .*it was written by TensorFlow"):
        opened(path)
    with (path / "saved_model.pb").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ModelLoadError, match=r"saved_model\.pb cannot be read"):
        opened(path)


def test_a_newer_keras_file_says_both_versions(tmp_path: Path):
    """What this Keras does not know is refused with the version that wrote it."""
    path, _ = keras_file(tmp_path)
    newer = repacked(path, "config.json", b'"units": 3', b'"units": 3, "brand_new": 1')
    newer = repacked(newer.rename(tmp_path / "newer"), "metadata.json", keras.__version__.encode(), b"4.1.0")
    with pytest.raises(ModelLoadError) as raised:
        opened(newer)
    assert "brand_new" in str(raised.value)
    assert str(raised.value).endswith(f"it was written by Keras 4.1.0, here is {keras.__version__}")
    assert len(str(raised.value)) < 700


class Doubled(keras.layers.Layer):
    """Somebody's own layer."""

    def call(self, x: Any) -> Any:
        return x * 2


def test_a_keras_files_own_layer_is_named(tmp_path: Path):
    """A layer that is not Keras' own cannot be made without its code."""
    keras.Sequential([keras.Input((4,)), Doubled()]).save(tmp_path / "own.keras")
    path = repacked(tmp_path / "own.keras", "config.json", b"Doubled", b"Tripled")
    with pytest.raises(
        ModelLoadError, match=r"it needs Tripled, which Keras does not have. Export it with model.export"
    ):
        opened(path)


def test_python_code_in_a_keras_file_is_run_only_where_that_is_allowed(tmp_path: Path):
    """A Lambda layer is Python code, as a pickle is."""
    keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x * 2)]).save(tmp_path / "code.keras")
    with pytest.raises(ModelLoadError, match=r"Python code in a Lambda layer.*allow_pickle"):
        opened(tmp_path / "code.keras")
    model = tensorflow.open_(tmp_path / "code.keras", Options(allow_pickle=True))
    ((_, found),) = asked(model, **{model.takes.described()[0].name: ROWS}).items()
    np.testing.assert_array_equal(found, ROWS * 2)


def test_a_keras_model_of_dicts_has_their_keys(tmp_path: Path):
    """Inputs and outputs are called as in the dict that the model takes and answers, not as its layers."""
    left, right = keras.Input((2,), name="a_layer"), keras.Input((2,), name="b_layer")
    keras.Model({"right": left, "left": right}, {"less": keras.layers.Subtract()([left, right])}).save(
        tmp_path / "dict.keras"
    )
    model = opened(tmp_path / "dict.keras")
    assert {spec.name for spec in model.takes.described()} == {"right", "left"}
    found = asked(model, right=np.float32([[5, 6]]), left=np.float32([[1, 1]]))
    assert found["less"].tolist() == [[4, 5]]


def test_outputs_of_one_layer_have_different_names(tmp_path: Path):
    """A layer with several outputs names each of them."""
    steps = keras.Input((3, 2), name="steps")
    keras.Model(steps, keras.layers.LSTM(2, return_state=True, name="lstm")(steps)).save(tmp_path / "lstm.keras")
    model = opened(tmp_path / "lstm.keras")
    assert [spec.name for spec in model.outputs or ()] == ["lstm", "lstm_1", "lstm_2"]
    assert set(asked(model, steps=np.zeros((1, 3, 2), np.float32))) == {"lstm", "lstm_1", "lstm_2"}


def test_a_sparse_keras_input_is_refused(tmp_path: Path):
    """As that of a SavedModel."""
    rows = keras.Input((4,), sparse=True, name="rows")
    keras.Model(rows, keras.layers.Dense(1)(rows)).save(tmp_path / "sparse.keras")
    with pytest.raises(ModelLoadError, match="input 'rows' is a sparse tensor"):
        opened(tmp_path / "sparse.keras")


def test_a_keras_file_has_one_signature(tmp_path: Path):
    """Clients may name it as TensorFlow Serving does; a parameter that names another is refused."""
    path, expected = keras_file(tmp_path)
    found = asked(opened(path), {"signature_name": "serving_default"}, iris=ROWS)
    np.testing.assert_allclose(found["species"], expected["species"], rtol=1e-6)
    with pytest.raises(ModelLoadError, match="is a Keras file, which has none"):
        opened(path, signature="other")


def test_an_exported_keras_model(tmp_path: Path):
    """`model.export()` writes a SavedModel, which answers the same."""
    model = keras.Sequential([keras.Input((4,), name="rows"), keras.layers.Dense(3)])
    model.export(str(tmp_path / "exported"), verbose=False)
    served = opened(tmp_path / "exported")
    ((_, found),) = asked(served, **{served.takes.described()[0].name: ROWS}).items()
    np.testing.assert_allclose(found, model.predict(ROWS, verbose=0), rtol=1e-6)


@pytest.mark.parametrize(("name", "value"), [("threads", 0), ("threads", "many"), ("onednn", "off")])
def test_parameters_are_checked(tmp_path: Path, name: str, value: Any):
    """A value that means nothing is refused with its name."""
    with pytest.raises(ModelLoadError, match=f"parameters: {name} {value!r}"):
        opened(saved_model(tmp_path, serving_default="dense"), **{name: value})


def test_onednn_that_comes_too_late_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """TensorFlow decides while it is imported: where it is here already the parameter cannot hold, and the log says so each time."""
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    path = saved_model(tmp_path, serving_default="dense")
    with caplog.at_level(logging.WARNING, "prefork"):
        opened(path, onednn=True)
        assert not caplog.messages
        opened(path, onednn=False)
        opened(path, onednn=False)
    text = "onednn: False has no effect, as TensorFlow was imported before; set TF_ENABLE_ONEDNN_OPTS=0"
    assert caplog.messages == [text, text]


def test_threads_and_onednn_hold_in_a_fresh_process(tmp_path: Path):
    """What is asked for is set before TensorFlow is there, and a second model finds it so."""
    path = saved_model(tmp_path, serving_default="dense")
    said = subprocess.run(
        [sys.executable, "-c", FRESH, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(said.stdout.splitlines()[-1]) == {"onednn": "0", "threads": [3, 3], "facts": ["3 threads"] * 2}
    assert "oneDNN custom operations are on" not in said.stderr
    assert "has no effect" not in said.stderr


@pytest.mark.parametrize(
    "make", [lambda folder: saved_model(folder, serving_default="dense"), lambda f: keras_file(f)[0]]
)
def test_closing_lets_go_of_the_model(tmp_path: Path, make: Any):
    """After `close` nothing holds the model's variables, even where somebody still holds what was opened."""
    saved = Saved("tensorflow", make(tmp_path), Options())
    saved.load()
    held = saved._opened
    owner = weakref.ref(held.takes._owner)
    assert owner() is not None
    saved.close()
    gc.collect()
    assert owner() is None


def test_it_belongs_into_a_process_of_its_own():
    """By default, with the reason that the log gives."""
    assert tensorflow.RUNTIME.host == "process"
    assert tensorflow.RUNTIME.why == "TensorFlow hangs after a fork and never gives its memory back"
