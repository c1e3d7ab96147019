"""The ledger: counts in shared memory that outlive their processes, whichever way those end."""

from __future__ import annotations

import gc
import os
import signal
import threading
from pathlib import Path

from prefork.metrics.families import DEATHS, IN_FLIGHT, REQUESTS
from prefork.metrics.ledger import SINK, Ledger
from prefork.metrics.page import page
from prefork.metrics.series import own

SAMPLE = ("/predict", "seldon", "2xx")


def value(ledger, name, **labels):
    """The value of a sample on the page, None where it is not there."""
    wanted = sorted(f'{label}="{value}"' for label, value in labels.items())
    for line in page(ledger, {})[1].decode().splitlines():
        head, _, found = line.rpartition(" ")
        if (
            head.partition("{")[0] == name
            and sorted(filter(None, head.partition("{")[2].rstrip("}").split(","))) == wanted
        ):
            return float(found)
    return None


def requests(ledger):
    return value(ledger, "prefork_requests_total", **dict(zip(REQUESTS.labels, SAMPLE, strict=True)))


def in_child(work):
    """Run `work` in a forked child and wait for its end; its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


def worker(account, times=1):
    """What a worker does: begin, count, be the owner."""
    account.begin()
    account.owner = os.getpid()
    at = own(account, REQUESTS, *SAMPLE)
    for _ in range(times):
        account.cells[at] += 1


def test_what_several_accounts_count_is_added_up():
    """A counter on the page is the sum of every worker's."""
    ledger = Ledger()
    for count in (1, 20, 300):
        worker(ledger.take(), count)
    assert requests(ledger) == 321


def test_children_count_exactly():
    """Four forked processes that count at the same time lose nothing, each in an account of its own."""
    ledger = Ledger()
    accounts = [ledger.take() for _ in range(4)]
    pids = []
    for account in accounts:
        pid = os.fork()
        if pid == 0:
            worker(account, 5000)
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0, 0]
    assert requests(ledger) == 20_000


def test_a_killed_worker_keeps_its_counts():
    """A process that is killed leaves its counts, and the process that comes after it goes on from there."""
    ledger = Ledger()
    account = ledger.take()

    def be_killed():
        worker(account, 7)
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.WTERMSIG(in_child(be_killed)) == signal.SIGKILL
    assert requests(ledger) == 7
    account.free()
    assert requests(ledger) == 7
    successor = ledger.take()
    assert successor is account
    assert in_child(lambda: worker(successor, 3)) == 0
    assert requests(ledger) == 10


def shared_memory():
    """Bytes of shared anonymous memory that this process has resident."""
    text = Path("/proc/self/smaps").read_text()
    mappings = text.split("VmFlags")
    return sum(int(each.split("Rss:")[1].split()[0]) for each in mappings if "/dev/zero (deleted)" in each)


def test_200_recycles_grow_nothing():
    """200 workers one after the other, every third one killed: the same series, no more memory, and no count lost."""
    gc.collect()  # the ledgers of other tests
    ledger = Ledger.of_server(2)
    seen = []
    for number in range(200):
        account = ledger.take()

        def work(account=account, number=number):
            worker(account, 10)
            if number % 3 == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        in_child(work)
        account.free()
        text = page(ledger, {})[1].decode()
        seen.append((len([line for line in text.splitlines() if "prefork_process" not in line]), shared_memory()))
    assert requests(ledger) == 2000
    assert len(set(seen[1:])) == 1


def test_a_gauge_of_a_worker_that_has_gone_is_not_shown():
    """Gauges tell of live workers only: a killed worker's requests in flight are nobody's."""
    ledger = Ledger()
    busy, idle = ledger.take(), ledger.take()
    for account, count in ((busy, 3.0), (idle, 1.0)):
        account.begin()
        account.cells[own(account, IN_FLIGHT)] = count
        account.owner = os.getpid()
    assert value(ledger, "prefork_requests_in_flight") == 4
    busy.free()
    assert value(ledger, "prefork_requests_in_flight") == 1


def test_a_successor_that_is_not_there_yet_has_no_gauges():
    """Between a worker's end and the moment at which the next one has said its gauges, the account has none."""
    ledger = Ledger()
    account = ledger.take()
    account.begin()
    account.cells[own(account, IN_FLIGHT)] = 3.0
    account.owner = os.getpid()
    account.free()
    ledger.take()
    assert value(ledger, "prefork_requests_in_flight") is None


def test_the_arbiter_has_an_account():
    """What the arbiter counts is on the page as well."""
    ledger = Ledger()
    ledger.root.cells[own(ledger.root, DEATHS, "SIGKILL")] += 1
    assert value(ledger, "prefork_worker_deaths_total", cause="SIGKILL") == 1


def test_a_full_account_takes_no_more_series():
    """A series that there is no room for goes to the sink; what is there stays right, and nothing is overwritten."""
    ledger = Ledger(words=256)
    account = ledger.take()
    account.begin()
    places = [account.cell(b'["COUNTER","c%03d",[]]' % number, 1) for number in range(100)]
    kept = [at for at in places if at != SINK]
    assert 20 < len(kept) < 50
    assert places[len(kept) :] == [SINK] * (100 - len(kept))
    for at in places:
        account.cells[at] += 1
    assert [account.cells[at] for at in kept] == [1.0] * len(kept)
    assert len(list(account.entries())) == len(kept)


def test_a_neighbour_is_not_touched():
    """The last series of a full account ends before the next account begins."""
    ledger = Ledger(words=128)
    first, second = ledger.take(), ledger.take()
    second.begin()
    first.begin()
    while first.cell(b"%d" % len(list(first.entries())), 1) != SINK:
        pass
    assert list(second.entries()) == []


def test_threads_that_add_a_series_at_once_get_one_place():
    """A series that many threads ask for at the same moment exists once."""
    account = Ledger().take()
    account.begin()
    start = threading.Barrier(8)
    found = []

    def look():
        start.wait()
        found.extend(account.cell(b"series %d" % number, 1) for number in range(200))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 200
    assert len(list(account.entries())) == 200


def test_there_is_room_for_twice_the_workers(caplog):
    """There is an account for each worker and its replacement. One more worker still counts, unseen, and the log says so."""
    ledger = Ledger.of_server(100)
    accounts = [ledger.take() for _ in range(200)]
    assert len({account.number for account in accounts}) == 200
    assert caplog.text == ""
    worker(accounts[0], 2)
    worker(ledger.take(), 5)
    assert "room for 200 workers" in caplog.text
    assert requests(ledger) == 2
