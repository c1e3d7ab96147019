"""The memory that two processes share: used again when nothing of it is held, left alone as long as something is."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

from prefork.frames import arena as module
from prefork.frames.arena import MOST_IDLE, SMALLEST, Arena, Arenas, Mappings
from prefork.frames.codec import encode_answer
from prefork.payload import Kind, Payload

MIB = 1 << 20


@pytest.fixture
def arenas():
    """A worker's."""
    found = Arenas()
    yield found
    found.close()


@pytest.fixture
def mappings():
    """A model's process's."""
    found = Mappings()
    yield found
    found.close()


def lent(arena):
    """An array of an arena."""
    lease = arena.lend()
    array = np.frombuffer(lease.view, np.uint8)
    lease.end()
    return array


def descriptors():
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_used_again(arenas):
    """An arena whose arrays have gone is used for the next request."""
    first = arenas.take(MIB)
    array = lent(first)
    arenas.give_back(first)
    del array
    assert arenas.take(MIB) is first


def test_left_alone(arenas):
    """One of which any array is left, even a view of a view, is not."""
    first = arenas.take(MIB)
    view = lent(first)[10:].reshape(-1, 2)[1:].view(np.uint16)
    arenas.give_back(first)
    second = arenas.take(MIB)
    assert second is not first
    lent(second)[:] = 7
    assert not view.any()
    arenas.give_back(second)
    del view
    assert {arenas.take(MIB), arenas.take(MIB)} == {first, second}


def test_grows(arenas):
    """A request that needs more has the arena grow instead of a second one."""
    first = arenas.take(MIB)
    arenas.give_back(first)
    assert arenas.take(5 * MIB) is first
    assert first.size >= 5 * MIB


def test_limit_lent():
    """No more arenas, and bytes, are lent at once than may be; then there is none."""
    few = Arenas(most=2, most_bytes=100 * MIB)
    first, second = few.take(0), few.take(0)
    assert few.take(0) is None
    few.drop(first)
    assert few.take(99 * MIB + 1) is None
    third = few.take(50 * MIB)
    few.give_back(second)
    few.give_back(third)
    few.close()


def test_limit_idle(arenas):
    """Beyond a limit, arenas that come back are closed."""
    before = descriptors()
    taken = [arenas.take(MOST_IDLE // 2) for _ in range(3)]
    for each in taken:
        arenas.give_back(each)
    assert descriptors() == before + 2 * 2  # mmap has a descriptor of its own


def test_nothing_is_left(arenas):
    """Arenas have no name, and what is closed is gone."""
    before = descriptors()
    for _ in range(3):
        arenas.drop(arenas.take(MIB))
    assert descriptors() == before


def test_cannot_be_cut():
    """Nobody can make an arena smaller, which would end whoever reads it."""
    arena = Arena(MIB)
    with pytest.raises(PermissionError):
        os.ftruncate(arena.descriptor, 0)
    arena.close()


def test_both_sides(mappings):
    """What one side writes the other one reads, also beyond what there was at first."""
    arena = Arena(0)
    mapping = mappings.of(os.dup(arena.descriptor))
    assert mapping.size == SMALLEST
    frame = encode_answer(Payload(Kind.TENSOR, np.full(3 * MIB, 5, np.uint8)))
    mapping.write(frame, 64)
    arena.follow()
    assert arena.size >= 64 + 3 * MIB
    assert (lent(arena)[64 : 64 + 3 * MIB] == 5).all()
    mappings.release(mapping, keep=True)
    arena.close()


def test_mapping_is_kept(mappings):
    """An arena that comes again has its old mapping, and its descriptor is closed."""
    arena = Arena(MIB)
    first = mappings.of(os.dup(arena.descriptor))
    mappings.release(first, keep=True)
    before = descriptors()
    assert mappings.of(os.dup(arena.descriptor)) is first
    assert descriptors() == before
    mappings.release(first, keep=True)
    arena.close()


def test_mapping_that_is_in_use(mappings):
    """What a request has is never unmapped or shared, whatever else comes."""
    arena = Arena(MIB)
    first = mappings.of(os.dup(arena.descriptor))
    second = mappings.of(os.dup(arena.descriptor))
    assert second is not first
    mappings.close()
    frame = encode_answer(Payload(Kind.TENSOR, np.full(10, 3, np.uint8)))
    for each in (first, second):
        each.write(frame, 0)
        mappings.release(each, keep=False)
    assert len(mappings) == 0
    arena.close()


def test_mappings_are_limited(mappings, monkeypatch):
    """Those that were not used for longest are forgotten when there are too many."""
    monkeypatch.setattr(module, "MOST_MAPPED", 3)
    held = [Arena(0) for _ in range(5)]
    for each in held:
        mappings.release(mappings.of(os.dup(each.descriptor)), keep=True)
    assert len(mappings) == 3
    for each in held:
        each.close()


def test_mappings_that_are_not_used(mappings, monkeypatch):
    """Those that were not used for a minute are forgotten: their owner may be gone."""
    arena = Arena(MIB)
    before = descriptors()
    mappings.release(mappings.of(os.dup(arena.descriptor)), keep=True)
    mappings.tidy()
    assert len(mappings) == 1
    monkeypatch.setattr(module, "UNUSED", 0.0)
    mappings.tidy()
    assert (len(mappings), descriptors()) == (0, before)
    arena.close()


def test_kept_array_outlives_its_mapping(mappings):
    """An array that is left is good when its mapping has been forgotten."""
    arena = Arena(MIB)
    lent(arena)[:] = 9
    mapping = mappings.of(os.dup(arena.descriptor))
    lease = mapping.lend()
    array = np.frombuffer(lease.view, np.uint8)
    lease.end()
    assert not lease.is_over
    mappings.release(mapping, keep=False)
    arena.close()
    gc.collect()
    assert (array == 9).all()
    del array
    assert lease.is_over


def test_no_arena(mappings):
    """A descriptor that is no memory is refused, and closed."""
    before = descriptors()
    reading, writing = os.pipe()
    with pytest.raises((OSError, ValueError)):
        mappings.of(reading)
    os.close(writing)
    assert (descriptors(), len(mappings)) == (before, 0)
