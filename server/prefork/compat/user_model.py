"""`seldon_core.user_model`: the optional base class, and the result that carries tags and metrics."""

# ruff: noqa: ARG002 - the names of the arguments are what a subclass reads here

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from prefork.compat.flask_utils import SeldonMicroserviceException


class SeldonNotImplementedError(SeldonMicroserviceException):
    """Raised by a hook that is not meant to be there: a `*_raw` hook so hands over to the plain one."""


class SeldonComponent:
    """A base class that is never needed: Prefork finds the methods that a class has, and these do not count.

    Every method of it but `load` raises SeldonNotImplementedError.
    """

    def __init__(self, **kwargs: Any) -> None:
        pass

    def load(self) -> None:
        """Load what `predict` needs: called once in each worker, before its first request."""

    def predict(self, X: Any, names: Iterable[str], meta: dict[str, Any] | None = None) -> Any:  # noqa: N803
        """Predict."""
        _refuse("predict")

    def predict_raw(self, msg: Any) -> Any:
        """Predict on the whole message."""
        _refuse("predict_raw")

    def transform_input(self, X: Any, names: Iterable[str], meta: dict[str, Any] | None = None) -> Any:  # noqa: N803
        """Change what goes to the model."""
        _refuse("transform_input")

    def transform_input_raw(self, msg: Any) -> Any:
        """Change the whole message that goes to the model."""
        _refuse("transform_input_raw")

    def transform_output(self, X: Any, names: Iterable[str], meta: dict[str, Any] | None = None) -> Any:  # noqa: N803
        """Change what comes from the model."""
        _refuse("transform_output")

    def transform_output_raw(self, msg: Any) -> Any:
        """Change the whole message that comes from the model."""
        _refuse("transform_output_raw")

    def route(self, features: Any, feature_names: Iterable[str]) -> int:
        """Choose a branch."""
        _refuse("route")

    def route_raw(self, msg: Any) -> Any:
        """Choose a branch for the whole message."""
        _refuse("route_raw")

    def aggregate(self, features_list: list[Any], feature_names_list: list[Any]) -> Any:
        """Make one answer of many."""
        _refuse("aggregate")

    def aggregate_raw(self, msgs: Any) -> Any:
        """Make one message of many."""
        _refuse("aggregate_raw")

    def send_feedback(
        self, features: Any, feature_names: Iterable[str], reward: float, truth: Any, routing: int | None
    ) -> Any:
        """Learn what came of an answer."""
        _refuse("send_feedback")

    def send_feedback_raw(self, feedback: Any) -> Any:
        """Learn what came of an answer, from the whole message."""
        _refuse("send_feedback_raw")

    def health_status(self) -> Any:
        """Say how the model is."""
        _refuse("health_status")

    def health_status_raw(self) -> Any:
        """Say how the model is, as a whole message."""
        _refuse("health_status_raw")

    def metrics(self) -> list[dict[str, Any]]:
        """Custom metrics after each request."""
        _refuse("metrics")

    def tags(self) -> dict[str, Any]:
        """Tags for each answer."""
        _refuse("tags")

    def class_names(self) -> Iterable[str]:
        """The names of the answer's columns."""
        _refuse("class_names")

    def feature_names(self) -> Iterable[str]:
        """The names of the request's columns; Seldon never asks."""
        _refuse("feature_names")

    def init_metadata(self) -> dict[str, Any]:
        """The body of /metadata."""
        _refuse("init_metadata")


class SeldonResponse:
    """What a hook may return instead of its data, to add tags and metrics to this one answer."""

    def __init__(
        self, data: Any, tags: dict[str, Any] | None = None, metrics: list[dict[str, Any]] | None = None
    ) -> None:
        self.data = data
        self.tags = tags if tags is not None else {}
        self.metrics = metrics if metrics is not None else []

    @classmethod
    def create(cls, data: Any) -> SeldonResponse:
        """`data` itself where it is a SeldonResponse, else one around it."""
        return data if isinstance(data, SeldonResponse) else cls(data)

    def __repr__(self) -> str:
        return f"SeldonResponse({self.data!r}, tags={self.tags!r}, metrics={self.metrics!r})"


def _refuse(name: str) -> NoReturn:
    raise SeldonNotImplementedError(f"{name} is not implemented")
