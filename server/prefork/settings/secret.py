"""The operator's secret: what of a text is the secret, and which text can be none.

It travels in a header, as UTF-8: one line, whose blanks at its ends no client can say. Nothing here repeats what it was given.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from prefork.errors import SettingError
from prefork.settings.setting import text

_BLANKS = " \t\r\n\v\f"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def secret(raw: Any) -> str:
    """Without a byte order mark and blanks around it. Raises ValueError for none, several lines and control characters."""
    value = text(raw).strip(_BLANKS).removeprefix("\ufeff").strip(_BLANKS)
    if not value:
        raise ValueError("there is nothing in it")
    if len(value.splitlines()) > 1:
        raise ValueError("it has several lines, and a token is one")
    if _CONTROL.search(value):
        raise ValueError("it has control characters, which no header can carry")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("it is not UTF-8") from None
    return value


def from_file(name: str) -> str:
    """The secret that a file holds. Raises SettingError."""
    try:
        return secret(Path(name).read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise SettingError(f"admin_token_file: {name}: it is not UTF-8") from None
    except OSError as error:
        raise SettingError(f"admin_token_file: {name}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingError(f"admin_token_file: {name}: {error}") from None
