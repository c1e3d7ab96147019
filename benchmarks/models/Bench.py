"""The measured model, as a user of Seldon's class protocol writes it."""

from work import work


class Bench:
    def predict(self, X, names, meta=None):
        return work(X)
