"""model.yaml as text: YAML to a config. What its keys mean is `config`'s business."""

from __future__ import annotations

from pathlib import Path

from prefork.errors import RepositoryError
from prefork.repository import config, files
from prefork.repository.config import ModelConfig
from prefork.settings import document

FILE = "model.yaml"


def read(path: Path, base: ModelConfig | None = None) -> ModelConfig:
    """What the file says, over `base`. Raises RepositoryError that names the file and the key or the line."""
    try:
        said = document.read(files.read(path))
        return config.over(base or ModelConfig(), {} if said is None else said)
    except OSError as error:
        raise RepositoryError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise RepositoryError(f"{path}: {error}") from None
