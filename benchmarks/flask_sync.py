"""A bare Flask route that does the measured work, for gunicorn's sync worker."""

import numpy as np
import orjson
from flask import Flask, Response, request
from work import work

app = Flask(__name__)


@app.post("/predict")
def predict():
    scores = work(np.array(orjson.loads(request.get_data())["data"]["ndarray"]))
    answer = orjson.dumps({"data": {"ndarray": scores}}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(answer, mimetype="application/json")
