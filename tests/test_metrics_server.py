"""Metrics of real servers: exact over workers and threads, through kills and reloads, and on a port of their own."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from prefork.metrics import Ledger
from prefork.processes import metrics_port
from prefork.processes.metrics_port import MetricsPort
from prefork.settings import Settings
from running import free_port, serving, wait_until
from watched import Watched, of_session, stat, until

BODY = {"data": {"ndarray": [[1.0]]}}
MODEL = """
    class Model:
        def predict(self, X, names=None):
            return X

        def metrics(self):
            return [
                {"key": "hits", "type": "COUNTER", "value": 1},
                {"key": "work", "type": "TIMER", "value": 250, "tags": {"a": "b"}},
            ]
"""


def scrape(client, path="/metrics"):
    """{(name, labels): value} of a page, on a connection of its own."""
    answer = client.get(path, headers={"connection": "close"})
    assert answer.status_code == 200, answer.text
    return {
        (each.name, frozenset(each.labels.items())): each.value
        for family in parse(answer.text)
        for each in family.samples
    }


def total(page, name, **labels):
    """The sum of the samples of that name with these labels."""
    return sum(value for (each, found), value in page.items() if each == name and labels.items() <= set(found))


def ask(client, times):
    """Ask so often, on connections of their own."""
    for _ in range(times):
        assert client.post("/predict", json=BODY, headers={"connection": "close"}).status_code == 200


@pytest.mark.parametrize("flags", [("--worker-class", "asgi"), ("--worker-class", "gthread", "--threads", "8")])
def test_counts_are_exact_over_threads_and_workers(tmp_path, flags):
    """Eight clients at four workers: the server's counts and the class's are the number of requests, to the last one."""
    with serving(tmp_path, MODEL, "--workers", "4", *flags) as server:

        def client_of_150():
            with server.client() as client:
                for number in range(150):
                    close = {"connection": "close"} if number % 10 == 0 else {}
                    assert client.post("/predict", json=BODY, headers=close).status_code == 200

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(client_of_150) for _ in range(8)]:
                done.result()
        with server.client() as client:
            # A worker counts a request when it has sent the answer.
            wait_until(lambda: total(scrape(client), "prefork_requests_total", endpoint="/predict") == 1200, "1200")
            page = scrape(client)
    assert total(page, "hits_total", method="predict") == 1200
    assert total(page, "work_count", a="b") == 1200
    assert total(page, "work_sum", a="b") == 300.0
    assert total(page, "prefork_stage_duration_seconds_count", stage="predict") == 1200
    assert total(page, "prefork_model_workers", state="READY") == 4
    assert total(page, "prefork_requests_in_flight") == 1


def test_a_killed_workers_counts_stay(tmp_path):
    """kill -9 of a worker loses no count, adds no series, and is counted itself; the page needs no worker of before."""
    with serving(tmp_path, MODEL, "--workers", "2") as server, server.client() as client:
        wait_until(lambda: total(scrape(client), "prefork_model_workers", state="READY") == 2, "two workers")
        ask(client, 20)
        wait_until(lambda: total(page_of(client), "hits_total") == 20, "all counts")
        before = page_of(client)
        os.kill(children_of(server)[0], signal.SIGKILL)
        with server.client() as other:
            wait_until(lambda: total(page_of(other), "prefork_worker_deaths_total", cause="SIGKILL") == 1, "the burial")
            wait_until(lambda: total(page_of(other), "prefork_model_workers", state="READY") == 2, "a new worker")
            ask(other, 10)
            wait_until(lambda: total(page_of(other), "hits_total") == 30, "all counts")
            after = scrape(other)
    assert total(after, "prefork_requests_total", endpoint="/predict", status="2xx") == 30
    assert set(after) - set(before) == {("prefork_worker_deaths_total", frozenset({("cause", "SIGKILL")}))}
    assert not any("pid" in dict(labels) for _, labels in after)


def children_of(server):
    """The process ids of the server's children."""
    pid = server.process.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def page_of(client):
    """A page; an empty one where the worker was killed that had the connection."""
    try:
        return scrape(client)
    except httpx.TransportError:
        return {}


def test_counters_never_fall_while_workers_are_replaced(tmp_path):
    """Three reloads under load: no counter is ever seen lower than before, and the end is exact, without a new series."""
    port = free_port()
    flags = ("--workers", "2", "--metrics-port", str(port))
    with serving(tmp_path, MODEL, *flags) as server, server.client() as client:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as scraper:
            wait_until(lambda: total(scrape(scraper), "prefork_model_workers", state="READY") == 2, "two workers")
            asked, series = 0, []
            last = {}
            for reload in range(3):
                server.process.send_signal(signal.SIGHUP)

                def is_over(reload=reload):
                    nonlocal asked, last
                    ask(client, 2)
                    asked += 2
                    page = scrape(scraper)
                    counters = {key: value for key, value in page.items() if key[0].endswith(("_total", "_count"))}
                    assert all(counters[key] >= value for key, value in last.items())
                    last = counters
                    done = total(page, "prefork_recycles_total", reason="hup") == 2 * (reload + 1)
                    return done and total(page, "prefork_model_workers", state="READY") == 2

                wait_until(is_over, "the reload")
                wait_until(lambda: len(children_of(server)) == 3, "the old ones to leave")  # two, and the metrics' port
                series.append({key for key in scrape(scraper) if not key[0].startswith("prefork_process")})
            wait_until(lambda: total(scrape(scraper), "prefork_requests_total", status="2xx") == asked, "all counts")
            assert total(scrape(scraper), "hits_total") == asked
    assert series[1] == series[2]


@pytest.mark.parametrize("worker_class", ["sync", "gthread", "gevent"])
def test_the_page_on_every_worker_class(tmp_path, worker_class):
    """Each of gunicorn's worker classes answers /metrics, in both formats."""
    with (
        serving(tmp_path, MODEL, "--workers", "1", "--worker-class", worker_class) as server,
        server.client() as client,
    ):
        ask(client, 3)
        wait_until(lambda: total(scrape(client), "prefork_requests_total", endpoint="/predict") == 3, "the counts")
        assert total(scrape(client), "hits_total") == 3
        text = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}).text
        assert {"hits", "work", "prefork_requests"} <= {family.name for family in parse_openmetrics(text)}


def test_the_port_of_its_own(tmp_path):
    """The metrics' port has the page at its endpoint and nothing else, also while the only worker computes; it ends with the server."""
    port = free_port()
    source = """
        import pathlib, time
        class Model:
            def predict(self, X, names=None):
                pathlib.Path("entered").touch()
                while not pathlib.Path("leave").exists():
                    time.sleep(0.01)
                return X
    """
    flags = ("--workers", "1", "--worker-class", "sync", "--metrics-port", str(port))
    env = {"PREDICTIVE_UNIT_METRICS_ENDPOINT": "/prometheus"}
    with serving(tmp_path, source, *flags, env=env) as server:
        asker = threading.Thread(target=httpx.post, args=(f"{server.url}/predict",), kwargs={"json": BODY})
        asker.start()
        try:
            wait_until((tmp_path / "entered").exists, "predict")
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
                page = scrape(client, "/prometheus?x=y")
                assert total(page, "prefork_requests_in_flight") == 1
                assert total(page, "prefork_process_resident_bytes", process="arbiter") > 0
                assert client.head("/prometheus").content == b""
                assert client.get("/metrics").status_code == 404
        finally:
            (tmp_path / "leave").touch()
            asker.join()
        assert server.stop() == 0
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_killed_metrics_process_comes_back(tmp_path):
    """The process behind the metrics' port is started again when it dies."""
    port = free_port()
    with serving(tmp_path, MODEL, "--workers", "1", "--metrics-port", str(port)) as server:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            scrape(client)
        line = next(line for line in server.log.splitlines() if "the metrics' port runs" in line)
        os.kill(int(line.rpartition("(pid ")[2].rstrip(")")), signal.SIGKILL)
        wait_until(lambda: server.log.count("the metrics' port runs") == 2, "another process")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert total(scrape(client), "prefork_model_workers", state="READY") == 1


def test_a_busy_metrics_port_is_an_error_before_anything_loads(tmp_path):
    """A port that is taken ends the start with status 1 and one line that says how to choose another one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(tmp_path, MODEL, "--metrics-port", str(port), ready=False) as server:
            assert server.process.wait(60) == 1
            [line] = [line for line in server.log.splitlines() if line.startswith("prefork: ")]
            assert str(port) in line
            assert "--metrics-port" in line
            assert "loaded" not in server.log


def test_a_client_that_leaves_is_counted_as_gone(tmp_path):
    """A request whose client hangs up while the model computes has no status; it is over at once, and in flight no more."""
    source = """
        import pathlib, time
        class Model:
            def predict(self, X, names=None):
                pathlib.Path("entered").touch()
                while not pathlib.Path("leave").exists():
                    time.sleep(0.01)
                return X
    """
    with serving(tmp_path, source, "--workers", "1") as server:
        body = b'{"data":{"ndarray":[[1]]}}'
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            client.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            wait_until((tmp_path / "entered").exists, "predict")
        try:
            with server.client() as client:
                wait_until(lambda: total(scrape(client), "prefork_requests_total", status="gone") == 1, "the count")
                assert total(scrape(client), "prefork_requests_in_flight") == 1  # the scrape
        finally:
            (tmp_path / "leave").touch()


def test_a_second_server_takes_the_port_over(tmp_path):
    """After USR2 the new arbiter has no metrics' port while the old one has it, and takes it when that one has gone."""
    with Watched(tmp_path, workers=1, metrics_port=free_port()) as server:
        server.ready()
        server.send(signal.SIGUSR2)
        until(lambda: server.log.count("ready at") == 2)
        until(lambda: "the metrics' port (pid" in server.log, "the new one to try")
        assert server.stop() == 0
        tries = server.log.count("the metrics' port runs")
        [heir] = until(lambda: [pid for pid in of_session(server.pid) if stat(pid)[0] not in of_session(server.pid)])
        until(lambda: server.log.count("the metrics' port runs") > tries)
        with httpx.Client(base_url=f"http://127.0.0.1:{server.settings['metrics_port']}") as client:
            until(lambda: page_of(client))
            assert total(scrape(client), "prefork_process_resident_bytes", process="arbiter") > 0
        os.kill(heir, signal.SIGTERM)
        server.assert_nothing_left()


@pytest.mark.parametrize(
    ("bind", "host"),
    [
        ("0.0.0.0:9000", "0.0.0.0"),
        ("[::1]:9000", "::1"),
        ("localhost:80,127.0.0.1:81", "localhost"),
        ("unix:/run/prefork.sock", "127.0.0.1"),
    ],
)
def test_the_host_of_the_metrics_port(bind, host):
    """The metrics' port is on the host that the server is bound to, on the loopback beside a Unix socket."""
    assert metrics_port._host(Settings(bind=bind)) == host


def test_the_port_on_an_ipv6_address():
    """An IPv6 host is listened on as such."""
    port = MetricsPort(Ledger(), Settings(bind="[::1]:9000", metrics_port=free_port()))
    port.open()
    serving_it = threading.Thread(target=port.serve, daemon=True)
    serving_it.start()
    assert httpx.get(f"http://[::1]:{port._settings.metrics_port}/metrics").status_code == 200
    port._server.shutdown()
    serving_it.join()
    port.close()
