"""Payloads and errors as frames, and back.

    REQUEST  f64 when it was sent  f64 its deadline, both in monotonic seconds, then the payload
    ANSWER   u64 ns in the queue  u64 ns of computing  u64 rows of the batch  u32 its lead: 0, 1, or 2 where nothing of that is
             known  u32 bytes of the payload, then the payload, then the request's meta as the model has left it, or nothing
    ERROR    [class, message, status, reason, headers]

All but the numbers in front is msgpack. A payload is [kind, value, method, names, meta, parameters, tags, metrics, message]; of a
RAW one whose message is its value, the message is `true`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from prefork import errors
from prefork.errors import BadAnswer, PreforkError
from prefork.frames import plain
from prefork.frames.layout import ANSWER, ERROR, REQUEST, BadFrame, Buffer, Frame
from prefork.frames.values import Reader, Writer, encoded, raw
from prefork.payload import Cost, Feedback, Kind, Meta, NoMeta, Payload

T = TypeVar("T")

_WANTED: dict[Kind, Any] = {
    Kind.TENSOR: (np.ndarray, list),
    Kind.TENSORS: (dict,),
    Kind.TEXT: (str,),
    Kind.BYTES: (bytes,),
    Kind.MANY: (list,),
    Kind.FEEDBACK: (list,),
}
_TIMES = struct.Struct("<dd")
_COST = struct.Struct("<QQQII")
_NO_COST = (0, 0, 0, 2)
_KINDS = {int(kind): kind for kind in Kind}
_FEEDBACK: tuple[type | tuple[type, ...], ...] = (np.ndarray, list, (int, float), np.ndarray, (int, type(None)))
_OPTIONAL: tuple[tuple[type, ...], ...] = tuple((each, type(None)) for each in (list, dict, dict, dict, list))
_SEEN = ("metrics", "requestPath", "tags", "puid")
"""What protocols read of the `meta` that a model was given."""


class Asked(NamedTuple):
    """A request that has come in. sent, deadline: in seconds of the monotonic clock, which is one for all processes."""

    payload: Payload
    sent: float
    deadline: float


class Answered(NamedTuple):
    """An answer that has come in. meta: the request's as the model has left it; None where the model was not given it."""

    payload: Payload
    meta: dict[str, Any] | None


def encode_request(payload: Payload, sent: float = 0.0, deadline: float = math.inf, *, whole: bool = True) -> Frame:
    """The frame of a request. whole: with its message. Raises BadAnswer for a value that no protocol makes."""
    packed, buffers = _payload(payload, whole=whole)
    return Frame(REQUEST, _TIMES.pack(sent, deadline) + packed, buffers)


def decode_request(head: Buffer, buffers: memoryview) -> Asked:
    """What `encode_request` was given; arrays are views of the buffers. Raises BadFrame."""
    if len(head) < _TIMES.size:
        raise BadFrame("there are no times")
    sent, deadline = _TIMES.unpack_from(head)
    return Asked(_read(head[_TIMES.size :], buffers), sent, deadline)


def encode_answer(payload: Payload, meta: Any = None) -> Frame:
    """The frame of an answer; whoever sends it says by the flag that it is the last.

    meta: the request's, as the model has left it. Raises BadAnswer naming a type that no protocol has a form for.
    """
    cost = payload.cost
    counted = _NO_COST if cost is None else (cost.queue_ns, cost.compute_ns, cost.batch, cost.lead)
    if meta and isinstance(meta, Meta | NoMeta):
        writer = Writer()
        packed = encoded(_packed(payload, writer, whole=True))
        return Frame(ANSWER, _COST.pack(*counted, len(packed)) + packed + encoded(_left(meta, writer)), writer.buffers)
    packed, buffers = _payload(payload, whole=True)
    return Frame(ANSWER, _COST.pack(*counted, len(packed)) + packed, buffers)


def decode_answer(head: Buffer, buffers: memoryview) -> Answered:
    """What `encode_answer` was given. Raises BadFrame."""
    if len(head) < _COST.size:
        raise BadFrame("there is no cost")
    queue_ns, compute_ns, batch, lead, size = _COST.unpack_from(head)
    end = _COST.size + size
    payload = _read(head[_COST.size : end], buffers)
    if lead <= 1:
        payload.cost = Cost(queue_ns, compute_ns, batch, lead == 1)
    if len(head) == end:
        return Answered(payload, None)
    meta = Reader(buffers).value(head[end:])
    if not isinstance(meta, dict):
        raise BadFrame("the meta is no object")
    return Answered(payload, meta)


def encode_error(error: PreforkError) -> Frame:
    """The frame of an error."""
    texts = [each.encode(errors="replace").decode() for each in (str(error.message), str(error.reason))]
    head = (
        type(error).__name__,
        texts[0],
        error.status,
        texts[1],
        [(str(key), str(value)) for key, value in error.headers],
    )
    return Frame(ERROR, msgspec.msgpack.encode(head), [])


def decode_error(head: Buffer) -> PreforkError:
    """The error, of the same class out of the closed set. Raises BadFrame."""
    try:
        name, message, status, reason, headers = msgspec.msgpack.decode(
            head, type=tuple[str, str, int, str, list[tuple[str, str]]]
        )
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadFrame(f"this is no error: {error}") from None
    known = getattr(errors, name, None)
    kind = known if isinstance(known, type) and issubclass(known, PreforkError) else PreforkError
    found = kind.__new__(kind)
    PreforkError.__init__(found, message, status=status, reason=reason)  # some say their message themselves
    found.headers = tuple(headers)
    return found


def _payload(payload: Payload, *, whole: bool) -> tuple[bytes, list[Buffer]]:
    """A payload, and its arrays' bytes."""
    key = plain.key(payload, whole=whole)
    if key is not None:
        packed = plain.known(key)
        if packed is not None:
            value = payload.value
            return packed, [raw(value)] if payload.kind is Kind.TENSOR else [raw(each) for each in value.values()]
    writer = Writer()
    packed = encoded(_packed(payload, writer, whole=whole))
    if key is not None:
        plain.remember(key, packed)
    return packed, writer.buffers


def _read(packed: Buffer, buffers: memoryview) -> Payload:
    """What `_payload` was given."""
    found = plain.read(packed, buffers)
    if found is None:
        reader = Reader(buffers)
        found = _total(_unpacked, reader.value(packed))
        plain.learn(packed, found, reader.places)
    return found


def _packed(payload: Payload, writer: Writer, *, whole: bool) -> tuple[Any, ...]:
    plain = writer.value
    message = payload.message if whole else None
    return (
        int(payload.kind),
        _value(payload, writer),
        payload.method,
        payload.names and plain(payload.names),
        _plain_meta(payload.meta, writer),
        payload.parameters and plain(payload.parameters),
        payload.tags and plain(payload.tags),
        payload.metrics and plain(payload.metrics),
        message is not None and (message is payload.value or _message(message, writer)),
    )


def _message(message: Any, writer: Writer) -> Any:
    """Only what was parsed is for a hook; a protocol's own struct is for that protocol."""
    return None if isinstance(message, msgspec.Struct) else writer.value(message)


def _value(payload: Payload, writer: Writer) -> Any:
    value = payload.value
    if payload.kind is Kind.MANY:
        return [_packed(each, writer, whole=False) for each in value]
    if payload.kind is Kind.FEEDBACK and isinstance(value, Feedback):
        return [writer.value(getattr(value, name)) for name in Feedback.__struct_fields__]
    return writer.value(value)


def _plain_meta(meta: Any, writer: Writer) -> Any:
    if not meta:
        return None if meta is None or isinstance(meta, NoMeta) else {}
    return writer.value(dict(meta))


def _left(meta: Meta | NoMeta, writer: Writer) -> dict[str, Any]:
    """What a model has left in `meta`. What cannot cross is left out, where no protocol would look at it."""
    found = {}
    for key, value in meta.items():
        try:
            found[str(key)] = writer.value(value)
        except BadAnswer:
            if key in _SEEN:
                raise
    return found


def _total(make: Callable[[Any], T], found: Any) -> T:
    try:
        return make(found)
    except BadFrame:
        raise
    except Exception as error:  # noqa: BLE001 - there are many ways for a value to be no payload
        raise BadFrame(f"this is no payload: {type(error).__name__}: {error}") from None


def _unpacked(packed: Any) -> Payload:
    value: Any
    number, value, method, names, meta, parameters, tags, metrics, message = packed
    kind: Kind = _KINDS[number]
    if not isinstance(value, _WANTED.get(kind, object)):
        raise BadFrame(f"a {type(value).__name__} is no {kind.name}")
    if type(method) is not str or not all(map(isinstance, (names, meta, parameters, tags, metrics), _OPTIONAL)):
        raise BadFrame("a field of the payload has another type")
    if kind is Kind.MANY:
        value = [_unpacked(each) for each in value]
    elif kind is Kind.FEEDBACK:
        value = _feedback(value)
    message = value if message is True else None if message is False else message
    return Payload(kind, value, method, names, meta, parameters, tags, metrics, message)


def _feedback(parts: list[Any]) -> Feedback:
    if len(parts) != len(_FEEDBACK) or not all(map(isinstance, parts, _FEEDBACK)):
        raise BadFrame("this is no feedback")
    return Feedback(*parts)
