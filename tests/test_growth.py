"""How much memory of its own a process has gained."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from prefork.processes import growth
from prefork.processes.growth import Growth, own
from running import SOURCE

MB = 1 << 20


class Slow:
    """A measure that takes some time of a clock that it has itself."""

    def __init__(self, takes=0.0):
        self.now = 0.0
        self.takes = takes
        self.looks = 0
        self.found = 100 * MB

    def clock(self):
        return self.now

    def measure(self, _pid):
        self.looks += 1
        self.now += self.takes
        return self.found

    def growth(self):
        return Growth(1, self.measure, self.clock)


def test_what_is_there_at_first_does_not_count():
    """The first look is where it counts from."""
    slow = Slow()
    grown = slow.growth()
    assert grown.bytes == 0
    slow.found += 7 * MB
    slow.now += 1
    assert grown.bytes == 7 * MB


def test_a_loss_is_no_gain():
    """A process that gives memory back has gained nothing, and what it takes again is no gain either."""
    slow = Slow()
    grown = slow.growth()
    assert grown.bytes == 0
    for found, gain in ((50, 0), (99, 0), (101, 1)):
        slow.now += 1
        slow.found = found * MB
        assert grown.bytes == gain * MB


def test_it_looks_once_a_second():
    """However often it is asked."""
    slow = Slow()
    grown = slow.growth()
    for _ in range(30):
        slow.now += 0.1
        assert grown.bytes == 0
    assert slow.looks <= 4


def test_a_look_that_takes_long_is_rare():
    """At most a hundredth of the time is spent on looking at one process."""
    slow = Slow(takes=0.2)
    grown = slow.growth()
    while slow.now < 1000:
        slow.now += 0.5
        assert grown.bytes == 0
    assert slow.looks * 0.2 <= 1000 / 100 + 0.2


def test_a_process_that_is_gone_has_gained_what_it_had():
    """Nothing is known of it any more, and nothing is raised."""
    slow = Slow()
    grown = slow.growth()
    slow.found = None
    slow.now += 1
    assert grown.bytes == 0
    assert own(2**22 + 1) is None


FORKED = """
import json, mmap, os, sys
from prefork.processes import growth

MB = 1 << 20

def written(memory):
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    return memory

def anonymous():
    return mmap.mmap(-1, 64 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

def child(work):
    ready, say = os.pipe()
    leave, let = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(let)
        kept = work()
        os.write(say, b".")
        os.read(leave, 1)
        os._exit(0)
    os.close(leave)
    os.read(ready, 1)
    return pid

def read(mapped):
    return [mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE)]

with open("model", "wb") as file:
    file.write(bytes(64 * MB))
with open("model", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
shared, empty = written(anonymous()), anonymous()
works = {
    "idle": lambda: None,
    "reads": lambda: read(shared),
    "copies": lambda: shared[:],
    "writes": lambda: written(shared),
    "fills": lambda: written(empty),
    "maps": lambda: read(mapped),
}
pids = {name: child(work) for name, work in works.items()}
print(json.dumps({name: [growth.own(pid) / MB, growth._unshared(pid) / MB] for name, pid in pids.items()}))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What children of one process own after each has done something with 64 MB: (own, the poorer measure), in MB."""
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(
        command,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        cwd=tmp_path_factory.mktemp("map"),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_pages_that_are_shared_since_the_fork_do_not_count(measured):
    """A child that reads what its parent has built owns none of it; one that writes to it owns what it has written."""
    idle = measured["idle"][0]
    assert measured["reads"][0] - idle < 20
    assert measured["copies"][0] - idle > 60
    assert measured["writes"][0] - idle > 60


def test_a_file_that_is_mapped_read_only_does_not_count(measured):
    """What can be read again from its file is not what a replacement would free."""
    assert measured["maps"][0] - measured["idle"][0] < 20


def test_where_nobody_may_look_what_everybody_may_know_is_good_enough(measured):
    """Without the right to look into another user's process its resident memory without files is taken."""
    assert measured["fills"][1] - measured["idle"][1] > 60
    assert growth._unshared(2**22 + 1) is None
