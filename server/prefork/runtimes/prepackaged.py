"""Parameters of Seldon's prepackaged servers (SKLEARN_SERVER, XGBOOST_SERVER, MLFLOW_SERVER), for the runtimes that take their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PLACE = "model_uri"
_DROPPED = {"mlflow": ("xtype",)}


def translated(runtime: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The runtime's own parameters.

    Seldon's operator gives each prepackaged server `model_uri`, the folder that the path on the command line is already. Its
    server for scikit-learn answers `predict_proba` unless `method` says otherwise.
    """
    if _PLACE not in parameters:
        return dict(parameters)
    dropped = (_PLACE, *_DROPPED.get(runtime, ()))
    found = {name: value for name, value in parameters.items() if name not in dropped}
    return {"method": ["predict_proba", "predict"], **found} if runtime == "sklearn" else found
