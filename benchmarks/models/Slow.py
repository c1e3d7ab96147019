"""A model that loads for 3 s and answers in 20 ms. It takes `leak` MB for each request, and keeps them where `keep` says so."""

import time


class Slow:
    def __init__(self, leak=0, *, keep=False):
        self._leak = leak << 20
        self._keep = keep
        self._kept = []

    def load(self):
        time.sleep(3)

    def predict(self, X, names=None):
        taken = b"x" * self._leak
        if self._keep:
            self._kept.append(taken)
        time.sleep(0.02)
        return X
