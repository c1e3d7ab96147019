"""`ModelConfig` and what models look up in the configuration that `initialize` gets."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

_KEYS = {
    "input": {"name", "data_type", "dims", "optional", "allow_ragged_batch"},
    "output": {"name", "data_type", "dims"},
}


class ModelConfig:
    """A configuration that `auto_complete_config` completes; it can say what is missing and contradict nothing."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._config: dict[str, Any] = deepcopy(dict(said))

    def as_dict(self) -> dict[str, Any]:
        """It as it is now."""
        return deepcopy(self._config)

    def set_max_batch_size(self, size: int) -> None:
        """Rows that the model takes at most; what the file says stays. Raises ValueError where the file allows more."""
        said = self._config.get("max_batch_size", 0)
        if said > size:
            raise ValueError(f"max_batch_size: the configuration says {said}, auto_complete_config {size}")
        if not said:
            self._config["max_batch_size"] = size

    def set_dynamic_batching(self) -> None:
        """Have requests put together, unless the file says how."""
        self._config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, policy: Mapping[str, Any]) -> None:
        """Whether a request has any number of responses. Raises ValueError where the file says otherwise."""
        wanted, said = bool(policy.get("decoupled", False)), self._config.get("model_transaction_policy")
        if said is not None and bool(said.get("decoupled", False)) != wanted:
            raise ValueError(
                "model_transaction_policy: the configuration says something else than auto_complete_config"
            )
        self._config["model_transaction_policy"] = {"decoupled": wanted}

    def add_input(self, tensor: Mapping[str, Any]) -> None:
        """Declare an input. Raises ValueError where the file declares it otherwise."""
        self._add("input", tensor)

    def add_output(self, tensor: Mapping[str, Any]) -> None:
        """Declare an output. Raises ValueError where the file declares it otherwise."""
        self._add("output", tensor)

    def _add(self, kind: str, tensor: Mapping[str, Any]) -> None:
        odd = next((key for key in tensor if key not in _KEYS[kind]), None)
        missing = next((key for key in ("name", "data_type", "dims") if key not in tensor), None)
        if odd or missing:
            raise ValueError(f"{kind}: {odd!r} is not known" if odd else f"{kind}: {missing!r} is needed")
        declared: list[dict[str, Any]] = self._config.setdefault(kind, [])
        known = next((each for each in declared if each.get("name") == tensor["name"]), None)
        if known is None:
            declared.append(dict(tensor))
            return
        for key in ("data_type", "dims"):
            if key in known and known[key] != tensor[key]:
                raise ValueError(
                    f"{kind} {tensor['name']!r}: {key} is {known[key]} in the configuration, not {tensor[key]}"
                )


def get_input_config_by_name(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The input of that name in a configuration, or None."""
    return _named(config, "input", name)


def get_output_config_by_name(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The output of that name in a configuration, or None."""
    return _named(config, "output", name)


def using_decoupled_model_transaction_policy(config: Mapping[str, Any]) -> bool:
    """Whether a request has any number of responses."""
    return bool((config.get("model_transaction_policy") or {}).get("decoupled", False))


def _named(config: Mapping[str, Any], kind: str, name: str) -> dict[str, Any] | None:
    return next((each for each in config.get(kind) or [] if each.get("name") == name), None)
