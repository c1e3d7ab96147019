"""What an annotation of the named style means: a tensor's datatype and shape, and what the user's code handles.

np.ndarray, NDArray[np.float32]                    an array
Annotated[np.ndarray, TensorSpec("FP32", (-1, 4))] an array of that datatype and shape
float, int, bool, str, bytes                       one element: FP64, INT64, BOOL, BYTES, shape [1]
list[float], list[list[float]], ...                nested lists
pandas.DataFrame                                   every input that no other parameter names, as columns

What a `type` statement has given a name is what it stands for; from Python 3.12 on NDArray is such a name.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import numpy as np

from prefork.errors import BadRequest
from prefork.model.features import text
from prefork.payload import DATATYPES, TensorSpec

Array = np.ndarray[Any, Any]

_SCALARS: dict[Any, str] = {float: "FP64", int: "INT64", bool: "BOOL", str: "BYTES", bytes: "BYTES"}
_ELEMENTS: dict[Any, str] = {dtype.type: name for name, dtype in DATATYPES.items() if name != "BYTES"}
_TEXTS = (np.str_, np.bytes_, np.object_)
_MISSING = (None, types.NoneType)
_LISTS = (list, Sequence, Iterable)


class Meaning(msgspec.Struct, frozen=True):
    """What an annotation says.

    spec: the tensor on the wire, without a name; `optional` for `T | None`.
    read: an array of that datatype as the value that the annotation promises; raises BadRequest, to be named.
    frame: the data frame class (or True where its name alone is known) of a parameter that takes columns.
    """

    spec: TensorSpec
    read: Callable[[Array], Any]
    frame: Any = None


def resolved(function: Any) -> dict[str, Any]:
    """A function's annotations, each evaluated by itself: one that cannot be stays the text it is."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    scope = getattr(function, "__globals__", {})
    raw = getattr(function, "__annotations__", {})
    return {name: evaluated(annotation, scope) for name, annotation in raw.items()}


def evaluated(annotation: Any, scope: Mapping[str, Any]) -> Any:
    """An annotation that may be a text or an alias, as what it names in that scope; the text where it names nothing."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return _stands_for(typing.get_type_hints(holder, dict(scope), {}, include_extras=True)["it"])
    except Exception:  # noqa: BLE001 - names under TYPE_CHECKING, and whatever else an expression can raise
        return annotation


def _stands_for(annotation: Any) -> Any:
    """What an alias of a `type` statement stands for, with its own arguments in it; whatever else it is itself."""
    while hasattr(alias := get_origin(annotation) or annotation, "__type_params__") and hasattr(alias, "__value__"):
        given = dict(zip(alias.__type_params__, get_args(annotation), strict=False))
        value = alias.__value__
        wanted = getattr(value, "__parameters__", ())
        annotation = value[tuple(given.get(each, each) for each in wanted)] if wanted else value
    return annotation


def meaning(annotation: Any) -> Meaning | None:
    """What an annotation means; None where it is none of those above."""
    annotation, declared = _unwrapped(annotation)
    base, optional = _without_none(annotation)
    if base is not annotation:
        base, inner = _unwrapped(base)
        declared = declared or inner
    found = _simple(base)
    if found is None:
        return None
    spec = TensorSpec(
        (declared and declared.datatype) or found.spec.datatype,
        declared.shape if declared and declared.shape is not None else found.spec.shape,
        optional=optional or bool(declared and declared.optional),
    )
    return msgspec.structs.replace(found, spec=spec)


def _unwrapped(annotation: Any) -> tuple[Any, TensorSpec | None]:
    annotation = _stands_for(annotation)
    if get_origin(annotation) is not Annotated:
        return annotation, None
    base, *extras = get_args(annotation)
    return _stands_for(base), next((extra for extra in extras if isinstance(extra, TensorSpec)), None)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in {Union, types.UnionType}:
        return annotation, False
    kept = [part for part in get_args(annotation) if part not in _MISSING]
    return (kept[0], True) if len(kept) == 1 else (annotation, False)


def _simple(base: Any) -> Meaning | None:
    if isinstance(base, type) and base in _SCALARS:
        return Meaning(TensorSpec(_SCALARS[base], (1,)), _scalar_reader(base))
    if base is np.ndarray:
        return Meaning(TensorSpec(), _as_it_is)
    origin, args = get_origin(base), get_args(base)
    if origin is np.ndarray:
        return _array(args)
    if base is list or origin in _LISTS:
        return _list(base)
    if _is_frame(base):
        return Meaning(TensorSpec(), _as_it_is, base if isinstance(base, type) else True)
    return None


def _array(args: tuple[Any, ...]) -> Meaning:
    element = (get_args(args[1]) or (Any,))[0] if len(args) > 1 else Any
    if element in _TEXTS:
        return Meaning(TensorSpec("BYTES"), _text_array if element is np.str_ else _as_it_is)
    return Meaning(TensorSpec(_datatype(element)), _as_it_is)


def _datatype(element: Any) -> str:
    if element in _ELEMENTS:
        return _ELEMENTS[element]
    # C's own names (longlong) are types beside int64; the abstract ones (floating) are no dtype.
    if isinstance(element, type) and element in set(np.sctypeDict.values()):
        return next((name for name, dtype in DATATYPES.items() if dtype == np.dtype(element)), "")
    return ""


def _list(base: Any) -> Meaning | None:
    depth = 0
    while get_origin(base) in _LISTS:
        depth += 1
        base = get_args(base)[0]
    if base is list or base is Any:
        return Meaning(TensorSpec(), lambda array: text(array).tolist())
    if not isinstance(base, type) or base not in _SCALARS:
        return None
    spec = TensorSpec(_SCALARS[base], (-1,) * depth)
    return Meaning(spec, (lambda array: _decoded(array).tolist()) if base is str else (lambda array: array.tolist()))


def _is_frame(base: Any) -> bool:
    name = base if isinstance(base, str) else getattr(base, "__name__", "")
    return name.rpartition(".")[2] == "DataFrame"


def _as_it_is(array: Array) -> Array:
    return array


def _text_array(array: Array) -> Array:
    return _decoded(array).astype(np.str_)


def _decoded(array: Array) -> Array:
    found = text(array)
    if any(isinstance(element, bytes) for element in found.ravel().tolist()):
        raise BadRequest("is not UTF-8")
    return found


def _scalar_reader(kind: type) -> Callable[[Array], Any]:
    def read(array: Array) -> Any:
        if array.size != 1:
            raise BadRequest(f"takes one value, its shape is {list(array.shape)}")
        return (_decoded(array) if kind is str else array).ravel().tolist()[0]

    return read
