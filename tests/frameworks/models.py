"""What the fork guard is tried on: each framework's model as a user's class, with its work at each of four moments.

`python models.py FOLDER` trains and saves all of them there.
"""

from __future__ import annotations

import sys
from pathlib import Path

WIDTH = 1024

TENSORFLOW = """
def opened(folder):
    import tensorflow as tf
    return tf.saved_model.load(f"{folder}/savedmodel")

def run(model, X):
    return model(X).numpy()
"""
KERAS = """
def opened(folder):
    import keras
    return keras.models.load_model(f"{folder}/model.keras")

def run(model, X):
    return model.predict(X, verbose=0)
"""
TORCHSCRIPT = """
def opened(folder):
    import torch
    return torch.jit.load(f"{folder}/script.pt")

def run(model, X):
    import torch
    with torch.inference_mode():
        return model(torch.from_numpy(X)).numpy()
"""
EXPORTED = """
def opened(folder):
    import torch
    return torch.export.load(f"{folder}/exported.pt2").module()

def run(model, X):
    import torch
    with torch.inference_mode():
        return model(torch.from_numpy(X)).numpy()
"""
ONNX = """
def opened(folder):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    {options}
    return onnxruntime.InferenceSession(f"{{folder}}/model.onnx", options, providers=["CPUExecutionProvider"])

def run(model, X):
    return model.run(None, {{"x": X}})[0]
"""
JOBLIB = """
def opened(folder):
    import joblib
    return joblib.load(f"{{folder}}/{name}.joblib")

def run(model, X):
    return model.predict(X)
"""
XGBOOST = """
def opened(folder):
    import xgboost
    model = xgboost.Booster()
    model.load_model(f"{folder}/xgboost.json")
    return model

def run(model, X):
    import xgboost
    return model.predict(xgboost.DMatrix(X))
"""
LIGHTGBM = """
def opened(folder):
    import lightgbm
    return lightgbm.Booster(model_file=f"{folder}/lightgbm.txt")

def run(model, X):
    return model.predict(X)
"""

FRAMEWORKS = {
    "tensorflow": ("tensorflow", TENSORFLOW),
    "keras": ("tensorflow, keras", KERAS),
    "torchscript": ("torch", TORCHSCRIPT),
    "torch-exported": ("torch", EXPORTED),
    "onnxruntime": ("onnxruntime", ONNX.format(options="options.intra_op_num_threads = 2")),
    "onnxruntime-parallel": (
        "onnxruntime",
        ONNX.format(
            options="options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL; options.inter_op_num_threads = 4"
        ),
    ),
    "onnxruntime-one": ("onnxruntime", ONNX.format(options="options.intra_op_num_threads = 1")),
    "forest": ("sklearn.ensemble", JOBLIB.format(name="forest")),
    "logistic": ("sklearn.linear_model", JOBLIB.format(name="logistic")),
    "boosting": ("sklearn.ensemble", JOBLIB.format(name="boosting")),
    "neighbors": ("sklearn.neighbors", JOBLIB.format(name="neighbors")),
    "xgboost": ("xgboost", XGBOOST),
    "lightgbm": ("lightgbm", LIGHTGBM),
}
"""By name: what its module imports first, and the text of its functions."""

MOMENTS = {
    "load and run in the constructor": (True, "self.model = opened(FOLDER); run(self.model, X)", "pass"),
    "load in the constructor": (True, "self.model = opened(FOLDER)", "pass"),
    "import only": (True, "pass", "self.model = opened(FOLDER)"),
    "load()": (False, "pass", "self.model = opened(FOLDER); run(self.model, X)"),
}
"""By name: whether the module imports the framework, the constructor's body, and that of load()."""

CLASS = """
{imports}
import ctypes, os
import numpy as np
FOLDER = {folder!r}
X = np.random.default_rng(0).random((512, {width}), dtype=np.float32)
{functions}
class Model:
    example = X

    def __init__(self):
        {constructor}

    def load(self):
        {load}

    def predict(self, rows, names):
        answer = run(self.model, X)
        from prefork.guard import openmp, threads
        torch = __import__("sys").modules.get("torch")
        return {{
            "pid": os.getpid(),
            "finite": bool(np.isfinite(answer).all()),
            "openmp": {{os.path.basename(path): openmp.threads(path) for path in openmp.runtimes()}},
            "torch": torch.get_num_threads() if torch else None,
            "pools": sorted(os.path.basename(each.library) for each in threads.others()),
        }}
"""


def source(framework: str, moment: str, folder: Path) -> str:
    """The text of Model.py."""
    modules, functions = FRAMEWORKS[framework]
    is_imported, constructor, load = MOMENTS[moment]
    return CLASS.format(
        imports=f"import {modules}" if is_imported else "",
        folder=str(folder),
        width=WIDTH,
        functions=functions,
        constructor=constructor,
        load=load,
    )


def save_all(folder: Path) -> None:
    import joblib
    import lightgbm
    import numpy as np
    import onnx
    import tensorflow as tf
    import torch
    import xgboost
    from onnx import TensorProto, helper, numpy_helper
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsRegressor

    random = np.random.default_rng(1)
    rows = random.random((600, WIDTH), dtype=np.float32)
    target = rows[:, 0] * 3
    weights = random.random((WIDTH, WIDTH), dtype=np.float32)

    class Dense(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(weights)

        @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32)])
        def __call__(self, x):
            return tf.nn.relu(x @ self.weights) @ self.weights

    tf.saved_model.save(Dense(), f"{folder}/savedmodel")
    layers = [tf.keras.Input((WIDTH,)), tf.keras.layers.Dense(WIDTH, "relu"), tf.keras.layers.Dense(4)]
    tf.keras.Sequential(layers).save(f"{folder}/model.keras")
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 4)).eval()
    torch.jit.trace(net, torch.from_numpy(rows)).save(f"{folder}/script.pt")
    torch.export.save(torch.export.export(net, (torch.from_numpy(rows[:512]),)), f"{folder}/exported.pt2")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, WIDTH]) for name in "xy")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["x", "w"], ["g"]),
        helper.make_node("Add", ["r", "g"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "graph", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), f"{folder}/model.onnx"
    )
    estimators = {
        "forest": RandomForestRegressor(20, n_jobs=-1, max_features=16),
        "logistic": LogisticRegression(),
        "boosting": HistGradientBoostingRegressor(max_iter=10),
        "neighbors": KNeighborsRegressor(algorithm="brute", n_jobs=-1),
    }
    for name, estimator in estimators.items():
        joblib.dump(estimator.fit(rows, target > 1.5 if name == "logistic" else target), f"{folder}/{name}.joblib")
    xgboost.train({}, xgboost.DMatrix(rows, label=target), 10).save_model(f"{folder}/xgboost.json")
    lightgbm.train({"verbose": -1}, lightgbm.Dataset(rows, target), 10).save_model(f"{folder}/lightgbm.txt")


if __name__ == "__main__":
    save_all(Path(sys.argv[1]))
