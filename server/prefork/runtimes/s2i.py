"""A Seldon source folder, as s2i builds images from: `.s2i/environment` names the class."""

from __future__ import annotations

from pathlib import Path

from prefork.errors import ModelLoadError
from prefork.runtimes.recognition import Recognition

FILE = Path(".s2i", "environment")
_CLASS = "MODEL_NAME"


def described(folder: Path) -> Recognition | None:
    """The class that the folder's code has; None where there is no such file. Raises ModelLoadError where it names no class.

    Of the other variables SERVICE_TYPE, API_TYPE and PERSISTENCE mean nothing to the server; all are the image's environment,
    and are not read here.
    """
    if not (folder / FILE).is_file():
        return None
    name = variables((folder / FILE).read_text(errors="replace")).get(_CLASS, "")
    if not name:
        raise ModelLoadError(f"{folder / FILE}: {_CLASS} is needed, the name of the class")
    return Recognition("", folder, class_=name)


def variables(text: str) -> dict[str, str]:
    """`NAME=value` lines. Blank lines and those that begin with `#` mean nothing; nothing is unquoted, as s2i does not either."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, is_there, value in pairs if is_there}
