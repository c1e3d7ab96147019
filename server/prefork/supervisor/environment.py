"""What an instance process finds around it: its environment variables, its interpreter, its memory allocator."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from prefork.errors import ModelLoadError
from prefork.repository.config import Device, ModelConfig
from prefork.settings import cpus

MARK = "PREFORK_INSTANCE"
"""Names the instance in its environment, and so in that of all its descendants, by which strays are known."""

_LIBRARIES = {
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so", "libtcmalloc.so"),
}
_PACKAGES = {
    "jemalloc": "libjemalloc2 (Debian, Ubuntu), jemalloc (Fedora, Alpine, conda)",
    "tcmalloc": "libtcmalloc-minimal4 (Debian, Ubuntu), gperftools-libs (Fedora), gperftools (Alpine, conda)",
}


def inherited() -> dict[str, str]:
    """This process's own variables, as it was started with them: they are handed on, not read."""
    block = os.fsdecode(Path("/proc/self/environ").read_bytes())
    return dict(each.split("=", 1) for each in block.split("\0") if "=" in each)


def variables(
    config: ModelConfig,
    device: Device | None,
    mark: str,
    *,
    outer: Mapping[str, str],
    said: Sequence[str] = (),
    roots: Sequence[str] | None = None,
) -> dict[str, str]:
    """Those of one instance; what the model's configuration says wins over everything. Raises ModelLoadError.

    outer: the server's own; said: the names of those that nobody but the operator has set; roots: see `library`.
    """
    count = config.instances * max(1, len(config.devices))
    fixed = {name: outer.get(name, "") for name in said} | config.environment
    found = {**outer, **cpus.thread_budget(cpus.available(), count, fixed), "PYTHONUNBUFFERED": "1"}
    if config.python:
        found.pop("PYTHONHOME", None)
    if device is not None:
        found.update(_visible(device, outer))
    found.update(config.environment)
    if config.allocator:
        before = found.get("LD_PRELOAD")
        found["LD_PRELOAD"] = ":".join(filter(None, (library(config.allocator, roots), before)))
    return {**found, MARK: mark}


def library(allocator: str, roots: Sequence[str] | None = None) -> str:
    """The path of a memory allocator's library. Raises ModelLoadError, which says what to install.

    roots: the folders to look into; None is where systems and this interpreter's environment keep libraries.
    """
    for name in _LIBRARIES[allocator]:
        for folder in _roots() if roots is None else roots:
            if (path := Path(folder, name)).exists():
                return str(path)
    raise ModelLoadError(f"allocator: {allocator} is not installed here; the package is {_PACKAGES[allocator]}")


def interpreter(config: ModelConfig, directory: str, outer: Mapping[str, str]) -> str:
    """The path of the Python that runs the model: this one, or that of the file or virtual environment the model names.

    A relative path starts at the model's directory; a name without a slash that is nothing there is a command. Raises
    ModelLoadError where there is none.
    """
    if not config.python:
        return sys.executable
    path = Path(directory, Path(config.python).expanduser())
    if path.is_dir():
        path /= "bin/python"
    if not path.exists() and "/" not in config.python:
        path = Path(shutil.which(config.python, path=outer.get("PATH")) or path)
    if not path.exists():
        raise ModelLoadError(f"python: there is no {path}")
    if not os.access(path, os.X_OK):
        raise ModelLoadError(f"python: {path} cannot be executed")
    return str(path)


def _roots() -> list[str]:
    multiarch = sorted(str(each) for each in Path("/usr/lib").glob("*-linux-*"))
    return [str(Path(sys.prefix, "lib")), "/usr/local/lib", *multiarch, "/usr/lib64", "/usr/lib", "/lib64", "/lib"]


def _visible(device: Device, outer: Mapping[str, str]) -> dict[str, str]:
    """A number counts among the devices that the server itself may see, which may be fewer than the machine has."""
    said = str(device).removeprefix("cuda:").removeprefix("gpu:")
    if said == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    seen = [each.strip() for each in outer.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    if seen and said.isdecimal():
        if int(said) >= len(seen):
            raise ModelLoadError(f"devices: there is no device {said}: the server sees {len(seen)}")
        said = seen[int(said)]
    order = outer.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the numbers of nvidia-smi
    return {"CUDA_VISIBLE_DEVICES": said, "CUDA_DEVICE_ORDER": order}
