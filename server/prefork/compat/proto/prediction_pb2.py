"""`seldon_core.proto.prediction_pb2` without protobuf: Seldon's messages as objects with attributes.

They hold JSON values: `ndarray` is a list, `jsonData` any value, numbers are what the request said. Reading an absent
field gives its default, as protobuf's classes do; `HasField` and `WhichOneof` tell what is there. There is no binary form.
Source: the published prediction.proto of Seldon Core 1.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, ClassVar, Self


class Message:
    """One of the messages below. The constructor takes its fields; an unknown one is an AttributeError."""

    FIELDS: ClassVar[dict[str, Any]] = {}
    """Field to its kind: a Message class, a list of one Message class, or the default value."""
    ONEOF: ClassVar[tuple[str, ...]] = ()
    """The fields of `data_oneof`: setting one clears the others."""

    _set: dict[str, Any]
    _read: dict[str, Any]

    def __init__(self, **fields: Any) -> None:
        self.__dict__["_set"] = {}
        self.__dict__["_read"] = {}
        for name, value in fields.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in self.FIELDS:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        if name in self._set:
            return self._set[name]
        return self._read.setdefault(name, _default(self.FIELDS[name]))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.FIELDS:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        for other in self.ONEOF if name in self.ONEOF else ():
            self._set.pop(other, None)
            self._read.pop(other, None)
        self._set[name] = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_dict()!r})"

    def HasField(self, name: str) -> bool:  # noqa: N802 - protobuf's name
        """Whether a field was set, or filled after it was read."""
        return name in self._set or bool(_plain(self._read.get(name)))

    def WhichOneof(self, group: str) -> str | None:  # noqa: ARG002, N802 - protobuf's signature
        """The one field of `data_oneof` that is there, or None."""
        return next((name for name in self.ONEOF if self.HasField(name)), None)

    def CopyFrom(self, other: Self) -> None:  # noqa: N802 - protobuf's name
        """Become a copy of another message of the same class."""
        self.__dict__.update(self.from_dict(other.to_dict()).__dict__)

    def to_dict(self) -> dict[str, Any]:
        """The message as JSON values; bytes as base64."""
        return {name: _plain(getattr(self, name)) for name in self.FIELDS if self.HasField(name)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The message of a JSON object. Raises ValueError naming a field that it does not have or that has another type."""
        if not isinstance(values, dict):
            raise ValueError(f"{cls.__name__} must be an object, not {type(values).__name__}")  # noqa: TRY004
        unknown = [name for name in values if name not in cls.FIELDS]
        if unknown:
            raise ValueError(f"{cls.__name__} has no field {unknown[0]!r}")
        return cls(
            **{name: _made(name, cls.FIELDS[name], value) for name, value in values.items() if value is not None}
        )


def _default(kind: Any) -> Any:
    if isinstance(kind, type):
        return kind()
    return kind.copy() if isinstance(kind, dict) else [] if isinstance(kind, list) else kind


def _made(name: str, kind: Any, value: Any) -> Any:
    if isinstance(kind, type):
        return kind.from_dict(value)  # type: ignore[attr-defined]
    if isinstance(kind, list) and kind:
        return [kind[0].from_dict(item) for item in value]
    if not isinstance(kind, bytes):
        return value
    try:
        return base64.b64decode(value)
    except (TypeError, binascii.Error):
        raise ValueError(f"{name} must be base64") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return [_plain(item) for item in value] if isinstance(value, list) else value


class Status(Message):
    """A failure, or the success that needs no saying."""

    FIELDS: ClassVar[dict[str, Any]] = {"code": 0, "info": "", "reason": "", "status": 0}


class Metric(Message):
    """One custom metric; `type` is COUNTER, GAUGE or TIMER."""

    FIELDS: ClassVar[dict[str, Any]] = {"key": "", "type": "COUNTER", "value": 0.0, "tags": {}}


class Meta(Message):
    """What a message says about its request."""

    FIELDS: ClassVar[dict[str, Any]] = {"puid": "", "tags": {}, "routing": {}, "requestPath": {}, "metrics": [Metric]}


class Tensor(Message):
    """A flat list of numbers and its shape."""

    FIELDS: ClassVar[dict[str, Any]] = {"shape": [], "values": []}


class DefaultData(Message):
    """An array with the names of its columns."""

    FIELDS: ClassVar[dict[str, Any]] = {"names": [], "tensor": Tensor, "ndarray": [], "tftensor": {}}
    ONEOF = ("tensor", "ndarray", "tftensor")


class SeldonMessage(Message):
    """A request or an answer."""

    FIELDS: ClassVar[dict[str, Any]] = {
        "status": Status,
        "meta": Meta,
        "data": DefaultData,
        "binData": b"",
        "strData": "",
        "jsonData": None,
        "customData": None,
    }
    ONEOF = ("data", "binData", "strData", "jsonData", "customData")


class SeldonMessageList(Message):
    """What aggregate takes."""

    FIELDS: ClassVar[dict[str, Any]] = {"seldonMessages": [SeldonMessage]}


class Feedback(Message):
    """What send-feedback takes."""

    FIELDS: ClassVar[dict[str, Any]] = {
        "request": SeldonMessage,
        "response": SeldonMessage,
        "reward": 0.0,
        "truth": SeldonMessage,
    }
