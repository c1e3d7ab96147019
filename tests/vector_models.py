"""Classes made of the recorded vectors: `model` in a line says what each hook returns.

A hook's name is mapped to an expression over the hook's arguments, or to a `raise` statement; `attr:NAME` to the value of a
plain attribute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prefork.compat.flask_utils import SeldonMicroserviceException
from prefork.compat.user_model import SeldonResponse

_ARGUMENTS = {
    "predict": "X, names, meta=None",
    "transform_input": "X, names, meta=None",
    "transform_output": "X, names, meta=None",
    "route": "X, names",
    "aggregate": "Xs, names",
    "send_feedback": "features, names, reward, truth, routing",
    "predict_raw": "msg",
}
_SCOPE = {"np": np, "SeldonResponse": SeldonResponse, "SeldonMicroserviceException": SeldonMicroserviceException}


def build(model: dict[str, Any]) -> type:
    """The class that a line's `model` describes."""
    return type("Model", (), {name.removeprefix("attr:"): _member(name, said) for name, said in model.items()})


def _member(name: str, said: Any) -> Any:
    if name.startswith("attr:"):
        return said
    arguments = ", ".join(("self", *filter(None, [_ARGUMENTS.get(name)])))
    body = said if said.startswith("raise ") else f"return {said}"
    scope = dict(_SCOPE)
    exec(f"def {name}({arguments}):\n    {body}", scope)
    return scope[name]
