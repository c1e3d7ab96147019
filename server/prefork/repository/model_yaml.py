"""model.yaml as text: YAML to a mapping, with the line in every complaint. What its keys mean is `config`'s business."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from prefork.errors import RepositoryError
from prefork.repository import config
from prefork.repository.config import ModelConfig
from prefork.repository.reading import Wrong
from prefork.settings.setting import first_line

FILE = "model.yaml"


class _Loader(yaml.SafeLoader):
    """YAML's loader, which takes the last of two equal keys, made to refuse them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is said twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


def read(path: Path, base: ModelConfig | None = None) -> ModelConfig:
    """What the file says, over `base`. Raises RepositoryError that names the file and the key or the line."""
    try:
        document = yaml.load(path.read_bytes(), _Loader)  # noqa: S506 - a SafeLoader
        return config.over(base or ModelConfig(), {} if document is None else document)
    except OSError as error:
        raise RepositoryError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise RepositoryError(f"{path}: {first_line(error)}") from None
    except (Wrong, RecursionError, UnicodeDecodeError) as error:
        raise RepositoryError(f"{path}: {error}") from None
