"""A model in a process of its own: both ends of the conversation with it, and that process's main."""

from prefork.remote.charge import Card, Charge
from prefork.remote.client import RemoteInstance

__all__ = ["Card", "Charge", "RemoteInstance"]
