"""Seldon Core v1's JSON messages as typed structs.

They describe the protocol in the OpenAPI document; requests are decoded into their `Incoming` forms, which leave the
objects that models see as they were sent. Unknown fields are ignored, but for those of a feedback.
Source of the format: Seldon Core's prediction API, `SeldonMessage` and the messages around it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec import Meta as About


class Tensor(msgspec.Struct, gc=False):
    """An array as its shape and its elements in row-major order. One size of the shape may be -1."""

    shape: list[int] | UnsetType = UNSET
    values: Annotated[
        Any, About(description="The elements in row-major order", extra_json_schema={"type": "array"})
    ] = UNSET


class Data(msgspec.Struct, gc=False):
    """One array, as `tensor` or as `ndarray`, and the names of its columns. `tftensor` is not taken."""

    names: Annotated[list[Any] | None, About(description="One name a column")] = None
    tensor: Tensor | UnsetType = UNSET
    ndarray: Annotated[
        Any, About(description="The array as lists in lists, of any JSON values", examples=[[[1.0, 2.0]]])
    ] = UNSET
    tftensor: Any = UNSET


class Metric(msgspec.Struct):
    """What a model measured in one request."""

    key: str
    type: Literal["COUNTER", "GAUGE", "TIMER"]
    value: Annotated[float, About(description="Of a TIMER, milliseconds")]
    tags: dict[str, str] | UnsetType = UNSET


class Meta(msgspec.Struct, rename="camel"):
    """What goes with a message.

    puid: the request's id, echoed. tags, metrics: of every model on the way. routing: the branch that each router took.
    requestPath: the image of each unit on the way.
    """

    puid: str | UnsetType = UNSET
    tags: dict[str, Any] | UnsetType = UNSET
    routing: dict[str, int] | UnsetType = UNSET
    request_path: dict[str, str] | UnsetType = UNSET
    metrics: list[Metric] | UnsetType = UNSET


class Status(msgspec.Struct):
    """What an error's body tells: the message is `info`, `reason` is for programs."""

    code: int = -1
    info: str = ""
    reason: str = ""
    status: Annotated[int, About(description="0 is success, 1 is failure")] = 1


class SeldonMessage(msgspec.Struct, rename="camel", gc=False):
    """A request or a response: one of `data`, `jsonData`, `strData` and `binData`; the first in this order counts."""

    data: Data | UnsetType = UNSET
    json_data: Annotated[Any, About(description="Any JSON value")] = UNSET
    str_data: str | UnsetType = UNSET
    bin_data: Annotated[str, About(description="Bytes in base64")] | UnsetType = UNSET
    meta: Meta | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET


class SeldonMessageList(msgspec.Struct, rename="camel", gc=False):
    """What a combiner gets: the answers of its children."""

    seldon_messages: list[SeldonMessage]


class Feedback(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """How good the answer to an earlier request was. `truth` is what should have been answered."""

    request: SeldonMessage | None = None
    response: SeldonMessage | None = None
    reward: float | None = 0.0
    truth: SeldonMessage | None = None


class Incoming(SeldonMessage, rename="camel", gc=False):
    """A message whose `meta` stays the object that was sent, and whose `status` does not matter."""

    meta: Any = None
    status: Any = UNSET


class IncomingList(SeldonMessageList, rename="camel", gc=False):
    """A list of messages as they are decoded."""

    seldon_messages: list[Incoming]  # type: ignore[assignment]


class IncomingFeedback(Feedback, forbid_unknown_fields=True, gc=False):
    """A feedback as it is decoded."""

    request: Incoming | None = None
    response: Incoming | None = None
    truth: Incoming | None = None
