"""The work that every measured server does: y = X @ W, with X flattened to (rows, features) and W (features, 3)."""

from functools import cache

import numpy as np

CLASSES = 3


@cache
def weights(features, dtype):
    """The same W, (features, CLASSES), in every process."""
    return np.random.default_rng(features).standard_normal((features, CLASSES)).astype(dtype)


def work(X):
    """X (rows, ...) to scores (rows, CLASSES)."""
    X = X.reshape(len(X), -1)
    return X @ weights(X.shape[1], X.dtype)
