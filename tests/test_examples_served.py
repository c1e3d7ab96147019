"""What the server prints after its start, pasted into a shell: every line gets an answer of the model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import joblib
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from running import Running, launched, wait_until

PLAIN = """
class Model:
    def predict(self, X, names):
        return X * 2
"""
OWN = """
import pandas as pd

class Model:
    example = pd.DataFrame({"age": [41.0, 7.0], "city": ["Ulm", "it's"]})

    def predict(self, X, names):
        assert list(names) == ["age", "city"], names
        return [[row[1], str(float(row[0]) * 2)] for row in X]
"""
TYPED = """
from typing import Annotated
import numpy as np
from prefork import TensorSpec

class Model:
    def predict(
        self, rows: Annotated[np.ndarray, TensorSpec("FP32", (-1, 4))], word: str, limit: float = 0.5
    ) -> np.ndarray:
        return rows * len(word)
"""
MIXED = """
class Model:
    def example(self):
        return {"age": [41, 42], "city": ["Ulm", "Bonn"]}

    def predict(self, age: list[int], city: list[str]) -> list[str]:
        return [f"{a} {c}" for a, c in zip(age, city)]
"""
LARGE = """
from typing import Annotated
import numpy as np
from prefork import TensorSpec

class Model:
    def predict(self, image: Annotated[np.ndarray, TensorSpec("FP32", (-1, 3, 64, 64))]) -> float:
        return float(image.size)
"""
LONG = """
import numpy as np

class Model:
    example = np.arange(3000.0).reshape(1, 3000)

    def predict(self, X, names):
        return [[float(X.sum())]]
"""
CODE = {"plain": PLAIN, "own": OWN, "typed": TYPED, "mixed": MIXED, "large": LARGE, "long": LONG}
EXPECTED = {
    "plain": [10.2, 7.0, 2.8, 0.4],
    "own": ["Ulm", "82.0", "it's", "14.0"],
    "typed": [20.4, 14.0, 5.6, 0.8],
    "mixed": ["41 Ulm", "42 Bonn"],
    "large": [12288.0],
    "long": [4498500.0],
    "pipeline": ["yes"],
}


def pipeline(path: Path) -> None:
    """A classifier of a table with a column of texts, which refuses texts that it has not seen."""
    table = pd.DataFrame({"city": ["Ulm", "Bonn", "Ulm", "Köln"], "age": [1.0, 2.0, 30.0, 40.0]})
    first = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    joblib.dump(make_pipeline(first, LogisticRegression()).fit(table, ["no", "yes", "no", "no"]), path)


def printed(server: Running) -> list[str]:
    """The lines below `ready at`."""
    wait_until(lambda: "ready at" in server.log, "the line that says it is ready")
    shown = server.log.partition("ready at")[2].splitlines()[1:]
    return [line for line in shown if line.startswith(("curl ", "python3 "))]


def pasted(line: str) -> dict:
    found = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True, timeout=30).stdout
    return json.loads(found)


def flat(value: object) -> list:
    return [each for part in value for each in flat(part)] if isinstance(value, list) else [value]


def answered(answer: dict) -> list:
    """The elements of an answer of any protocol."""
    if "outputs" in answer:
        return flat(answer["outputs"][0]["data"])
    if "predictions" in answer:
        return flat(answer["predictions"])
    data = answer["data"]
    return flat(data["ndarray"] if "ndarray" in data else data["tensor"]["values"])


@pytest.mark.parametrize("host", ["worker", "process"])
@pytest.mark.parametrize("kind", [*CODE, "pipeline"])
def test_the_printed_lines_work(tmp_path, kind, host):
    """V2's line and Seldon's, each as it stands, are answered alike in both hosts; so are those of the model's example."""
    if kind in CODE:
        (tmp_path / "Model.py").write_text(CODE[kind])
        target = "Model"
    else:
        pipeline(tmp_path / "Model.joblib")
        target = "./Model.joblib"
    with launched(tmp_path, target, "--workers", "1", "--host", host) as server, server.client() as client:
        lines = printed(server)
        told = client.get("/v2/models/Model/example").raise_for_status().json()
        assert [told["curl"]["v2"], told["curl"]["seldon"]] == lines
        answers = [answered(pasted(line)) for line in told["curl"].values()]
        for protocol in ("v2", "seldon", "v1"):
            response = client.post(told[protocol]["path"], json=told[protocol]["body"])
            answers.append(answered(response.raise_for_status().json()))
    assert len(answers) == 6
    for answer in answers:
        assert answer == (pytest.approx(EXPECTED[kind]) if isinstance(EXPECTED[kind][0], float) else EXPECTED[kind])
