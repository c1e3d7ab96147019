"""V2's server metadata: which of the protocol's extensions there are."""

from __future__ import annotations

import pytest

from prefork.testing import Client
from repositories import NUMBER, add, repository_server

EVERYWHERE = {
    "binary_tensor_data",
    "classification",
    "generate",
    "model_configuration",
    "parameters",
    "schedule_policy",
    "statistics",
}


class Model:
    def predict(self, X, names=None):
        return X


def test_what_is_said_is_served(front):
    """Each extension that a model in the workers has is named and answers; what there is not is not named."""
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP64", "data": [1, 3, 2]}
    asked = {
        "inputs": [tensor],
        "parameters": {"priority": 1, "timeout": 10_000_000, "own": "mine"},
        "outputs": [{"name": "predict", "parameters": {"classification": 1}}],
    }
    with Client(Model, front) as client:
        said = client.get("/v2").json()["extensions"]
        assert set(said) == EVERYWHERE
        assert len(said) == len(EVERYWHERE)
        for path in ("config", "stats"):
            assert client.get(f"/v2/models/Model/{path}").status_code == 200
        answer = client.post("/v2/models/Model/infer", json=asked)
        assert answer.json()["outputs"][0]["data"] == ["3.000000:1"]
        asked["outputs"] = [{"name": "predict", "parameters": {"binary_data": True}}]
        assert client.post("/v2/models/Model/infer", json=asked).headers["inference-header-content-length"]
        assert client.post("/v2/models/Model/generate", json={"x": [1.0]}).status_code == 200
        assert client.post("/v2/repository/models/Model/load").status_code == 503


@pytest.mark.parametrize(("control", "more"), [("explicit", {"model_repository"}), ("none", set()), ("poll", set())])
def test_models_are_loaded_by_request_only_where_that_is_said(tmp_path, control, more):
    """`model_repository` is named under `--control explicit` alone."""
    add(tmp_path / "models", "one", NUMBER.format(number=1))
    with repository_server(tmp_path, "--control", control) as server, server.client() as client:
        assert set(client.get("/v2").json()["extensions"]) == EVERYWHERE | more
