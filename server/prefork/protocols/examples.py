"""Sample requests for a model in every protocol, and shell lines that send them.

The OpenAPI document, the docs page, `/v2/models/NAME/example` and the start show them. The values are those of `samples`. A protocol that cannot carry the model's sample has none: V2's JSON no FP16 and no BF16, only V2 a stream.
"""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import quote

from prefork.payload import ModelSpec
from prefork.protocols.fitting import only_input
from prefork.protocols.samples import count, inputs, nested, required, rows

_SHOWN = 2000
"""The most characters of a body in a shell line: two lines have to fit where workers tell the arbiter what to print."""
_LARGEST = 1 << 18
"""Elements above which a body is not told, only the line that makes it."""
_FEW = 4
_JSON = "-H 'Content-Type: application/json' "


def v2_request(spec: ModelSpec) -> dict[str, Any] | None:
    """An InferRequest; None where V2's JSON cannot carry one."""
    given = inputs(spec)
    return {"inputs": given} if given and has_json_form(spec) else None


def generate_request(spec: ModelSpec) -> dict[str, Any] | None:
    """A generate request: each input as a scalar or a flat list."""
    given = inputs(spec)
    return {each["name"]: each["data"][0] if len(each["data"]) == 1 else each["data"] for each in given} or None


def seldon_message(spec: ModelSpec) -> dict[str, Any] | None:
    """A SeldonMessage: a matrix, its columns named where the model names them, else jsonData by input.

    jsonData as well where a matrix would not keep the inputs' types.
    """
    if spec.example is not None and spec.example.message:
        return dict(spec.example.message)
    given = inputs(spec)
    if len(given) <= 1:
        return {"data": {"ndarray": nested(given[0])}} if given else None
    table = rows(given)
    # Seldon's matrix of numbers and texts is one of texts, which the columns of a class without named inputs can only be.
    if table is not None and (spec.inputs is None or len({_kind(each) for each in given}) == 1):
        return {"data": {"names": [each["name"] for each in given], "ndarray": table}}
    return {"jsonData": {each["name"]: nested(each) for each in given}}


def _kind(given: dict[str, Any]) -> str:
    return given["datatype"] if given["datatype"] in {"BOOL", "BYTES"} else "number"


def seldon_messages(spec: ModelSpec) -> dict[str, Any] | None:
    """A SeldonMessageList of two."""
    message = seldon_message(spec)
    return message and {"seldonMessages": [message] * 2}


def seldon_feedback(spec: ModelSpec) -> dict[str, Any] | None:
    """A Feedback on a sample request."""
    message = seldon_message(spec)
    return message and {"request": message, "reward": 1.0, "truth": {"data": {"ndarray": [[1]]}}}


def v1_request(spec: ModelSpec) -> dict[str, Any] | None:
    """TF-Serving's request: rows where every input has a free first axis, else columns."""
    given = inputs(spec)
    if not given:
        return None
    named = {each["name"]: nested(each) for each in given}
    is_alone = len(given) == 1 and (spec.inputs is None or only_input(spec) is not None)
    if is_alone and (given[0]["shape"] or spec.inputs is None):
        return {"instances": named[given[0]["name"]]}
    lengths = {tuple(each["shape"][:1]) for each in given}
    if len(lengths) == 1 and lengths != {()}:
        return {"instances": [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]}
    return {"inputs": named}


def mlflow_request(spec: ModelSpec) -> dict[str, Any] | None:
    """MLflow's request: the inputs by name, or the rows of a model without a signature."""
    given = inputs(spec)
    if spec.inputs is None and len(given) == 1:
        return {"inputs": nested(given[0])}
    return {"inputs": {each["name"]: nested(each) for each in given}} if given else None


def has_json_form(spec: ModelSpec) -> bool:
    """Whether V2's JSON can carry every input: it has no FP16 and no BF16."""
    return not any(tensor.datatype in {"FP16", "BF16"} for tensor in required(spec))


def calls(spec: ModelSpec, version: str = "", *, seldon: bool = True) -> dict[str, tuple[str, dict[str, Any]]]:
    """The path and the body of a prediction, by protocol, of those that can carry it: v2, seldon and v1.

    version: to be named in the paths; empty for the latest. seldon: whether Seldon's path, which names no model, means this one.
    """
    of_version = f"/versions/{quote(version, safe='')}" if version else ""
    v2 = f"{_model(spec)}{of_version}"
    if spec.streams:
        found = {"v2": (f"{v2}/generate_stream", generate_request(spec))}
    else:
        found = {
            "v2": (f"{v2}/infer", v2_request(spec)),
            "seldon": ("/predict", seldon_message(spec) if seldon else None),
            "v1": (f"/v1/models/{quote(spec.name, safe='')}{of_version}:predict", v1_request(spec)),
        }
    return {protocol: (path, body) for protocol, (path, body) in found.items() if body is not None}


def example(spec: ModelSpec, url: str, version: str = "", *, seldon: bool = True) -> dict[str, Any]:
    """What `/v2/models/NAME/example` answers: path and body of each protocol, and under `curl` a shell line for each.

    null where a protocol cannot carry the sample; a body that is too long to be told is null too, and its line makes it.
    """
    known = calls(spec, version, seldon=seldon)
    is_told = count(inputs(spec)) <= _LARGEST
    told = {protocol: {"path": path, "body": body if is_told else None} for protocol, (path, body) in known.items()}
    return {
        **{protocol: told.get(protocol) for protocol in ("v2", "seldon", "v1")},
        "curl": {protocol: _line(spec, url, protocol, known) for protocol in known},
    }


def lines(spec: ModelSpec, url: str, *, seldon: bool = True) -> str:
    """Shell lines that ask the model at the server's `url` and show the answer: V2's, or V1's where V2 has none, and Seldon's."""
    known = calls(spec, seldon=seldon)
    chosen = ["v2" if "v2" in known else "v1", "seldon"]
    shown = [_line(spec, url, protocol, known) for protocol in chosen if protocol in known]
    return "\n".join(shown) or f"{_curl(url)}{_at(url, _model(spec))}"


def _line(spec: ModelSpec, url: str, protocol: str, known: dict[str, tuple[str, dict[str, Any]]]) -> str:
    path, body = known[protocol]
    # Seldon reads a form where nothing else is said.
    head = f"{_curl(url, '-sN' if spec.streams else '-s')}{_at(url, path)} {_JSON if protocol == 'seldon' else ''}"
    text = _compact(body)
    if len(text) <= _SHOWN:
        return f"{head}-d {shlex.quote(text)}"
    program = _program(body)
    if len(program) <= _SHOWN:
        return f"python3 -c {shlex.quote(program)} | {head}-d @-"
    taken = f'import json, sys; print(json.dumps(json.load(sys.stdin)["{protocol}"]["body"]))'
    source = f"{_curl(url)}{_at(url, f'{_model(spec)}/example')}"
    return f"{source} | python3 -c {shlex.quote(taken)} | {head}-d @-"


def _model(spec: ModelSpec) -> str:
    return f"/v2/models/{quote(spec.name, safe='')}"


def _curl(url: str, flags: str = "-s") -> str:
    return f"curl {flags} --unix-socket {shlex.quote(url[5:])} " if url.startswith("unix:") else f"curl {flags} "


def _at(url: str, path: str) -> str:
    return shlex.quote(("http://localhost" if url.startswith("unix:") else url.rstrip("/")) + path)


def _program(body: dict[str, Any]) -> str:
    """Python that prints a body; lists of the same over and over are written as that."""
    return f"import json; true, false = True, False; print(json.dumps({_expression(body)}))"


def _expression(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_compact(name)}:{_expression(item)}" for name, item in value.items()) + "}"
    if not isinstance(value, list):
        return _compact(value)
    if len(value) > _FEW and all(item == value[0] for item in value):
        return f"[{_expression(value[0])}] * {len(value)}"
    return f"[{','.join(map(_expression, value))}]"


def _compact(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
