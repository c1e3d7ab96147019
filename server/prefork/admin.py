"""The operator's guard: who may change what the server does, over HTTP.

Without `admin_token` nobody may. With it a request has to carry it, as `Authorization: Bearer TOKEN`, in UTF-8. What came of it
is for `audit` to say.
"""

from __future__ import annotations

import hmac

from prefork.errors import Forbidden, Unauthorized
from prefork.http import Request
from prefork.settings import Settings


def check(request: Request, settings: Settings) -> None:
    """Let an operator's request through. Raises Forbidden where there is no operator, Unauthorized for everybody else."""
    secret = settings.admin_token.encode()
    if not secret:
        raise Forbidden(
            f"{request.path} is for operators, and there is no admin_token: set PREFORK_ADMIN_TOKEN (or admin_token_file) and "
            "send `Authorization: Bearer TOKEN`"
        )
    scheme, _, said = request.headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(said.strip(), secret):
        raise Unauthorized(f"{request.path} needs the operator's token: `Authorization: Bearer TOKEN`")
