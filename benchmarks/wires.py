"""The measured requests: three sizes, each in the wire formats that are compared."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import orjson

from benchmarks.models.work import work

SHAPES = {"tiny": (1, 4), "medium": (64, 128), "large": (1, 3, 224, 224)}
JSON = {"Content-Type": "application/json"}
OCTETS = {"Content-Type": "application/octet-stream"}


@dataclass(frozen=True)
class Call:
    """One POST request, and the scores that the right answer holds."""

    path: str
    headers: dict[str, str]
    body: bytes
    expected: np.ndarray
    wire: str

    def check(self, answer: bytes, headers: dict[str, str]) -> None:
        """Raise ValueError unless the answer holds the expected scores, so that no wrong answer is ever fast."""
        scores = READERS[self.wire](answer, headers).reshape(self.expected.shape)
        if not np.allclose(scores, self.expected, rtol=1e-3, atol=1e-3):
            raise ValueError(f"{self.path}: the answer is wrong: {answer[:200]!r}")


def sample(size: str) -> np.ndarray:
    """The input of a size: float32, so that its numbers have up to nine digits."""
    return np.random.default_rng(1).random(SHAPES[size], np.float32)


def seldon(size: str) -> Call:
    x = sample(size)
    body = orjson.dumps({"data": {"ndarray": x}}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Call("/predict", JSON, body, work(x), "seldon")


def v2(size: str) -> Call:
    x = sample(size)
    tensor = {"name": "X", "shape": x.shape, "datatype": "FP32", "data": x.ravel()}
    body = orjson.dumps({"inputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Call("/v2/models/Bench/infer", JSON, body, work(x), "v2")


def v2_binary(size: str) -> Call:
    x = sample(size)
    tensor = {"name": "X", "shape": x.shape, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    head = orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    headers = OCTETS | {"Inference-Header-Content-Length": str(len(head))}
    return Call("/v2/models/Bench/infer", headers, head + x.tobytes(), work(x), "v2_binary")


def raw(size: str) -> Call:
    x = sample(size)
    return Call(f"/binary?{len(x)}", OCTETS, x.tobytes(), work(x), "raw")


def _read_v2_binary(answer: bytes, headers: dict[str, str]) -> np.ndarray:
    length = int(headers["inference-header-content-length"])
    datatype = json.loads(answer[:length])["outputs"][0]["datatype"]
    return np.frombuffer(answer[length:], {"FP32": np.float32, "FP64": np.float64}[datatype])


WIRES = {"seldon": seldon, "v2": v2, "v2_binary": v2_binary, "raw": raw}
READERS = {
    "seldon": lambda answer, _: np.array(json.loads(answer)["data"]["ndarray"]),
    "v2": lambda answer, _: np.array(json.loads(answer)["outputs"][0]["data"]),
    "v2_binary": _read_v2_binary,
    "raw": lambda answer, _: np.frombuffer(answer, np.float32),
}
