"""The user's `custom_service` beside a model in a process of its own: a thread of the first instance's, gone when that goes.

What fails is started again, later each time: for a moment two versions are there, and the old one may still have the port that
the new one wants. What returns has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from prefork.backoff import Backoff

log = logging.getLogger("prefork")

Hook = Callable[[], object]
_LONGEST = 5.0
"""Seconds between two tries at most."""


def start(hook: Hook | None, place: int) -> None:
    """Run it, where there is one and this is the first of its siblings. place: the instance's number among them."""
    if hook is not None and place == 0:
        threading.Thread(target=partial(_keep, hook), name="custom_service", daemon=True).start()


def _keep(hook: Hook) -> None:
    backoff = Backoff(longest=_LONGEST)
    while not _has_ended(hook):
        delay = backoff.fail()
        log.error("custom_service starts again in %.1f s", delay)
        time.sleep(delay)


def _has_ended(hook: Hook) -> bool:
    """Whether it came to its end; False where it failed."""
    log.info("custom_service runs")
    try:
        hook()
    except SystemExit as error:
        if error.code:
            log.error("custom_service called sys.exit(%r)", error.code)
        return not error.code
    except BaseException:
        log.exception("custom_service failed")
        return False
    log.info("custom_service has ended")
    return True
