"""The settings of how long workers live, how they are replaced, and who may ask for that: a part of `Settings`.

A struct has one base, so the parts of `Settings` stand on each other.
"""

from __future__ import annotations

from typing import Annotated

from prefork.settings.hosting import Hosting
from prefork.settings.secret import secret
from prefork.settings.setting import About, size, whole


class Recycling(Hosting, frozen=True, kw_only=True):
    """When a worker is replaced, how many at a time, and how long a model may load."""

    max_requests: Annotated[
        int,
        About("Requests after which a worker is replaced; 0 never.", "--max-requests", "GUNICORN_MAX_REQUESTS"),
    ] = 0
    max_requests_jitter: Annotated[
        int,
        About(
            "At most so many requests more, spread evenly over the workers in the order in which they are started; no effect "
            "without `max_requests`.",
            "--max-requests-jitter",
            "GUNICORN_MAX_REQUESTS_JITTER",
        ),
    ] = 0
    max_worker_memory: Annotated[
        int,
        About(
            "Bytes by which a worker's own memory may grow from the moment when it was ready, before it is replaced; `512M` is "
            "read too. Pages that it shares with other processes do not count. 0 never.",
            "--max-worker-memory",
            "PREFORK_MAX_WORKER_MEMORY",
            read=size,
        ),
    ] = 0
    max_worker_age: Annotated[
        float,
        About(
            "Seconds from being ready after which a worker is replaced, or up to a tenth less, so that no two are due together; 0 never.",
            "--max-worker-age",
            "PREFORK_MAX_WORKER_AGE",
        ),
    ] = 0.0
    recycle_at_once: Annotated[
        int,
        About(
            "Workers that may be replaced at the same time. There are so many more while their replacements load.",
            "--recycle-at-once",
            "PREFORK_RECYCLE_AT_ONCE",
            read=whole(1),
        ),
    ] = 1
    load_timeout: Annotated[
        float,
        About(
            "Seconds that a worker has for the constructor and `load()`. Then its stacks go to the log and it counts as one that "
            "cannot load. 0 is no limit.",
            "--load-timeout",
            "PREFORK_LOAD_TIMEOUT",
        ),
    ] = 600.0
    admin_token: Annotated[
        str,
        About(
            "The operator's secret, without which nobody may have workers replaced or models loaded over HTTP: "
            "`Authorization: Bearer TOKEN`, in UTF-8. Where there is none, nobody may.",
            "",
            "PREFORK_ADMIN_TOKEN",
            read=secret,
            is_secret=True,
        ),
    ] = ""
    admin_token_file: Annotated[
        str,
        About(
            "A file that holds that secret, in one line; blanks around it and a byte order mark do not count.",
            "--admin-token-file",
            "PREFORK_ADMIN_TOKEN_FILE",
        ),
    ] = ""
