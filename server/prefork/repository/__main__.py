"""`python -m prefork.repository` prints the tables of model.yaml's keys, as in docs/repository.md."""

from __future__ import annotations

import sys

from prefork.repository.table import markdown

sys.stdout.write(markdown())
