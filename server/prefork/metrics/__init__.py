"""Metrics that are right across workers and recycles: counted in shared memory, read by whoever is asked."""

from prefork.metrics.ledger import Account, Ledger
from prefork.metrics.meter import Meter, clock, kind_of
from prefork.metrics.page import page
from prefork.metrics.series import count

__all__ = ["Account", "Ledger", "Meter", "clock", "count", "kind_of", "page"]
