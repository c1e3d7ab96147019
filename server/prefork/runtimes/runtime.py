"""What a runtime is: how it knows its files, where its models best live, and how it opens one.

Another package adds one by an entry point of the group `prefork.runtimes` whose value is a `Runtime`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from prefork.errors import BadRequest, ModelLoadError
from prefork.model.declared import Run, Takes
from prefork.model.example import zeros
from prefork.payload import Kind, Payload, TensorSpec


def _nothing() -> None: ...


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is opened with.

    parameters: the runtime's own, as its documentation lists them; an unknown one is refused. threads: CPUs that it may use.
    device: the GPU, None for the CPU. allow_pickle: whether a file that runs code when it is read may be read although others can
    write it.
    """

    parameters: Mapping[str, Any] = {}
    threads: int = 1
    device: int | str | None = None
    allow_pickle: bool = False


class Opened(msgspec.Struct, kw_only=True):
    """A model that is in memory.

    takes: its inputs. run: called with what `takes` gathers and the request's parameters. outputs: what `run` answers, None where
    that is only seen. labels: of an output's classes. example: inputs by name or one matrix that the model is known to take; None
    for zeros of the declared shape. facts: for the log.
    """

    takes: Takes
    run: Run
    outputs: tuple[TensorSpec, ...] | None = None
    labels: dict[str, tuple[str, ...]] = {}
    example: Any = None
    facts: str = ""
    close: Callable[[], None] = _nothing


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """Serves one kind of saved model.

    name: as `--runtime` takes it. platform: what V2's metadata says. extra: of this distribution, with what has to be installed.
    recognises: whether a file or folder is one of its kind, from its content. open: loads it; raises ModelLoadError.
    host: where its models live by default, and `why`. parameters: those that `open` understands, with a word on each.
    """

    name: str
    platform: str
    extra: str
    recognises: Callable[[Path], bool]
    open: Callable[[Path, Options], Opened]
    host: Literal["worker", "process"] = "worker"
    why: str = "it survives a fork and gives its memory back"
    parameters: Mapping[str, str] = {}


@contextmanager
def needed(runtime: str, extra: str) -> Iterator[None]:
    """Import a framework inside. Raises ModelLoadError that says what to install where there is none."""
    try:
        yield
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] == "prefork":
            raise
        raise ModelLoadError(
            f"a model of the kind {runtime} needs a package that is not here ({error}): pip install 'prefork[{extra}]'"
        ) from error


def check_parameters(runtime: Runtime, parameters: Mapping[str, Any]) -> None:
    """Raise ModelLoadError for a parameter that the runtime does not know."""
    unknown = next((name for name in parameters if name not in runtime.parameters), None)
    if unknown is not None:
        known = ", ".join(runtime.parameters) or "none"
        raise ModelLoadError(f"parameters: the runtime {runtime.name} knows no {unknown!r}; it has {known}")


def threads(options: Options) -> int:
    """How many a request may use: the parameter `threads`, else the options'. Raises ModelLoadError for what is no such number."""
    said = options.parameters.get("threads", options.threads)
    if not isinstance(said, int) or isinstance(said, bool) or said < 1:
        raise ModelLoadError(f"parameters: threads {said!r} is no number of threads")
    return said


def asked_method(parameters: Mapping[str, Any], known: tuple[str, ...], default: str) -> str:
    """The method that a request asks for. Raises BadRequest for one that the model does not have."""
    method = parameters.get("method", default)
    if method not in known:
        raise BadRequest(f"parameters: method {str(method)[:60]!r}: the model has {', '.join(known)}")
    return str(method)


def trial(takes: Takes, example: Any) -> Payload | None:
    """A request that a model takes: its example, else zeros of the declared shapes; None where those do not say enough."""
    given = zeros(takes.described()) if example is None else example
    if isinstance(given, np.ndarray):
        return Payload(Kind.TENSOR, given)
    return Payload(Kind.TENSORS, dict(given)) if given else None


def chosen(parameters: Mapping[str, Any], name: str, known: tuple[str, ...], default: str) -> str:
    """A parameter that is one of several words. Raises ModelLoadError."""
    said = parameters.get(name, default)
    if said not in known:
        raise ModelLoadError(f"parameters: {name} {said!r} is none of {', '.join(known)}")
    return str(said)
