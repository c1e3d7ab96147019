"""MLflow's scoring server: data frames, CSV, instances or inputs to `/invocations`, `{"predictions": ...}` out.

Format: https://mlflow.org/docs/latest/ml/deployment/deploy-model-locally/. No data frame is made here: a frame is a
matrix with its columns' names, or named columns for a model with a signature.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from prefork.errors import BadRequest, NotImplementedHere, PreforkError, UnsupportedMediaType
from prefork.http import Request, Response
from prefork.payload import Kind, ModelSpec, Payload
from prefork.protocols import frames, json, values

Nan = Literal["null", "literal"]
_LAYOUTS = ("dataframe_split", "dataframe_records", "instances", "inputs")


class SplitFrame(msgspec.Struct, gc=False):
    """A data frame as pandas writes it with `orient="split"`; `index` is not used."""

    data: Annotated[Any, Meta(description="A list of rows, each a list of one value a column.")]
    columns: list[str | int] | None = None
    index: Any = None


class Invocation(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Exactly one of the four layouts, and the model's `params`."""

    dataframe_split: SplitFrame | msgspec.UnsetType = UNSET
    dataframe_records: Annotated[Any, Meta(description="A list of objects {column: value}, one a row.")] = UNSET
    instances: Annotated[Any, Meta(description="A list of values, or of objects {name: value}.")] = UNSET
    inputs: Annotated[Any, Meta(description="One value, or an object {name: value}.")] = UNSET
    params: dict[str, Any] | None = None


class Predictions(msgspec.Struct, gc=False):
    """The model's answer: nested lists, or an object of them by output name."""

    predictions: Any


class InvocationError(msgspec.Struct):
    """What went wrong, as MLflow's clients read it."""

    error_code: str
    message: str


_WIRE: json.Wire[Invocation] = json.Wire(
    Invocation, arrays={"dataframe_split": {"data": json.ARRAY}, "instances": json.ARRAY, "inputs": json.ARRAY}
)

_CODES = {404: "ENDPOINT_NOT_FOUND", 501: "NOT_IMPLEMENTED", 503: "TEMPORARILY_UNAVAILABLE"}

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_DIGITS = 64
"""Longer texts are not even converted: that takes the square of their length."""
_BOOLEANS = {"true": True, "false": False}


def decode(request: Request, spec: ModelSpec, *, max_depth: int = json.MAX_DEPTH) -> tuple[Payload, None]:
    """The payload of an `/invocations` body; every answer has one form, so the second item is None.

    Raises UnsupportedMediaType for anything but JSON and CSV, BadRequest naming the keys, the row or the column,
    NotImplementedHere for a model that streams.
    """
    if spec.streams:
        raise NotImplementedHere(f"model '{spec.name}' streams its answers; use /v2/models/{spec.name}/generate_stream")
    media, _, parameters = request.header(b"content-type").lower().partition(";")
    if media.strip() == "application/json":
        return _decode_json(request.body, spec, max_depth), None
    if media.strip() == "text/csv" and _is_utf8(parameters):
        names, rows = parse_csv(request.body)
        return frames.split(list(names), rows, spec, "text/csv"), None
    raise UnsupportedMediaType("this path takes application/json and text/csv in UTF-8")


def _decode_json(body: bytes, spec: ModelSpec, max_depth: int) -> Payload:
    found = _WIRE.decode(body, max_depth)
    given = [key for key in _LAYOUTS if getattr(found, key) is not UNSET]
    if len(given) != 1:
        raise BadRequest(
            f"the body must have exactly one of {', '.join(_LAYOUTS)}; it has {', '.join(given) or 'none'}"
        )
    payload = _frame(found, given[0], spec)
    if found.params:
        payload.parameters = found.params
    return payload


def _frame(found: Invocation, layout: str, spec: ModelSpec) -> Payload:
    if isinstance(found.dataframe_split, SplitFrame):
        return frames.split(found.dataframe_split.columns, found.dataframe_split.data, spec)
    if layout == "dataframe_records":
        return frames.records(found.dataframe_records, spec)
    if layout == "instances":
        return frames.rows(found.instances, spec)
    return frames.columns(found.inputs, spec)


def encode(answer: Payload, wanted: None, spec: ModelSpec, nan: Nan = "null") -> Response:  # noqa: ARG001 - the protocols' common signature
    """`{"predictions": ...}`: nested lists, or an object of them by name for what a class names, and a saved model's several outputs."""
    if answer.kind is Kind.TENSORS and len(answer.value) == 1 and spec.platform != "python":
        ((name, array),) = answer.value.items()
        found: Any = values.readable(array, name)
    elif answer.kind is Kind.TENSORS:
        found = {name: values.readable(array, name) for name, array in answer.value.items()}
    else:
        found = values.answered(answer)
    return Response(json.encode({"predictions": found}, nan=nan))


def encode_error(error: PreforkError) -> Response:
    """`{"error_code", "message"}` with the error's status and headers."""
    code = _CODES.get(error.status, "BAD_REQUEST" if error.status < 500 else "INTERNAL_ERROR")
    body = msgspec.json.encode(InvocationError(code, error.message))
    return Response(body, status=error.status, headers=error.headers)


def encode_ping(*, ready: bool = True) -> Response:
    """GET /ping and /health: an empty line, 200 or 503."""
    return Response(b"\n", status=200 if ready else 503)


def encode_version(version: str) -> Response:
    """GET /version: the server's version as text."""
    return Response(version.encode(), content_type="text/plain; charset=utf-8")


def parse_csv(body: bytes) -> tuple[list[str], list[list[Any]]]:
    """A header row and its rows. Columns of integers, numbers or booleans are typed, an empty cell is None.

    Raises BadRequest naming the line.
    """
    try:
        lines = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True)
        header = next(lines, None)
        if not header:
            raise BadRequest("the CSV body must begin with a row of column names")
        cells = [_checked(row, header, lines.line_num) for row in lines if row]
    except UnicodeDecodeError:
        raise BadRequest("the CSV body is not UTF-8") from None
    except csv.Error as error:
        raise BadRequest(f"CSV line {lines.line_num}: {error}") from None
    typed = [_typed(list(column)) for column in zip(*cells, strict=True)]
    return header, [list(row) for row in zip(*typed, strict=True)]


def _checked(row: list[str], header: list[str], line: int) -> list[str]:
    if len(row) != len(header):
        raise BadRequest(f"CSV line {line} has {len(row)} values, there are {len(header)} columns")
    return row


def _typed(column: list[str]) -> list[Any]:
    """A column's texts as what all of them are; integers of more than 64 bits stay text."""
    cells = [cell.strip() for cell in column]
    filled = [cell for cell in cells if cell]
    if all(map(_INTEGER.fullmatch, filled)):
        return [int(cell) if cell else None for cell in cells] if _fit(filled) else list(column)
    if all(map(_FLOAT.fullmatch, filled)):
        return [float(cell) if cell else None for cell in cells]
    if all(cell.lower() in _BOOLEANS for cell in filled):
        return [_BOOLEANS[cell.lower()] if cell else None for cell in cells]
    return [cell or None for cell in column]


def _fit(integers: list[str]) -> bool:
    """Whether int64, or else uint64, holds all of them."""
    if max(map(len, integers), default=0) > _DIGITS:
        return False
    found = list(map(int, integers)) or [0]
    signed = min(found) >= -(2**63) and max(found) < 2**63
    return signed or (min(found) >= 0 and max(found) < 2**64)


def _is_utf8(parameters: str) -> bool:
    _, found, charset = parameters.partition("charset=")
    return not found or charset.split(";")[0].strip().strip('"') in {"utf-8", "utf8"}
