"""Handmade beginnings of saved models' files, as far as one reads them to know what they are."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

ONNX = b"\x08\x0a\x3a\x00"
"""A ModelProto: ir_version (field 1) is 10, and an empty graph (field 7)."""
ESTIMATOR = b"\x80\x04csklearn.linear_model\nRidge\n."
"""A pickle that is the class Ridge."""


def safetensors() -> bytes:
    head = json.dumps({"w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
    return len(head).to_bytes(8, "little") + head


def skops(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("schema.json", "{}")
    return path


def mlflow(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MLmodel").write_text("flavors:\n  python_function:\n    loader_module: mlflow.sklearn\n")
    (folder / "model.onnx").write_bytes(ONNX)
    return folder


def mlserver(folder: Path, **settings: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model-settings.json").write_text(json.dumps(settings))
    return folder


def s2i(folder: Path, text: str) -> Path:
    (folder / ".s2i").mkdir(parents=True)
    (folder / ".s2i" / "environment").write_text(text)
    return folder
