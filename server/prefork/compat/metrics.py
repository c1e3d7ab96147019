"""`seldon_core.metrics`: custom metrics as a model makes them."""

from __future__ import annotations

from typing import Any

from prefork.compat import env_utils
from prefork.model.custom_metrics import COUNTER, GAUGE, TIMER, create_counter, create_gauge, create_timer
from prefork.model.custom_metrics import are_valid as validate_metrics

DEFAULT_LABELS = {
    "deployment_name": env_utils.get_deployment_name(),
    "model_name": env_utils.get_model_name(),
    "model_image": env_utils.get_image_name(),
    "model_version": env_utils.get_image_version(),
    "predictor_name": env_utils.get_predictor_name(),
    "predictor_version": env_utils.get_predictor_version(),
    "seldon_deployment_name": env_utils.get_deployment_name(),
    "image_name": env_utils.get_image_name(),
    "image_version": env_utils.get_image_version(),
}
"""The labels that every series of this model carries."""

__all__ = [
    "COUNTER",
    "DEFAULT_LABELS",
    "GAUGE",
    "TIMER",
    "create_counter",
    "create_gauge",
    "create_timer",
    "validate_metrics",
]


def __getattr__(name: str) -> Any:
    if name == "SeldonMetrics":
        raise ImportError(
            "seldon_core.metrics.SeldonMetrics: Prefork records what metrics() returns by itself; install seldon-core "
            "to use the class"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
