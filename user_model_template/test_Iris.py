"""What the model promises; `pip install 'prefork[testing]' pytest`, then `pytest`."""

import pytest
from Iris import Iris

from prefork.testing import Client

SETOSA = [5.1, 3.5, 1.4, 0.2]


@pytest.fixture(scope="module")
def client():
    with Client(Iris) as client:
        yield client


def test_a_setosa_is_a_setosa(client):
    response = client.post("/predict", json={"data": {"ndarray": [SETOSA]}})
    data = response.json()["data"]
    assert data["names"] == ["setosa", "versicolor", "virginica"]
    assert data["ndarray"][0][0] > 0.9


def test_three_columns_are_refused(client):
    assert client.post("/predict", json={"data": {"ndarray": [SETOSA[:3]]}}).status_code >= 400


def test_the_model_is_well(client):
    assert client.get("/health/status").status_code == 200
