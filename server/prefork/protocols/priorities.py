"""V2's `priority` parameter: the level of a request, 1 the most urgent, 0 the default. Source: Triton's request parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefork.errors import BadRequest
from prefork.payload import ModelSpec


def check(parameters: Mapping[str, Any] | None, spec: ModelSpec) -> None:
    """Raise BadRequest for what is no whole number from 0 on, as such or as text. A level that there is not is the default one.

    A model that has an input called `priority` has the word for itself.
    """
    said = parameters.get("priority") if parameters else None
    if said is None or any(tensor.name == "priority" for tensor in spec.inputs or ()):
        return
    if isinstance(said, str) and said.isascii() and said.isdigit():
        return
    if isinstance(said, bool) or not isinstance(said, int) or said < 0:
        raise BadRequest(f"parameter 'priority' must be a whole number of at least 0, got: {str(said)[:40]}")
