"""`python -m prefork.metrics`: the table of docs/metrics.md."""

from __future__ import annotations

import sys

from prefork.metrics.families import table

sys.stdout.write(table())
