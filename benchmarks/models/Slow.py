"""A model that loads for 3 s and answers in 20 ms. It leaks so many MB a request."""

import time


class Slow:
    def __init__(self, leak=0):
        self._leak = leak << 20
        self._leaked = []

    def load(self):
        time.sleep(3)

    def predict(self, X, names=None):
        self._leaked.append(b"x" * self._leak)
        time.sleep(0.02)
        return X
