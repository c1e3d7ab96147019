"""What each path does: plain functions from a decoded request to a response, or to the call of the model behind it."""

from prefork.endpoints.failures import encode_error, stream_error
from prefork.endpoints.site import Call, Site
from prefork.endpoints.table import ROUTES, documented

__all__ = ["ROUTES", "Call", "Site", "documented", "encode_error", "stream_error"]
