"""A model that waits 20 ms for something else, on a model thread."""

import time


class Sleep:
    def predict(self, X, names, meta=None):
        time.sleep(0.02)
        return X
