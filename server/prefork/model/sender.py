"""What a predict answers through when it does not return its answer: `Sender`."""

from __future__ import annotations

from typing import Any

from prefork.model.outbox import Outbox, SenderClosed

__all__ = ["Sender", "SenderClosed"]


class Sender:
    """Sends one request's answer in parts, from any thread, while `predict` runs or after it has returned.

    A part is what `predict` might return. The request ends with `close()`, or with the last part sent as `final=True`,
    whoever still holds the sender then. It ends with an error when the sender is let go of before that.
    """

    __slots__ = ("__weakref__", "_outbox")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def send(self, part: Any, *, final: bool = False, wait: bool = True) -> bool:
        """Send a part; False where nobody waits for it any more. It is encoded here, and may be changed afterwards.

        Waits while the client is 16 parts behind; with `wait=False`, or in a thread that runs an event loop, it does not:
        the request ends with an error once the client is 1024 behind. Raises SenderClosed after the last part, and BadAnswer
        for a part that cannot be encoded, which ends the request.
        """
        return self._outbox.put(part, final=final, wait=wait)

    async def asend(self, part: Any, *, final: bool = False) -> bool:
        """As `send`, waiting on the event loop."""
        await self._outbox.room()
        return self._outbox.put(part, final=final, wait=False)

    def close(self, error: BaseException | None = None) -> None:
        """End the request: nothing more comes. With an error, as if `predict` had raised it. A second call does nothing."""
        if error is not None:
            self._outbox.fail(error)
        self._outbox.close()

    def cancelled(self) -> bool:
        """Whether nobody waits for more: the client has gone, the time is up, or the model is being unloaded."""
        return self._outbox.cancelled()

    def __del__(self) -> None:
        # `is_over` is asked first: this runs for every sender, and mostly there is nothing to do.
        if not self._outbox.is_over:
            self._outbox.fail(RuntimeError("the model let go of its sender without close()"))


def retire(sender: Sender) -> None:
    """Take the request away from a sender: whatever becomes of it, the request goes on."""
    sender._outbox = _NOWHERE  # noqa: SLF001 - its own module


def _nothing(part: Any) -> Any:
    return part


_NOWHERE = Outbox(_nothing, _nothing)
_NOWHERE.close()
