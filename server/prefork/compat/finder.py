"""Lets `import seldon_core` find `prefork.compat` where the real package is absent.

The modules are the same objects under both names, so that a class is the same class whichever way it was imported.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType

ALIAS = "seldon_core"
TARGET = "prefork.compat"


class SeldonFinder(MetaPathFinder, Loader):
    """Finds `seldon_core` and what is under it, nothing else."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of one of the stand-ins. Raises ModuleNotFoundError, saying what to do, for a name that has none."""
        if fullname != ALIAS and not fullname.startswith(ALIAS + "."):
            return None
        if importlib.util.find_spec(_target(fullname)) is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: Prefork stands in for the common names of seldon_core only; "
                "install seldon-core for the others",
                name=fullname,
            )
        return importlib.machinery.ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Put the stand-in itself where the import system looks for the module that it has just made."""
        # Handing it out from create_module would overwrite its own __spec__ with the alias's.
        sys.modules[module.__name__] = importlib.import_module(_target(module.__name__))


def install() -> None:
    """Make the stand-ins importable, once, and only where no real `seldon_core` can be imported."""
    if ALIAS in sys.modules or any(isinstance(finder, SeldonFinder) for finder in sys.meta_path):
        return
    if importlib.util.find_spec(ALIAS) is None:
        # In front: the finder for files would load a stand-in's file a second time, as another module.
        sys.meta_path.insert(0, SeldonFinder())


def _target(fullname: str) -> str:
    return TARGET + fullname.removeprefix(ALIAS)
