"""What a predict is lent beside its inputs: a sender for its answer, and the state that it left when it handed the request back.

def predict(self, X, names, sender): ...                Seldon's style: parameters called `sender` and `state`
def predict(self, prompt: str, out: Sender): ...        parameters annotated Sender and Rescheduled, in either style
def predict(self, X, names, meta): meta["sender"]       where the function itself says so in these words
"""

from __future__ import annotations

import dis
import functools
import inspect
import weakref
from typing import Annotated, Any, get_args, get_origin

import msgspec

from prefork.errors import NotImplementedHere
from prefork.model import hints
from prefork.model.hooks import Hook
from prefork.model.reschedule import MARK, Reschedule
from prefork.model.sender import Sender
from prefork.payload import Payload


class Lent(msgspec.Struct, frozen=True):
    """The names of the parameters for the sender and the state; empty where there is none. from_meta: `meta["sender"]`."""

    sender: str = ""
    state: str = ""
    from_meta: bool = False

    @property
    def sends(self) -> bool:
        """Whether the answer comes through a sender."""
        return bool(self.sender) or self.from_meta

    @property
    def names(self) -> frozenset[str]:
        """The parameters that are no inputs."""
        return frozenset(name for name in (self.sender, self.state) if name)

    def without(self, hook: Hook) -> Hook:
        """The hook as it looks without these parameters, which are passed by name."""
        return functools.partial(hook, **dict.fromkeys(self.names)) if self.names else hook

    def arguments(self, request: Payload) -> dict[str, Any]:
        """The keyword arguments for a call. Raises NotImplementedHere where nobody can take what a sender sends."""
        values: dict[str, Any] = {}
        if self.state:
            values[self.state] = request.again.state if isinstance(request.again, Reschedule) else None
        if self.sends:
            # The server lets go of the sender here: what the user's code does with it is what decides.
            sender, request.sender = request.sender, None
            if sender is None:
                raise NotImplementedHere("the model answers through a sender: ask /v2/models/NAME/generate_stream")
            if self.sender:
                values[self.sender] = sender
            if self.from_meta:
                request.meta_for_model().lend(weakref.ref(sender))
        return values


NOTHING = Lent()


def lent(hook: Hook) -> Lent:
    """What a predict is lent; decided from its signature and, for `meta["sender"]`, its code."""
    try:
        parameters = inspect.signature(hook).parameters
    except (TypeError, ValueError):
        return NOTHING
    annotations = hints.resolved(hook)
    found = {"sender": "", "state": ""}
    for parameter in parameters.values():
        role = _role(parameter, annotations.get(parameter.name, parameter.annotation))
        if role and parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            found[role] = parameter.name
    return Lent(**found, from_meta="meta" in parameters and _takes_from_meta(hook))


def _role(parameter: inspect.Parameter, annotation: Any) -> str:
    if annotation is parameter.empty:
        return parameter.name if parameter.name in {"sender", "state"} else ""
    if get_origin(annotation) is Annotated and MARK in get_args(annotation)[1:]:
        return "state"
    return "sender" if annotation is Sender else ""


def _takes_from_meta(hook: Hook) -> bool:
    """Whether the function says `meta["sender"]`: an ordinary model must not be taken for one that sends."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    code = getattr(inspect.unwrap(getattr(hook, "__func__", hook)), "__code__", None)
    if code is None:
        return False
    steps = [step for step in dis.get_instructions(code) if step.opname not in {"EXTENDED_ARG", "CACHE"}]
    return any(
        _ends_with_meta(of.argval) and key.argval == "sender" and (get.opname == "BINARY_SUBSCR" or get.argrepr == "[]")
        for of, key, get in zip(steps, steps[1:], steps[2:], strict=False)
    )


def _ends_with_meta(loaded: Any) -> bool:
    # Newer Pythons load two variables in one step.
    return loaded == "meta" or (isinstance(loaded, tuple) and loaded[-1:] == ("meta",))
