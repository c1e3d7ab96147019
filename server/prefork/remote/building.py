"""Makes the model that an instance process is charged with, and tries it before anybody else may ask it."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from prefork.errors import ModelLoadError, PreforkError
from prefork.http import Request
from prefork.instance import LocalInstance
from prefork.model import Model, loader
from prefork.model.example import example
from prefork.payload import ModelSpec, Payload
from prefork.protocols import v2
from prefork.remote.charge import Card, Charge
from prefork.repository.config import Warmup


def limit_memory(size: int) -> None:
    """Hold this process to so many bytes of its own.

    RLIMIT_DATA counts what it can write and nobody shares: the heap and private mappings. RLIMIT_AS would count address space, of
    which CUDA and thread stacks reserve far more than they use, and the memory that is shared with the HTTP workers.
    """
    if size:
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def build(charge: Charge) -> tuple[LocalInstance, Card]:
    """Import, construct, load and warm the model. Raises ModelLoadError, or whatever the user's code raises."""
    begun = time.monotonic()
    model = _construct(charge)
    model.load()
    instance = LocalInstance(model)
    spec = _with_ports(model.spec, charge)
    for request in _warmups(model, spec, charge):
        for _ in instance.infer(request):
            pass
    return instance, _card(model, spec, charge, time.monotonic() - begun)


def _construct(charge: Charge) -> Model:
    config = charge.config
    cls = _find(config.class_, charge.folder)
    given = loader.with_device(cls, loader.with_directory(cls, config.parameters, charge.folder), charge.device)
    user_object = loader.construct(cls, given)
    name = config.name or type(user_object).__name__
    return Model(user_object, name, version=charge.version, metadata=charge.metadata, image=charge.image)


def _find(path: str, folder: str) -> type[Any]:
    """The class; a module of the version's folder goes before an installed one of the same name, and only while it is looked for."""
    if not folder:
        return loader.find(path)
    sys.path.insert(0, folder)
    try:
        return loader.find(path)
    finally:
        sys.path.remove(folder)
        sys.path.append(folder)


def _with_ports(spec: ModelSpec, charge: Charge) -> ModelSpec:
    """The spec with the inputs and outputs that the model's own file declares."""
    config = charge.config
    return msgspec.structs.replace(
        spec, inputs=config.inputs or spec.inputs, outputs=config.outputs or spec.outputs, platform=config.platform
    )


def _card(model: Model, spec: ModelSpec, charge: Charge, seconds: float) -> Card:
    metadata, trouble = {}, ""
    try:
        metadata = model.metadata()
    except PreforkError as error:
        trouble = error.message
    described = spec if spec.inputs is not None else _with_ports(model.described, charge)
    return Card(
        spec=spec,
        described=described,
        metadata=metadata,
        trouble=trouble,
        is_async=model.is_async,
        loaded=seconds,
        config=charge.config,
    )


def _warmups(model: Model, spec: ModelSpec, charge: Charge) -> Iterator[Payload]:
    for warmup in charge.config.warmup:
        for _ in range(warmup.count):
            yield _warmup(warmup, model, spec, charge)


def _warmup(warmup: Warmup, model: Model, spec: ModelSpec, charge: Charge) -> Payload:
    if not warmup.inputs and not warmup.file:
        found = example(model)
        if found is None:
            raise ModelLoadError(
                "warmup: the model declares no inputs to make a request from; give `inputs` or a `file`"
            )
        return found[0]
    body = json.dumps({"inputs": warmup.inputs}).encode() if warmup.inputs else _file(charge.folder, warmup.file)
    try:
        payload, _ = v2.decode(Request("POST", "/", b"", {}, (body,)), spec)
    except PreforkError as error:
        raise ModelLoadError(f"warmup: {error.message}") from None
    return payload


def _file(folder: str, name: str) -> bytes:
    try:
        return (Path(folder) / name).read_bytes()
    except OSError as error:
        raise ModelLoadError(f"warmup: {name} cannot be read: {error.strerror}") from None
