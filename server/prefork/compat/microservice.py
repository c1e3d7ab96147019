"""`seldon_core.microservice`: the constructor parameters of a class, as the operator writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prefork.compat.flask_utils import SeldonMicroserviceException

PARAMETERS_ENV_NAME = "PREDICTIVE_UNIT_PARAMETERS"

_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})


def parse_parameters(parameters: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Names to typed values, from a list of `{"name", "value", "type"}`; type is INT, FLOAT, DOUBLE, STRING or BOOL.

    Raises SeldonMicroserviceException with the reason MICROSERVICE_BAD_PARAMETER, naming the parameter.
    """
    return {str(entry.get("name")): _value(entry) for entry in parameters}


def _value(entry: dict[str, Any]) -> Any:
    kind = _KINDS.get(str(entry.get("type")))
    if kind is None:
        raise _bad(f"Bad model parameter type: {entry.get('type')} valid are {', '.join(_KINDS)}", entry)
    try:
        return kind(entry.get("value"))
    except (TypeError, ValueError):
        raise _bad(f"Bad model parameter value: {entry.get('value')!r} is no {entry['type']}", entry) from None


def _bad(message: str, entry: dict[str, Any]) -> SeldonMicroserviceException:
    return SeldonMicroserviceException(
        f"{message} (parameter {entry.get('name')!r})", reason="MICROSERVICE_BAD_PARAMETER"
    )


def _bool(value: Any) -> bool:
    word = str(value).lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(word)
    return word in _TRUE


_KINDS: dict[str, Callable[[Any], Any]] = {"INT": int, "FLOAT": float, "DOUBLE": float, "STRING": str, "BOOL": _bool}
