"""TF-Serving's V1 with KServe's additions, and MLflow's scoring: rows in, predictions out."""

from __future__ import annotations

from prefork import __version__
from prefork.endpoints.inference import served
from prefork.endpoints.site import Call, Site, forward
from prefork.http import Request, Response
from prefork.protocols import json, mlflow, v1


def v1_models(site: Site, request: Request) -> Response:
    """KServe's list of models."""
    return Response(json.encode({"models": list(site.catalogue.names())}))


def v1_status(site: Site, request: Request) -> Response:
    """TF-Serving's model status."""
    return v1.encode_status(served(site, request).spec)


def v1_metadata(site: Site, request: Request) -> Response:
    """TF-Serving's model metadata."""
    return v1.encode_metadata(served(site, request).described)


def v1_predict(site: Site, request: Request) -> Call:
    """TF-Serving's predict, rows and columns."""
    instance = served(site, request).instance
    spec = instance.spec
    payload, form = v1.decode(request, spec, max_depth=site.settings.max_depth)
    forward(site, request, payload)
    return Call(instance, payload, lambda answer: v1.encode(answer, form, spec, site.settings.nan))


def invocations(site: Site, request: Request) -> Call:
    """MLflow's scoring."""
    instance = site.catalogue.main().instance
    spec = instance.spec
    payload, form = mlflow.decode(request, spec, max_depth=site.settings.max_depth)
    forward(site, request, payload)
    return Call(instance, payload, lambda answer: mlflow.encode(answer, form, spec, site.settings.nan))


def mlflow_ping(site: Site, request: Request) -> Response:
    """MLflow's ping and health."""
    return mlflow.encode_ping(ready=site.catalogue.is_ready())


def mlflow_version(site: Site, request: Request) -> Response:
    """MLflow's version: ours."""
    return mlflow.encode_version(__version__)
