"""The real Seldon Core wrapper, in an environment of its own outside the repository: run beside Prefork, never read.

Its release 1.18.2 is not open source; this only installs and runs it, when asked to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Its Flask extensions still import pkg_resources, which setuptools has dropped since.
PACKAGES = ["seldon-core==1.18.2", "setuptools<81"]


def default_folder() -> Path:
    """Where the environment is kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prefork-benchmarks" / "seldon"


def environment(folder: Path) -> Path:
    """The environment with the wrapper; made in `folder` if it is not there."""
    if not (folder / "bin/seldon-core-microservice").exists():
        print(f"installing {PACKAGES[0]} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return folder
