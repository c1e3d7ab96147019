"""What a model for Triton's Python backend imports as `triton_python_backend_utils`."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from prefork.triton.exception import TritonModelException
from prefork.triton.metric_family import Metric, MetricFamily
from prefork.triton.model_config import (
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from prefork.triton.request import InferenceRequest
from prefork.triton.responder import FINAL, ResponseSender
from prefork.triton.response import InferenceResponse, TritonError
from prefork.triton.tensor import (
    Tensor,
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
)

__all__ = [
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "Metric",
    "MetricFamily",
    "ModelConfig",
    "ResponseSender",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

_log = logging.getLogger("prefork")


class Logger:
    """Lines in the server's log."""

    INFO, WARNING, ERROR, VERBOSE = range(4)

    @classmethod
    def log(cls, message: str, level: int = INFO) -> None:
        """A line of that level."""
        levels = {cls.WARNING: logging.WARNING, cls.ERROR: logging.ERROR, cls.VERBOSE: logging.DEBUG}
        _log.log(levels.get(level, logging.INFO), "%s", message)

    @classmethod
    def log_info(cls, message: str) -> None:
        """A line."""
        cls.log(message, cls.INFO)

    @classmethod
    def log_warn(cls, message: str) -> None:
        """A warning."""
        cls.log(message, cls.WARNING)

    @classmethod
    def log_error(cls, message: str) -> None:
        """An error."""
        cls.log(message, cls.ERROR)

    @classmethod
    def log_verbose(cls, message: str) -> None:
        """A line that is mostly not wanted."""
        cls.log(message, cls.VERBOSE)


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    """The input of that name; None for an optional one that is not there."""
    return next((each for each in request.inputs() if each.name() == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    """The output of that name, or None."""
    return next((each for each in response.output_tensors() if each.name() == name), None)


def load_model(*_args: Any, **_more: Any) -> NoReturn:
    """Not here. Raises TritonModelException."""
    raise TritonModelException("a model cannot load another one from here: POST /v2/repository/models/NAME/load")


def unload_model(*_args: Any, **_more: Any) -> NoReturn:
    """Not here. Raises TritonModelException."""
    raise TritonModelException("a model cannot unload another one from here: POST /v2/repository/models/NAME/unload")


def is_model_ready(*_args: Any, **_more: Any) -> NoReturn:
    """Not here. Raises TritonModelException."""
    raise TritonModelException("a model cannot ask for another one from here: GET /v2/models/NAME/ready")
