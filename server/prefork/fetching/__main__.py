"""`python -m prefork.fetching`: fetches what its first line of standard input asks for, and reports on standard output.

It ends at once when its standard input does, which is when the process that asked is gone.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import msgspec

from prefork.errors import ModelLoadError
from prefork.fetching import location
from prefork.fetching.cache import Cache
from prefork.fetching.fetch import fetch
from prefork.fetching.process import Order
from prefork.fetching.report import Report


def main() -> None:
    """Fetch one address."""
    # What libraries print must not stand between the events.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    threading.Thread(target=_end_with_input, daemon=True).start()
    report = Report(out)
    try:
        report.done(str(fetch(location.read(order.address), Cache(Path(order.cache)), report)))
    except ModelLoadError as error:
        report.failed(str(error))
    except OSError as error:
        report.failed(f"model_cache: {order.cache}: {error.strerror or error}")
    out.flush()
    # The libraries' threads and sessions have nothing to tidy up that the kernel does not.
    os._exit(0)


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
