"""`prefork check`: a model's import, constructor, load() and fork, examined without serving.

Everything of the user's runs in children, so that nothing of it stays. The exit code is 0, or 3 when the model cannot be
loaded, or cannot be preloaded though the settings ask for that.
"""

from __future__ import annotations

import msgspec

from prefork.check.findings import page
from prefork.check.stages import examine
from prefork.errors import ModelLoadError
from prefork.settings import Settings

__all__ = ["check"]


def check(settings: Settings, *, as_json: bool = False) -> tuple[str, int]:
    """The page, or the JSON, and the exit code."""
    found = examine(settings)
    refused = settings.preload_app is True and found.preload is not None and found.preload.refused
    text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n" if as_json else page(found)
    return text, ModelLoadError.exit_code if found.failed or refused else 0
