"""A model that says which worker answered."""

import os

import numpy as np


class Pid:
    def predict(self, X, names, meta=None):
        return np.array([[os.getpid()]])
