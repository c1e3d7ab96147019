"""What the supervisor tells about its models: the index of the Open Inference Protocol, and all that it knows."""

from __future__ import annotations

from typing import Any

from prefork.supervisor import memory
from prefork.supervisor.entry import Entry
from prefork.supervisor.generation import Generation
from prefork.supervisor.lifecycle import Lifecycle
from prefork.supervisor.seat import Seat
from prefork.supervisor.shelf import Shelf
from prefork.supervisor.source import order
from prefork.supervisor.states import State


async def index(lifecycle: Lifecycle, *, only_ready: bool = False) -> list[dict[str, str]]:
    """One row a version, `name`, `version`, `state`, `reason`, those that are empty left out; a name that was never loaded alone."""
    names = sorted({*await lifecycle.names(), *lifecycle.shelves})
    rows = [row for name in names for row in _rows(name, lifecycle.shelves.get(name))]
    return [row for row in rows if not only_ready or row.get("state") == State.READY.in_index]


def status(lifecycle: Lifecycle) -> dict[str, Any]:
    """`settled`, `failures` of the start, and the models with their versions and processes. Memory is in bytes, times are UNIX's."""
    return {
        "settled": lifecycle.settled.is_set(),
        "failures": lifecycle.failures,
        "models": [_model(lifecycle.shelves[name]) for name in sorted(lifecycle.shelves)],
    }


def _rows(name: str, shelf: Shelf | None) -> list[dict[str, str]]:
    if shelf is None or not shelf.entries:
        failure = shelf.failure if shelf is not None else ""
        return [{"name": name, "state": "UNAVAILABLE", "reason": failure} if failure else {"name": name}]
    return [_row(name, shelf.entries[number]) for number in sorted(shelf.entries, key=order)]


def _row(name: str, entry: Entry) -> dict[str, str]:
    row = {"name": name, "version": entry.number, "state": entry.state.in_index, "reason": entry.reason}
    return {key: value for key, value in row.items() if value}


def _model(shelf: Shelf) -> dict[str, Any]:
    versions = [_version(shelf.entries[number]) for number in sorted(shelf.entries, key=order)]
    return {"name": shelf.name, "reason": shelf.failure, "versions": versions}


def _version(entry: Entry) -> dict[str, Any]:
    life = entry.serving.life if entry.serving is not None else None
    return {
        "version": entry.number,
        "state": entry.state.value,
        "ready": entry.state is State.READY,
        "reason": entry.reason,
        "trace": entry.trace,
        "since": life.since if life is not None else entry.since,
        "restarts": sum(seat.restarts.total for each in entry.generations for seat in each.seats),
        "generations": [_generation(each) for each in entry.generations],
    }


def _generation(generation: Generation) -> dict[str, Any]:
    return {
        "generation": generation.number,
        "state": generation.life.state.value,
        "since": generation.life.since,
        "loaded": generation.card.loaded if generation.card is not None else 0.0,
        "instances": [_instance(seat) for seat in generation.seats],
    }


def _instance(seat: Seat) -> dict[str, Any]:
    processes = [
        {
            "pid": each.pid,
            "state": "loading" if not each.is_ready else "stuck" if each.is_stuck else "ready",
            "memory": memory.resident(each.pid),
        }
        for each in seat.processes
    ]
    return {
        "place": seat.place,
        "device": seat.device,
        "processes": processes,
        "restarts": seat.restarts.total,
        "last_death": seat.last_death,
        "reason": seat.reason,
    }
