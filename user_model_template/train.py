"""Train the classifier and write it to model.joblib: about a second, nothing is downloaded."""

from pathlib import Path

import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

DATA = load_iris()
CLASSES = DATA.target_names
EXAMPLE = DATA.data[:1]


def fit():
    return LogisticRegression(max_iter=1000).fit(DATA.data, DATA.target)


if __name__ == "__main__":
    path = Path(__file__).parent / "model.joblib"
    joblib.dump(fit(), path)
    print(f"{path.name} is written")
