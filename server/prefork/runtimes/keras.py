"""Keras 3 files, `.keras`: a zip archive, or its folder, with config.json, metadata.json and the weights."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefork.errors import ModelLoadError
from prefork.runtimes import signatures
from prefork.runtimes.runtime import Options, needed
from prefork.runtimes.signatures import DEFAULT, Loaded, Signature, Signatures

_FILES = {"config.json", "metadata.json"}
_QUOTED = 300


def recognises(path: Path) -> bool:
    """An archive with the files of a Keras model, or a folder with them, whose metadata says Keras."""
    try:
        return "keras_version" in _read(path, "metadata.json") and "class_name" in _read(path, "config.json")
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return False


def _read(path: Path, name: str) -> dict[str, Any]:
    if path.is_dir():
        found = json.loads((path / name).read_bytes())
    elif not zipfile.is_zipfile(path):
        return {}
    else:
        with zipfile.ZipFile(path) as archive:
            found = json.loads(archive.read(name))
    return found if isinstance(found, dict) else {}


def load(path: Path, options: Options) -> Loaded:
    """The model as its one signature. Raises ModelLoadError."""
    with needed("tensorflow (Keras)", "tensorflow"):
        import keras
    if keras.backend.backend() != "tensorflow":
        raise ModelLoadError(f"{path}: Keras is set to {keras.backend.backend()} here; set KERAS_BACKEND=tensorflow")
    if options.parameters.get("signature", DEFAULT) != DEFAULT:
        raise ModelLoadError(f"parameters: signature: {path} is a Keras file, which has none; leave it out")
    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=not options.allow_pickle)
    except Exception as error:  # a layer's constructor may raise anything
        written = _read(path, "metadata.json").get("keras_version")
        raise ModelLoadError(
            f"{path} cannot be loaded: {_why(error, path)}; it was written by Keras {written}, here is {keras.__version__}"
        ) from error
    try:
        found = Signatures({DEFAULT: _signature(model)}, DEFAULT, owner=model)
    except ModelLoadError as error:
        raise ModelLoadError(f"{path}: {error}") from error
    return Loaded(found, f"Keras {keras.__version__}, {type(model).__name__}, {found.facts}")


def forget() -> None:
    """Let go of what Keras keeps for all models: names that were given, compiled kernels."""
    import keras

    keras.backend.clear_session()


def _why(error: Exception, path: Path) -> str:
    text = str(error)
    if "Lambda" in text and "safe_mode" in text:
        return "it holds Python code in a Lambda layer, which is run only where pickles are allowed (allow_pickle)"
    strange = sorted(set(_strangers(_read(path, "config.json"))))
    if strange:
        return (
            f"it needs {', '.join(strange)}, which Keras does not have. Export it with model.export() and serve that folder, or serve a "
            "class that defines them and loads the model in load()"
        )
    cause = re.findall(r"(?:Exception encountered|Error when deserializing[^:]*): ?(.+)", text)
    return f"{type(error).__name__}: {(cause[-1] if cause else text.strip())[:_QUOTED]}"


def _strangers(config: Any) -> Iterator[str]:
    """The classes that a configuration names and that are not Keras' own."""
    if isinstance(config, list):
        for each in config:
            yield from _strangers(each)
    elif isinstance(config, dict):
        name, module = config.get("class_name"), config.get("module")
        if isinstance(name, str) and "config" in config and not str(module or "").startswith(("keras", "builtins")):
            yield name
        for each in config.values():
            yield from _strangers(each)


def _signature(model: Any) -> Signature:
    """The model as one traced function: calling it layer by layer is several times slower."""
    import keras
    import tensorflow as tf

    if not getattr(model, "inputs", None):
        raise ModelLoadError(
            f"{type(model).__name__} does not say what it takes; export it with model.export() and serve that folder"
        )
    structure, names = _inputs(model)
    outputs = _outputs(model)
    specs = [signatures.spec("input", name, each) for name, each in zip(names, model.inputs, strict=True)]

    def flat(*tensors: Any) -> dict[str, Any]:
        given = keras.tree.pack_sequence_as(structure, tensors)
        return dict(zip(outputs, keras.tree.flatten(model(given, training=False)), strict=True))

    shapes = [tf.TensorSpec(each.shape, each.dtype) for each in model.inputs]
    function = tf.function(flat, input_signature=shapes, autograph=False).get_concrete_function()
    return Signature(
        specs,
        [signatures.spec("output", name, each) for name, each in outputs.items()],
        lambda **given: function(*(given[name] for name in names)),
    )


def _inputs(model: Any) -> tuple[Any, list[str]]:
    """How the model is called, and its inputs' names: the keys where it takes a dict."""
    structure = model.inputs[0] if _is_sequential(model) else model.input
    keys = {id(tensor): str(key) for key, tensor in structure.items()} if isinstance(structure, dict) else {}
    return structure, [keys.get(id(tensor), str(tensor.name)) for tensor in model.inputs]


def _outputs(model: Any) -> dict[str, Any]:
    """The outputs by name: the keys where the model answers a dict, else the names of the layers that make them."""
    if _is_sequential(model):
        return {str(model.layers[-1].name): model.outputs[0]}
    structure = model.output
    keys = {id(tensor): str(key) for key, tensor in structure.items()} if isinstance(structure, dict) else {}
    found: dict[str, Any] = {}
    for name, tensor in zip(model.output_names, model.outputs, strict=True):
        said = keys.get(id(tensor), str(name))
        found[said if said not in found else f"{said}_{len(found)}"] = tensor
    return found


def _is_sequential(model: Any) -> bool:
    import keras

    return isinstance(model, keras.Sequential)
