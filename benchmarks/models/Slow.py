"""A model that loads for 3 s and answers in 20 ms. `leak` MB are taken for each request, and kept where `keep` says so."""

import time


class Slow:
    def __init__(self, leak=0, keep=0):
        self._leak = int(leak) << 20
        self._keep = keep
        self._kept = []

    def load(self):
        time.sleep(3)

    def predict(self, X, names=None):
        taken = bytearray(self._leak)
        for at in range(0, self._leak, 4096):  # a page that nobody has written to takes no memory
            taken[at] = 1
        if self._keep:
            self._kept.append(taken)
        time.sleep(0.02)
        return X
