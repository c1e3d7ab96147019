"""`python -m prefork.supervisor DESCRIPTOR`: the supervisor, which reads its orders from the descriptor."""

from __future__ import annotations

import sys

# `-m` has put the working directory first, where a user's queue.py would hide the standard library's.
if not sys.flags.safe_path:
    sys.path.pop(0)

from prefork.supervisor.main import main

sys.exit(main(sys.argv[1:]))
