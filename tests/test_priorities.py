"""V2's `priority` parameter: what it may be. What it does is the business of those who batch."""

from __future__ import annotations

import pytest

from prefork.testing import Client

TENSOR = {"name": "x", "shape": [1, 1], "datatype": "FP64", "data": [1]}


class Echo:
    def predict(self, X, names):
        return X


class Own:
    def predict(self, x: float, priority: str = "low") -> dict[str, str]:
        return {"y": priority}


@pytest.mark.parametrize("said", [-1, 1.5, True, "high", "-1", "", "٢"])
def test_a_priority_that_is_no_level_is_refused(front, said):
    """It must be a whole number of at least 0; anything else is a 400 that names the field, also where nothing has levels."""
    with Client(Echo, front=front) as client:
        asked = {
            "infer": {"inputs": [TENSOR], "parameters": {"priority": said}},
            "generate": {"x": [[1.0]], "parameters": {"priority": said}},
        }
        for path, message in asked.items():
            answer = client.post(f"/v2/models/Echo/{path}", json=message)
            assert answer.status_code == 400, answer.text
            assert "'priority' must be a whole number of at least 0" in answer.json()["error"]


@pytest.mark.parametrize("said", [0, 1, 7, "2", "00", 1 << 62])
def test_a_whole_number_is_a_priority(front, said):
    """So it is as the digits of a text, and above the levels that there are, as with Triton."""
    with Client(Echo, front=front, max_batch_size=4) as client:
        message = {"inputs": [TENSOR], "parameters": {"priority": said}}
        assert client.post("/v2/models/Echo/infer", json=message).status_code == 200


def test_a_model_with_an_input_called_priority_keeps_the_word(front):
    """There it is the model's own."""
    with Client(Own, front=front) as client:
        answer = client.post("/v2/models/Own/generate", json={"x": 1.0, "priority": "high"})
        assert (answer.status_code, answer.json()["y"]) == (200, "high")
