"""Measurements of models in processes of their own; `python -m benchmarks.hosting`."""
