"""Tiny real models, one file a runtime: made and saved by the real library, with its own prediction to compare with."""
