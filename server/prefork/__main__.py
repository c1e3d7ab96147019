"""`python -m prefork` is the `prefork` command."""

from __future__ import annotations

import sys

# `-m` has put the working directory first, where a user's queue.py would hide the standard library's; the loader
# appends it, for the user's class.
if not sys.flags.safe_path:
    sys.path.pop(0)

from prefork.cli import main

main()
