"""The operator's guard: who may change what the server does, over HTTP.

Without `admin_token` nobody may. With it a request has to carry it, as `Authorization: Bearer TOKEN`; each one that does is
a line in the log of its own.
"""

from __future__ import annotations

import hmac
import logging

from prefork.errors import Forbidden, Unauthorized
from prefork.http import Request
from prefork.settings import Settings

log = logging.getLogger("prefork.admin")


def check(request: Request, settings: Settings) -> None:
    """Let an operator's request through. Raises Forbidden where there is no operator, Unauthorized for everybody else."""
    secret = settings.admin_token.strip().encode()  # no header can say the blanks around it
    if not secret:
        raise Forbidden(
            f"{request.path} is for operators, and there is no admin_token: set PREFORK_ADMIN_TOKEN (or admin_token_file) and "
            "send `Authorization: Bearer TOKEN`"
        )
    scheme, _, said = request.header(b"authorization").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(said.strip().encode("latin-1"), secret):
        raise Unauthorized(f"{request.path} needs the operator's token: `Authorization: Bearer TOKEN`")
    log.info("operator: %s %r", request.method, request.path[:200])
