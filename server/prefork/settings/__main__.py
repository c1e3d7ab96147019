"""`python -m prefork.settings` prints the table of docs/settings.md."""

from __future__ import annotations

import sys

from prefork.settings import table

sys.stdout.write(table())
