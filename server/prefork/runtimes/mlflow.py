"""MLflow's model folders, by mlflow.pyfunc: whatever flavour is inside, it answers what MLflow itself would."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prefork.errors import BadAnswer, BadRequest, ModelLoadError
from prefork.model.casting import as_bytes
from prefork.model.columns import Columns
from prefork.model.declared import Takes
from prefork.model.features import text
from prefork.model.tensor_inputs import Tensors, as_array
from prefork.payload import Kind, Payload, TensorSpec
from prefork.runtimes import mlmodel, pickles, requirements
from prefork.runtimes.mlmodel import MLmodel, Port
from prefork.runtimes.runtime import Opened, Options, Runtime, needed
from prefork.settings import set_variable

log = logging.getLogger("prefork")

Array = np.ndarray[Any, Any]
OUTPUT = "predictions"
"""What an answer without names is called, as in MLflow's own."""
_RUNS_CODE = "is an MLflow model, which"


def open_(path: Path, options: Options) -> Opened:
    """The model in the folder. Raises ModelLoadError for one that cannot be loaded or whose signature no tensor can fit."""
    model = mlmodel.read(path)
    takes = takes_of(model)
    pickles.check_safe(path, allowed=options.allow_pickle, what=_RUNS_CODE)
    loaded = _loaded(model, options)
    return Opened(
        takes=takes,
        outputs=_outputs(model.outputs),
        run=_Asked(loaded, model),
        example=mlmodel.example(model),
        facts=f"{', '.join(model.flavours)}; loader {model.flavours[mlmodel.FLAVOUR].get('loader_module')}",
    )


def _loaded(model: MLmodel, options: Options) -> Any:
    set_variable(
        "MLFLOW_DISABLE_TELEMETRY", "true", unless_set=True
    )  # a server does not call home; read when it is imported
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice to who saves a model
        with needed("mlflow", "mlflow"):
            import mlflow.pyfunc
            import pandas as pd  # noqa: F401 - pyfunc needs it and says so badly
        wrong = requirements.mismatches(model.folder / "requirements.txt")
        try:
            loaded = mlflow.pyfunc.load_model(
                str(model.folder), suppress_warnings=True, model_config=options.parameters.get("model_config")
            )
        except Exception as error:
            raise ModelLoadError(_why(model, error, wrong)) from error
    if wrong:
        log.warning("%s was saved with other packages than are here: %s", model.folder.name, wrong)
    return loaded


def _why(model: MLmodel, error: Exception, wrong: str) -> str:
    said = f"{model.folder} cannot be loaded: {type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError):
        said = f"{model.folder} needs the module {error.name!r}, which is not here; its requirements.txt names what to install"
    return f"{said}; it was saved with other packages than are here: {wrong}" if wrong else said


# --- describing ---------------------------------------------------------------------------------------------------


def takes_of(model: MLmodel) -> Takes:
    """The signature's tensors or columns; without a signature whatever comes. Raises ModelLoadError for lists and objects."""
    ports = model.inputs
    odd = next((port for port in ports if not port.spec.datatype), None)
    if odd is not None:
        raise ModelLoadError(
            f"{model.folder}: the signature's input {odd.spec.name!r} is of the type {odd.kind}, which no column or tensor can be; write a "
            "class whose load() calls mlflow.pyfunc.load_model"
        )
    if not ports:
        return Unsigned()
    if ports[0].is_tensor:
        return Tensors(
            tuple(TensorSpec(port.spec.datatype, port.spec.shape, port.spec.name or mlmodel.WHOLE) for port in ports)
        )
    return _columns(ports)


def _columns(ports: tuple[Port, ...]) -> Columns:
    """A data frame, whose columns without names are numbered."""
    names = tuple(port.spec.name for port in ports)
    datatypes = {name or str(at): port.spec.datatype for at, (name, port) in enumerate(zip(names, ports, strict=True))}
    one = next(iter(datatypes.values())) if len(set(datatypes.values())) == 1 else ""
    optional = frozenset(port.spec.name for port in ports if port.spec.optional)
    return Columns(len(ports), names if all(names) else (), one, datatypes, frame=True, optional=optional)


class Unsigned:
    """The inputs of a model without a signature: what has names is a data frame, what has none an array."""

    is_batched = True

    def described(self) -> tuple[TensorSpec, ...]:
        """Nothing that is known."""
        return ()

    def gather(self, request: Payload) -> Any:
        """A data frame or an array. Raises BadRequest for columns that make no frame."""
        kind, value = request.kind, request.value
        if kind is Kind.TENSOR and request.names and value.ndim == 2 and len(request.names) == value.shape[1]:
            return _frame({str(name): value[:, at] for at, name in enumerate(request.names)})
        if kind is Kind.TENSORS and len(value) == 1:
            return text(next(iter(value.values())))
        if kind in {Kind.TENSORS, Kind.JSON} and isinstance(value, dict):
            return _frame({name: as_array(each) for name, each in value.items()})
        if kind in {Kind.TENSOR, Kind.JSON}:
            return text(as_array(value))
        raise BadRequest("the model takes an array, or columns by name")


def _frame(columns: Mapping[str, Array]) -> Any:
    import pandas as pd

    flat = {name: text(each.reshape(-1) if each.size == len(each) else each) for name, each in columns.items()}
    odd = next((name for name, each in flat.items() if each.ndim != 1), None)
    if odd is not None or len({len(each) for each in flat.values()}) != 1:
        said = ", ".join(f"{name} {list(each.shape)}" for name, each in flat.items())
        raise BadRequest(f"the columns make no table, each must be [n] or [n,1]: {said}")
    return pd.DataFrame(flat).infer_objects()


def _outputs(ports: tuple[Port, ...]) -> tuple[TensorSpec, ...] | None:
    """As the signature has them; None where it has none, or several without names."""
    names = [port.spec.name or OUTPUT for port in ports]
    if not ports or len(set(names)) < len(names):
        return None
    return tuple(TensorSpec(port.spec.datatype, port.spec.shape, name) for name, port in zip(names, ports, strict=True))


# --- asking -------------------------------------------------------------------------------------------------------


class _Asked:
    """Calls pyfunc."""

    def __init__(self, loaded: Any, model: MLmodel) -> None:
        self._loaded = loaded
        self._params = model.params
        self._is_custom = model.is_custom
        self._kinds = {port.spec.name or mlmodel.WHOLE: port.kind for port in model.inputs}
        self._is_one = len(model.inputs) == 1 and model.inputs[0].is_tensor and not model.inputs[0].spec.name

    def __call__(self, given: Any, parameters: Mapping[str, Any]) -> dict[str, Array]:
        from mlflow.exceptions import MlflowException

        params = {name: parameters[name] for name in self._params if name in parameters}
        try:
            answer = self._loaded.predict(self._fitted(given), params=params or None)
        except MlflowException as error:
            raise BadRequest(f"the model does not take these values: {error}") from error
        except (ValueError, TypeError) as error:
            if self._is_custom:
                raise
            raise BadRequest(f"the model does not take these values: {error}") from error
        return answered(answer)

    def _fitted(self, given: Any) -> Any:
        """As the signature's types have it, where those are no tensor's: dates, bytes, texts of a fixed length."""
        if isinstance(given, dict):
            found = {name: _typed(array, self._kinds[name]) for name, array in given.items()}
            return found[mlmodel.WHOLE] if self._is_one else found
        for name, kind in self._kinds.items():
            if kind == "datetime" and name in given:
                given[name] = _dates(given[name], name)
            elif kind == "binary" and name in given:
                given[name] = [each.encode() if isinstance(each, str) else each for each in given[name]]
        return given


def _typed(array: Array, kind: str) -> Array:
    if array.dtype != object or kind == "bytes":
        return array
    found = text(array)
    return found.astype(str) if kind == "str" else found


def _dates(column: Any, name: str) -> Any:
    import pandas as pd

    try:
        return pd.to_datetime(column)
    except (ValueError, TypeError) as error:
        raise BadRequest(f"column {name!r} has a value that is no date: {error}") from error


def answered(answer: Any) -> dict[str, Array]:
    """What pyfunc has answered, as outputs: a data frame's columns, a dict's arrays, else the one called `predictions`."""
    if hasattr(answer, "columns") and hasattr(answer, "dtypes"):
        return {str(name): plain(answer[name], str(name)) for name in answer.columns}
    if isinstance(answer, dict):
        return {str(name): plain(value, str(name)) for name, value in answer.items()}
    return {OUTPUT: plain(answer, OUTPUT)}


def plain(value: Any, name: str) -> Array:
    """An array that every protocol can carry. Raises BadAnswer for one that holds something else than numbers and texts."""
    if hasattr(value, "toarray"):
        value = value.toarray()
    array = np.asarray(value)
    if array.dtype.kind == "M":
        array = np.datetime_as_string(array)
    if array.dtype.kind not in "OSUT":
        return array if array.ndim else array.reshape(1)
    found = as_bytes(np.atleast_1d(array.astype(object)))
    if found is None:
        odd = next(each for each in np.atleast_1d(array).ravel().tolist() if not isinstance(each, str | bytes))
        raise BadAnswer(f"the output {name!r} holds a {type(odd).__name__}, which is neither a number nor a text")
    return found


RUNTIME = Runtime(
    name="mlflow",
    platform="mlflow_pyfunc",
    extra="mlflow",
    recognises=mlmodel.is_model,
    open=open_,
    host="process",
    why="any framework, and any code, may be inside",
    parameters={"model_config": "Goes over the model's own `model_config`."},
)
