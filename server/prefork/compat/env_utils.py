"""`seldon_core.env_utils`: what the operator says through the environment about where the model runs."""

from __future__ import annotations

import json
import os

NONIMPLEMENTED_MSG = "NOT_IMPLEMENTED"
"""What Seldon says where nothing was said."""


def variable(name: str, default: str = NONIMPLEMENTED_MSG) -> str:
    """A variable of the environment, read for the user's code when it asks."""
    return os.environ.get(name, default)


def get_deployment_name(default_val: str = NONIMPLEMENTED_MSG) -> str:
    """The SeldonDeployment's name."""
    return variable("SELDON_DEPLOYMENT_ID", default_val)


def get_predictor_name(default_val: str = NONIMPLEMENTED_MSG) -> str:
    """The predictor's name."""
    return variable("PREDICTOR_ID", default_val)


def get_predictor_version(default_val: str = NONIMPLEMENTED_MSG) -> str:
    """The predictor's version: the `version` of its labels."""
    try:
        labels = json.loads(variable("PREDICTOR_LABELS", "{}"))
    except ValueError:
        return default_val
    return str(labels.get("version", default_val)) if isinstance(labels, dict) else default_val


def get_model_name(default_val: str = NONIMPLEMENTED_MSG) -> str:
    """The name of this node of the graph."""
    return variable("PREDICTIVE_UNIT_ID", default_val)


def get_image_name(default_val: str = NONIMPLEMENTED_MSG) -> str:
    """The image's name without its version."""
    return variable("PREDICTIVE_UNIT_IMAGE", f"{default_val}:{default_val}").rpartition(":")[0] or default_val


def get_image_version(default_val: str = NONIMPLEMENTED_MSG) -> str:
    """The image's version: what is behind the last colon."""
    return variable("PREDICTIVE_UNIT_IMAGE", f"{default_val}:{default_val}").rpartition(":")[2] or default_val
