"""Which modules are the user's own: those of the working directory, of `model_dir`, and of the model's own package.

What is installed there (an environment within the working directory) is not, except for that package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec

import prefork

_INSTALLED = ("site-packages", "dist-packages")
_OURS = os.path.realpath(os.path.dirname(prefork.__file__)) + os.sep  # noqa: PTH120 - joined with other texts


class Ownership(msgspec.Struct, frozen=True):
    """folders: the user's directories, resolved; package: the first part of the model's import path."""

    folders: tuple[str, ...]
    package: str

    @classmethod
    def of(cls, path: str, model_dir: str = "") -> Ownership:
        """Whose class `path` is. model_dir may be empty."""
        folders = [Path.cwd(), *([Path(model_dir).resolve()] if model_dir else [])]
        return cls(tuple(str(folder) for folder in folders), path.partition(":")[0].partition(".")[0])

    def owns(self, file: str) -> bool:
        """Whether a file of source is the user's."""
        path = os.path.realpath(file)
        if path.startswith(_OURS) or not path.endswith(".py"):
            return False
        if self.package and any(path.startswith(folder + os.sep) for folder in self._package_folders()):
            return True
        inside = any(path.startswith(folder + os.sep) for folder in self.folders)
        return inside and not any(f"{os.sep}{name}{os.sep}" in path for name in _INSTALLED)

    def modules(self) -> Iterator[tuple[str, ModuleType]]:
        """The user's modules that are imported."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            top = name.partition(".")[0]
            if name == "__main__" or not isinstance(file, str) or not file.endswith(".py"):
                continue
            if not os.path.realpath(file).startswith(_OURS) and (top == self.package or self.owns(file)):
                yield name, module

    def _package_folders(self) -> list[str]:
        module = sys.modules.get(self.package)
        return [os.path.realpath(folder) for folder in getattr(module, "__path__", ())]
