"""TensorFlow: SavedModel folders and Keras 3 files, in the process that opens them: nothing of TensorFlow survives a fork."""

from __future__ import annotations

import contextlib
import logging
import sys
from pathlib import Path
from typing import Any

from prefork.errors import ModelLoadError
from prefork.runtimes import keras, saved_model, signatures
from prefork.runtimes.runtime import Opened, Options, Runtime, needed, threads
from prefork.settings import set_variable

log = logging.getLogger("prefork")

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


def recognises(path: Path) -> bool:
    """A folder with a SavedModel, or a Keras 3 file."""
    return saved_model.recognises(path) or keras.recognises(path)


def open_(path: Path, options: Options) -> Opened:
    """The model, with TensorFlow held to its share of the machine. Raises ModelLoadError with both versions where they do not fit."""
    tf = _started(options)
    is_keras = keras.recognises(path)
    loaded = keras.load(path, options) if is_keras else saved_model.load(path, options)
    default = loaded.signatures.default

    def close() -> None:
        loaded.signatures.close()
        if is_keras:
            keras.forget()

    device = "GPU" if tf.config.get_visible_devices("GPU") else "CPU"
    count = tf.config.threading.get_intra_op_parallelism_threads()
    return Opened(
        takes=loaded.signatures,
        run=signatures.run,
        outputs=default.outputs,
        facts=f"{loaded.facts}, {device}, {count} threads",
        close=close,
    )


def _started(options: Options) -> Any:
    """TensorFlow, set up. It is set up once a process: a second model there finds the threads and devices of the first."""
    onednn = options.parameters.get("onednn")
    if onednn is not None:
        _set_onednn(onednn)
    set_variable("TF_CPP_MIN_LOG_LEVEL", "1", unless_set=True)  # without a line on each instruction set
    with needed("tensorflow", "tensorflow"):
        import tensorflow as tf
    count = threads(options)
    with contextlib.suppress(RuntimeError):  # it runs already
        tf.config.threading.set_intra_op_parallelism_threads(count)
        tf.config.threading.set_inter_op_parallelism_threads(count)
    with contextlib.suppress(RuntimeError):
        _set_devices(tf, options.device)
    return tf


def _set_onednn(said: Any) -> None:
    """TensorFlow reads the variable while it is imported."""
    if not isinstance(said, bool):
        raise ModelLoadError(f"parameters: onednn {said!r}: true or false is needed")
    wanted = str(int(said))
    before = set_variable(_ONEDNN, wanted) or "1"
    if "tensorflow" in sys.modules and before != wanted:
        set_variable(_ONEDNN, before)  # which is what still holds
        log.warning("onednn: %s has no effect, as TensorFlow was imported before; set %s=%s", said, _ONEDNN, wanted)


def _set_devices(tf: Any, device: int | str | None) -> None:
    """On a GPU take memory as it is needed; by default TensorFlow takes all of it at once."""
    if device is None:
        tf.config.set_visible_devices([], "GPU")
        return
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, enable=True)


RUNTIME = Runtime(
    name="tensorflow",
    platform="tensorflow_savedmodel",
    extra="tensorflow",
    recognises=recognises,
    open=open_,
    host="process",
    why="TensorFlow hangs after a fork and never gives its memory back",
    parameters={
        "signature": "The signature of a SavedModel that answers where a request names none.",
        "threads": "Threads of one request.",
        "onednn": "false: without oneDNN, which keeps the memory of models that were unloaded; true: with it.",
    },
)
