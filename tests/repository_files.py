"""Folders of models for the tests of the repository."""

from __future__ import annotations

from pathlib import Path

MODEL = "class Model:\n    def predict(self, X, names):\n        return X\n"


def put(folder: Path, files: dict[str, str]) -> Path:
    """Write the files, by their paths in the folder; a path that ends in `/` is an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        if path.endswith("/"):
            (folder / path).mkdir(parents=True)
            continue
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder
