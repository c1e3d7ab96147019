"""A project that runs, written from the template that the package carries.

The template's class is called Iris; a project's has the name that was asked for, and so have its file and its test.
"""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

from prefork.errors import SettingError

TEMPLATE = Path(__file__).parent / "user-model-template"
FILES = (
    "Iris.py",
    "train.py",
    "test_Iris.py",
    "prefork.yaml",
    "requirements.txt",
    "Dockerfile",
    ".dockerignore",
    ".s2i/environment",
)
"""What a project starts with; whatever else lies beside them in a working tree (models, caches) is not part of it."""


def init(name: str, directory: Path) -> list[Path]:
    """Write the project of a class called `name`, and return its files. SettingError, and nothing written, if it cannot be."""
    _check(name)
    texts = {directory / _renamed(file, name): _renamed((TEMPLATE / file).read_text("utf-8"), name) for file in FILES}
    there = next(filter(Path.exists, texts), None)
    if there is not None:
        raise SettingError(f"{there} is there already: nothing was written")
    try:
        for path, content in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
    except OSError as error:
        raise SettingError(f"{error.filename}: {error.strerror}") from None
    return list(texts)


def _check(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise SettingError(f"{name!r} cannot be the name of a Python class; take letters, digits and _")
    if name in sys.stdlib_module_names or name in {"prefork", "train"}:
        raise SettingError(f"{name!r} is the name of another module, which would be found first; take another")


def _renamed(content: str, name: str) -> str:
    return re.sub(r"(?<![a-z])Iris(?![a-z])", name, content)
