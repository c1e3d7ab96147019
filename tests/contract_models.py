"""The models of the contract that both hosts keep."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import sys
import threading
import time
import types
import uuid
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefork import Reschedule, Rescheduled, Sender
from prefork.compat.flask_utils import SeldonMicroserviceException
from prefork.compat.user_model import SeldonResponse
from prefork.errors import BadRequest, PreforkError


class Colour(enum.Enum):
    RED = "red"


class Named(str, enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    x: int
    y: float
    _hidden: int = 0


class Odd:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(3.0)


class Broken:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("no array of this")


class Panic(BaseException):
    """What Rust's extensions raise of a panic."""


class Busy(Exception):
    status_code = 503
    reason = "BUSY"


class Pair(NamedTuple):
    a: int
    b: str


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


RESULTS: dict[str, Any] = {
    "int array": lambda: np.arange(6).reshape(2, 3),
    "fortran": lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": lambda: np.arange(20)[::3],
    "big-endian": lambda: np.array([1, 2], ">i4"),
    "half": lambda: np.array([1.5, 2.5], np.float16),
    "longdouble": lambda: np.array([1.5], np.longdouble),
    "float32": lambda: np.array([0.1, 0.2], np.float32),
    "nan": lambda: np.array([np.nan, np.inf, 1.0]),
    "zero-d": lambda: np.array(5.0),
    "empty": lambda: np.zeros((0, 3)),
    "bool": lambda: np.array([True, False]),
    "texts": lambda: np.array(["ab", "c"]),
    "bytes array": lambda: np.array([b"ab", b"c"]),
    "objects": lambda: np.array(["a", 1, None, 2.5], object),
    "times": lambda: np.array(["2020-01-01", "NaT"], "M8[s]"),
    "complex": lambda: np.array([1j]),
    "spans": lambda: np.array([1], "m8[s]"),
    "masked": lambda: np.ma.array([1, 2], mask=[False, True]),
    "ragged": lambda: [[1, 2], [3]],
    "mixed": lambda: [1, "a", True],
    "large integers": lambda: [2**70, -(2**70)],
    "list": lambda: [[1, 2], [3, 4]],
    "tuple": lambda: (1, 2),
    "scalar": lambda: np.float32(0.1),
    "text": lambda: "grüße",
    "text of a class": lambda: Text("x"),
    "bytes": lambda: b"\x00\xff",
    "bytearray": lambda: bytearray(b"ab"),
    "none": lambda: None,
    "int": lambda: 3,
    "set": lambda: {1, 2},
    "object": object,
    "wrong": lambda: "\ud800",
    "dict": lambda: {"a": [1, 2.5, None, True], "b": {"c": np.arange(3), "d": np.float32(0.1)}},
    "tensors": lambda: {"a": np.arange(3), "b": ["x", "y"], "c": 2.5},
    "datetime": lambda: {"t": dt.datetime(2020, 1, 1, 1, 2, 3, 4)},
    "zoned": lambda: {"t": dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))},
    "date": lambda: {"t": dt.date(2020, 1, 1), "n": 1},
    "time": lambda: {"t": dt.time(1, 2, 3)},
    "zoned time": lambda: {"t": dt.time(1, 2, tzinfo=dt.UTC)},
    "span": lambda: {"t": dt.timedelta(1)},
    "datetime64": lambda: {"t": np.datetime64("2020-01-01")},
    "uuid": lambda: {"u": uuid.UUID(int=5)},
    "decimal": lambda: {"d": decimal.Decimal("1.5")},
    "enum": lambda: {"e": Colour.RED},
    "str enum": lambda: {"e": Named.RED},
    "int enum": lambda: {"e": Number.ONE},
    "enum key": lambda: {Colour.RED: 1},
    "dataclass": lambda: {"p": Point(1, 2.5)},
    "namedtuple": lambda: {"p": Pair(1, "x")},
    "numpy key": lambda: {np.str_("k"): 1, np.int64(3): 2},
    "number keys": lambda: {1: 2, 1.5: 3, None: 4, 2**70: 5},
    "date key": lambda: {dt.date(2020, 1, 1): 1},
    "tuple key": lambda: {(1, 2): 3},
    "bytes key": lambda: {b"k": 3},
    "uuid key": lambda: {uuid.UUID(int=5): 3},
    "wrong key": lambda: {"\ud800": 3},
    "wrong inside": lambda: {"a": "\ud800"},
    "set inside": lambda: {"s": {1, 2}},
    "default of sets": lambda: collections.defaultdict(set, a={1}),
    "ordered": lambda: collections.OrderedDict(b=1, a=2),
    "mapping": lambda: {"m": types.MappingProxyType({"a": 1})},
    "user dict": lambda: collections.UserDict(a=1),
    "large inside": lambda: {"b": 2**80, "c": [-(2**80)], "n": np.arange(2)},
    "bytes inside": lambda: {"b": b"x"},
    "bytes deeper": lambda: {"b": [{"c": b"x"}]},
    "complex inside": lambda: {"c": 1j},
    "object inside": lambda: {"o": [object()]},
    "class inside": lambda: {"o": int},
    "array-like": lambda: {"o": Odd()},
    "array-like alone": lambda: Odd(),
    "texts inside": lambda: {"a": np.array(["x"]), "o": np.array([Colour.RED, dt.date(2020, 1, 1)], object)},
    "arrays in arrays": lambda: {"o": [{"x": np.arange(2), "y": [np.array(["a", None], object)]}]},
    "deep": lambda: {"a": nested(400)},
    "itself": lambda: {"a": itself()},
    "range": lambda: {"r": range(3)},
    "generator inside": lambda: {"g": (each for each in [1])},
}
"""What a `predict` may return, by the text that it is asked with."""


REFUSED: dict[str, Any] = {
    "record": (lambda: np.zeros(2, [("a", int)]), "[('a', '<i8')]"),
    "record inside": (lambda: {"r": np.zeros(2, [("a", int)])}, "[('a', '<i8')]"),
    "void": (lambda: {"r": np.void(b"x")}, "void"),
    "no array": (lambda: {"o": Broken()}, "Broken that does not become an array: no array of this"),
    "frozenset": (lambda: [frozenset()], "frozenset"),
}
"""What it may not, and what the error says."""


class Refused:
    def predict(self, X: Any, names: Any) -> Any:
        return REFUSED[X][0]()


class Exotic:
    def predict(self, X: Any, names: Any) -> Any:
        return RESULTS[X]()


class Plain:
    """Seldon's style, every hook."""

    kept: ClassVar[list[Any]] = []

    def predict(self, X, names, meta=None):
        if isinstance(X, str):
            return getattr(self, X)(meta)
        if X.ndim == 2 and X.shape[1] == 2:
            return SeldonResponse(
                X, tags={"of": "response"}, metrics=[{"key": "k", "type": "GAUGE", "value": 2.0, "tags": {"a": "b"}}]
            )
        return X

    def names_seen(self, meta):
        return {"puid": meta["puid"], "tags": meta.get("tags")}

    def write(self, meta):
        meta["tags"] = {**meta.get("tags", {}), "when": dt.date(2020, 1, 1), "n": np.float32(0.5)}
        meta["mine"] = object()
        return "written"

    def write_wrongly(self, meta):
        meta["tags"] = {"o": object()}
        return "written"

    def fail(self, meta):
        raise ValueError("three")

    def fail_silently(self, meta):
        raise KeyError

    def fail_wrongly(self, meta):
        raise ValueError("\ud800")

    def refuse(self, meta):
        raise BadRequest("not like this")

    def busy(self, meta):
        raise Busy("come back later")

    def seldon(self, meta):
        raise SeldonMicroserviceException("teapot", status_code=418, reason="TEA")

    def panic(self, meta):
        raise Panic("index out of bounds")

    def close(self, meta):
        raise GeneratorExit("closed")

    def give_up(self, meta):
        raise asyncio.CancelledError("given up")

    def leave(self, meta):
        sys.exit(7)

    def parts(self, meta):
        return iter([np.array([1]), np.array([2])])

    def cancelled(self, meta):
        end = time.monotonic() + 30
        while not meta["cancelled"]() and time.monotonic() < end:
            time.sleep(0.005)
        Plain.seen = meta["cancelled"]()
        return "done"

    seen = False

    def was_cancelled(self, meta):
        return {"seen": Plain.seen}

    def transform_input(self, X, names):
        return X + 1

    def transform_output(self, X, names):
        return X - 1

    def route(self, X, names):
        return 1

    def aggregate(self, Xs, names):
        return sum(Xs)

    def send_feedback(self, X, names, reward, truth, routing=None):
        return np.array([reward, truth.sum(), X.sum(), -1 if routing is None else routing])

    def health_status(self):
        return {"well": True}

    def class_names(self):
        return ["x", np.str_("y")]

    def tags(self):
        return {"t": 1, "when": dt.date(2020, 1, 1)}

    def metrics(self):
        return [{"key": "rows", "type": "COUNTER", "value": 1}]

    def init_metadata(self):
        return {"name": "m", "versions": ["1"]}


class Raw:
    def predict_raw(self, message: Any) -> Any:
        return {"got": message, "status": {"code": 201}}

    def send_feedback_raw(self, feedback: Any) -> Any:
        return {"reward": feedback.reward}

    def aggregate_raw(self, messages: Any) -> Any:
        return {"count": len(messages)}


class Typed:
    def predict(self, x: NDArray[np.float32], factor: float = 2.0, words: NDArray[np.str_] | None = None) -> Any:
        return {"y": x * factor, "words": np.array([] if words is None else words)}


class Asynchronous:
    def __init__(self) -> None:
        self.cancelled = 0
        self.waiting = 0

    async def predict(self, X: Any, names: Any, meta: Any = None) -> Any:
        if isinstance(X, str):
            return {"cancelled": self.cancelled, "waiting": self.waiting}
        if X.size and X.flat[0] == -1:
            raise ValueError("minus one")
        if X.size and X.flat[0] == -3:
            raise asyncio.CancelledError("given up")
        if X.size and X.flat[0] == -4:
            raise Panic("minus four")
        if X.size and X.flat[0] == -2:
            self.waiting += 1
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        await asyncio.sleep(0)
        return X * 2


class Generator:
    def predict(self, X: Any, names: Any) -> Any:
        for number in range(int(X.flat[0])):
            yield np.array([number])
        if X.flat[0] == 3:
            raise ValueError("after three")
        if X.flat[0] == 4:
            raise Panic("after four")


class AsyncGenerator:
    async def predict(self, X: Any, names: Any) -> Any:
        for number in range(int(X.flat[0])):
            await asyncio.sleep(0)
            yield np.array([number])
        if X.flat[0] == 3:
            raise ValueError("after three")
        if X.flat[0] == 4:
            raise Panic("after four")


class Speaker:
    """What a sender can do, by the text that it is asked with."""

    kept: ClassVar[list[Sender]] = []

    def predict(self, text: str, sender: Sender) -> None:
        getattr(self, text)(sender)

    def two(self, sender: Sender) -> None:
        sender.send({"n": np.arange(2)})
        sender.send({"n": 2}, final=True)

    def changed(self, sender: Sender) -> None:
        array = np.zeros(3)
        sender.send({"n": array})
        array[:] = 9
        sender.close()

    def later(self, sender: Sender) -> None:
        threading.Timer(0.05, lambda: sender.send({"n": 1}, final=True)).start()

    def fail(self, sender: Sender) -> None:
        sender.send({"n": 1})
        raise ValueError("after one")

    def panic(self, sender: Sender) -> None:
        sender.send({"n": 1})
        raise Panic("after one, too")

    def unsendable(self, sender: Sender) -> None:
        try:
            sender.send({"n": {1}})
        except PreforkError as error:
            Speaker.said = str(error)

    said = ""

    def told(self, sender: Sender) -> None:
        sender.send({"said": Speaker.said}, final=True)

    def let_go(self, sender: Sender) -> None:
        sender.send({"n": 1})

    def keep(self, sender: Sender) -> None:
        sender.send({"n": 1})
        self.kept.append(sender)

    def close_kept(self, sender: Sender) -> None:
        while self.kept:
            self.kept.pop().close()
        sender.close()


class AsyncSpeaker:
    async def predict(self, text: str, sender: Sender) -> None:
        for word in text.split():
            await sender.asend({"word": word})
        sender.close()


class Twice:
    def predict(self, text: str, tokens: Rescheduled[list[str]]) -> Any:
        if tokens is None or text == "again and again":
            raise Reschedule(text.split())
        return {"tokens": tokens}


class Keeper:
    """Keeps the inputs that begin with -1."""

    kept: ClassVar[list[Any]] = []

    def predict(self, X: Any, names: Any) -> Any:
        if X.flat[0] == -1:
            self.kept.append(X)
        if X.flat[0] == -2:
            return np.array([float(sum(x.sum() for x in self.kept))])
        return X


class Rows:
    """Batched: answers the size of the batch that a row was in."""

    def predict(self, X: Any, names: Any) -> Any:
        if (X == -1).any():
            raise ValueError("minus one")
        return X * 2
