"""SavedModels and Keras files, made with TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from frameworks.cases.case import Case, Tensors

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.0, 3.0, 5.0, 2.0]], np.float32)
NUMBERS = np.array([1, 2**60])
TEXTS = np.array([b"one", "zw\u00eb\0i".encode()], object)
WEIGHTS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
CELLS = np.array([[1, 2], [3, 4]], np.int32)


class Functions(tf.Module):
    """One dense layer, and a function of numbers and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(WEIGHTS)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def dense(self, x: Any) -> dict[str, Any]:
        return {"y": tf.matmul(x, self.weights)}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.int64, name="a"), tf.TensorSpec([None], tf.string, name="t")]
    )
    def several(self, a: Any, t: Any) -> dict[str, Any]:
        return {"double": a + a, "said": tf.strings.join([t, "!"])}


def saved_model(folder: Path, **functions: str) -> Path:
    """A SavedModel with signatures, each by the name of its function."""
    module = Functions()
    path = folder / "saved"
    tf.saved_model.save(module, str(path), signatures={name: getattr(module, of) for name, of in functions.items()})
    return path


def _predicted(path: Path, signature: str, given: Tensors) -> Tensors:
    function = tf.saved_model.load(str(path)).signatures[signature]
    return {name: each.numpy() for name, each in function(**{k: tf.constant(v) for k, v in given.items()}).items()}


def dense(folder: Path) -> tuple[Path, Tensors]:
    """One dense layer: one input, one output."""
    path = saved_model(folder, serving_default="dense")
    return path, _predicted(path, "serving_default", {"x": ROWS})


def several(folder: Path) -> tuple[Path, Tensors]:
    """Two inputs of two datatypes, two outputs, one of them text."""
    path = saved_model(folder, serving_default="several")
    return path, _predicted(path, "serving_default", {"a": NUMBERS, "t": TEXTS})


def second(folder: Path) -> tuple[Path, Tensors]:
    """Two signatures, of which not the default is served."""
    path = saved_model(folder, serving_default="several", other="dense")
    return path, _predicted(path, "other", {"x": ROWS})


def keras_file(folder: Path) -> tuple[Path, Tensors]:
    """A Sequential model in a `.keras` file."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,), name="iris"), keras.layers.Dense(3, "softmax", name="species")])
    path = folder / "iris.keras"
    model.save(path)
    return path, {"species": model.predict(ROWS, verbose=0)}


def keras_several(folder: Path) -> tuple[Path, Tensors]:
    """Two inputs of two datatypes and two outputs, each by its name."""
    keras.utils.set_random_seed(1)
    rows, cells = keras.Input((4,), name="rows"), keras.Input((2,), name="cells", dtype="int32")
    joined = keras.layers.Concatenate()([rows, keras.layers.Rescaling(0.5)(cells)])
    outputs = [keras.layers.Dense(3, "relu", name="kinds")(joined), keras.layers.Dense(1, name="size")(joined)]
    model = keras.Model([rows, cells], outputs)
    path = folder / "several.keras"
    model.save(path)
    return path, dict(zip(("kinds", "size"), model.predict([ROWS, CELLS], verbose=0), strict=True))


CASES = [
    Case("tensorflow", "tensorflow-dense", dense, {"x": ROWS}, "tensorflow-cpu"),
    Case("tensorflow", "tensorflow-several", several, {"a": NUMBERS, "t": TEXTS}, "tensorflow-cpu", is_frame=True),
    Case("tensorflow", "tensorflow-signature", second, {"x": ROWS}, "tensorflow-cpu", parameters={"signature": "other"}),
    Case("tensorflow", "tensorflow-keras", keras_file, {"iris": ROWS}, "keras", is_exact=False),
    Case("tensorflow", "tensorflow-keras-several", keras_several, {"rows": ROWS, "cells": CELLS}, "keras", is_exact=False),
]  # fmt: skip
