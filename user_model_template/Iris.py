"""The model: a plain class. Only `predict` is needed; every other method here is a hook that may go."""

from pathlib import Path

import joblib
import train

MODEL_FILE = Path(__file__).parent / "model.joblib"


class Iris:
    def __init__(self, min_confidence=0.0):
        """Keep the parameters: `-p min_confidence=0.5`, `parameters:` in prefork.yaml, PREDICTIVE_UNIT_PARAMETERS."""
        self.min_confidence = float(min_confidence)
        self.confidence = None

    def load(self):
        """Read the model. It runs once in each worker process, before the worker takes requests."""
        # So that a new project answers at once, it trains where no file is. Yours will rather fail.
        self.classifier = joblib.load(MODEL_FILE) if MODEL_FILE.exists() else train.fit()

    def predict(self, X, names, meta=None):
        """Answer a request: rows in, rows out. `names` are the columns' names, `meta` is the request's own."""
        probabilities = self.classifier.predict_proba(X)
        self.confidence = float(probabilities.max(axis=1).min())
        return probabilities

    def class_names(self):
        """Name the columns of the answer."""
        return [str(name) for name in train.CLASSES]

    def tags(self):
        """Put something into the `meta.tags` of the answer that was just computed."""
        if self.confidence is None:
            return {}
        return {"confident": self.confidence >= self.min_confidence}

    def metrics(self):
        """Count and measure: COUNTER adds up, GAUGE is the last value, TIMER takes milliseconds."""
        return [{"type": "COUNTER", "key": "iris_requests", "value": 1}]

    def transform_input(self, X, names, meta=None):
        """POST /transform-input: prepare features for the next model of a graph."""
        return X

    def transform_output(self, X, names, meta=None):
        """POST /transform-output: rework another model's answer."""
        return X.round(3)

    def route(self, X, names, meta=None):
        """POST /route: the number of the branch that a request should take."""
        return 0

    def aggregate(self, Xs, names):
        """POST /aggregate: one answer out of several models'."""
        return sum(Xs) / len(Xs)

    def send_feedback(self, X, names, reward, truth, routing=None):
        """POST /send-feedback: learn how good an earlier answer was."""

    def health_status(self):
        """GET /health/status: check the model itself; raise if it is ill."""
        return self.classifier.predict(train.EXAMPLE)

    def init_metadata(self):
        """Describe the model, for /metadata."""
        return {"name": "Iris", "versions": ["1"], "platform": "sklearn"}


# More, for those who need it:
# - `predict_raw(self, msg)`, and `_raw` on any other hook: the protocol's own message in and out. It wins over `predict`.
# - `async def predict`: runs on the event loop. `predict` as a generator: streams, at /v2/models/Iris/generate_stream.
# - `blueprint`: a Flask blueprint with routes of your own. `model_error_handler`: one that answers for your exceptions.
# - `custom_service(self)`: a server of your own, in a process of its own.
