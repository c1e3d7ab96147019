"""/metrics over both fronts: what is recorded of a request, and that Prometheus's own parsers read the page."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from prefork.compat.user_model import SeldonResponse
from prefork.metrics.families import FAMILIES, LATENCIES, table
from prefork.model.custom_metrics import create_counter, create_timer
from prefork.testing import Client

BODY = {"data": {"ndarray": [[1.0, 2.0]]}}
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
DOCS = Path(__file__).parents[1] / "docs" / "metrics.md"


class Echo:
    def predict(self, X, names=None):
        return X


class Counting:
    def predict(self, X, names=None):
        if X[0, 0] < 0:
            raise RuntimeError("negative")
        return SeldonResponse(X, metrics=[create_timer("work", 250)])

    def metrics(self):
        return [create_counter("hits", 1, {"tag": "a"})]

    def transform_input(self, X, names=None):
        return X

    def send_feedback(self, features, names, reward, truth, routing=None):
        return None


def samples(client, name, **labels):
    """What the samples of that name say, those that have these labels, in the order of the page."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    found = [each for family in parse(answer.text) for each in family.samples if each.name == name]
    return [each.value for each in found if labels.items() <= each.labels.items()]


def test_requests_are_counted_by_path_protocol_and_status(front):
    """Each request counts under its route's path, not its own, with its protocol and the class of its status."""
    with Client(Echo, front) as client:
        for _ in range(3):
            client.post("/predict", json=BODY)
        client.post("/predict", content=b"{")
        client.get("/v2/models/Echo")
        client.get("/v2/models/Nobody")
        client.get("/no/such/path")
        client.get("/no/such/other/path")
        count = "prefork_requests_total"
        assert samples(client, count, endpoint="/predict", protocol="seldon", status="2xx") == [3]
        assert samples(client, count, endpoint="/predict", protocol="seldon", status="4xx") == [1]
        assert samples(client, count, endpoint="/v2/models/{model}", protocol="v2", status="2xx") == [1]
        assert samples(client, count, endpoint="/v2/models/{model}", protocol="v2", status="4xx") == [1]
        assert samples(client, count, endpoint="other", protocol="other", status="4xx") == [2]
        assert samples(client, "prefork_request_duration_seconds_count", endpoint="/predict") == [4]


def test_errors_are_counted_by_kind(front):
    """An error counts as what it is, whichever path it was told on."""

    class Broken:
        def predict(self, X, names=None):
            raise [RuntimeError("mine"), OwnError("mine")][int(X[0, 0])]

    class OwnError(Exception):
        status_code = 418
        reason = "TEAPOT"

    with Client(Broken, front) as client:
        for number in (0, 0, 1):
            client.post("/predict", json={"data": {"ndarray": [[number]]}})
        client.post("/predict", content=b"{", headers={"content-type": "application/json"})
        client.get("/nowhere")
        errors = {kind: samples(client, "prefork_errors_total", kind=kind) for kind in ("ModelFailed", "Custom")}
        assert errors == {"ModelFailed": [2], "Custom": [1]}
        assert samples(client, "prefork_errors_total", kind="BadRequest") == [1]
        assert samples(client, "prefork_errors_total", kind="NotFound") == [1]


@pytest.mark.parametrize("threads", [0, 1])
def test_stages_have_their_times(front, threads):
    """Every request to the model is in each stage once, and the time of `predict` is in `predict` and in the total."""

    class Slow:
        def predict(self, X, names=None):
            end = time.perf_counter() + 0.02
            while time.perf_counter() < end:
                pass
            return X

    with Client(Slow, front, threads=threads) as client:
        for _ in range(2):
            client.post("/predict", json=BODY)
        client.get("/metadata")
        for stage in ("read", "queue", "decode", "predict", "encode"):
            assert samples(client, "prefork_stage_duration_seconds_count", stage=stage) == [2]
        [predict] = samples(client, "prefork_stage_duration_seconds_sum", stage="predict")
        [total] = samples(client, "prefork_request_duration_seconds_sum", endpoint="/predict")
        stages = sum(samples(client, "prefork_stage_duration_seconds_sum"))
        assert 0.04 <= predict <= stages <= total
        assert samples(client, "prefork_stage_duration_seconds_bucket", stage="predict", le="0.01") == [0]


def test_a_failed_stage_is_not_counted(front):
    """A request whose predict raised has been read and decoded, and neither predicted nor encoded."""
    with Client(Counting, front) as client:
        client.post("/predict", json={"data": {"ndarray": [[-1.0]]}})
        stages = ("read", "queue", "decode", "predict", "encode")
        counts = [samples(client, "prefork_stage_duration_seconds_count", stage=stage) for stage in stages]
        assert counts == [[1], [1], [1], [0], [0]]


def test_requests_in_flight_and_waiting():
    """While the one model thread computes, one request is in flight and every other one waits for it."""
    release, entered = threading.Event(), threading.Event()

    class Held:
        def predict(self, X, names=None):
            entered.set()
            release.wait(30)
            return X

    with Client(Held, "asgi") as client:
        askers = [threading.Thread(target=client.post, args=("/predict",), kwargs={"json": BODY}) for _ in range(3)]
        for asker in askers:
            asker.start()
        try:
            assert entered.wait(30)
            end = time.monotonic() + 30
            while samples(client, "prefork_queue_depth") != [2]:
                assert time.monotonic() < end
            assert samples(client, "prefork_requests_in_flight") == [4]  # the scrape is one
        finally:
            release.set()
        for asker in askers:
            asker.join()
        assert samples(client, "prefork_queue_depth") == [0]
        assert samples(client, "prefork_requests_in_flight") == [1]


def test_the_model_says_its_state(front):
    """A loaded model is READY, and its load() is timed."""

    class Slow(Echo):
        def load(self):
            time.sleep(0.02)

    with Client(Slow, front, version="7") as client:
        labels = {"model": "Slow", "version": "7"}
        assert samples(client, "prefork_model_workers", state="READY", **labels) == [1]
        assert samples(client, "prefork_model_workers", state="LOADING", **labels) == [0]
        [seconds] = samples(client, "prefork_model_load_seconds", **labels)
        assert 0.02 <= seconds < 10
        [resident] = samples(client, "prefork_process_resident_bytes", process="worker-1")
        [proportional] = samples(client, "prefork_process_proportional_bytes", process="worker-1")
        assert 1 << 20 < proportional <= resident
        assert samples(client, "prefork_build_info") == [1]


def test_the_classs_own_metrics(front):
    """What metrics() and a SeldonResponse give is on the page with Seldon's labels, and adds up over requests."""
    with Client(Counting, front, unit_id="node", unit_image="iris:2") as client:
        for _ in range(3):
            client.post("/predict", json=BODY)
        client.post("/transform-input", json=BODY)
        labels = {"model_name": "node", "model_image": "iris", "model_version": "2", "tag": "a"}
        assert samples(client, "hits_total", method="predict", **labels) == [3]
        assert samples(client, "hits_total", method="inputtransform", **labels) == [1]
        assert samples(client, "work_sum", method="predict", model_name="node") == [0.75]


def test_the_classs_metrics_on_every_protocol(front):
    """V2 and V1 have no place for metrics in an answer; they are recorded all the same."""
    with Client(Counting, front) as client:
        inputs = [{"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [1.0]}]
        assert client.post("/v2/models/Counting/infer", json={"inputs": inputs}).status_code == 200
        assert client.post("/v1/models/Counting:predict", json={"instances": [[1.0]]}).status_code == 200
        assert samples(client, "hits_total") == [2]


def test_the_classs_metrics_are_recorded_when_hidden_and_when_encoding_fails(front):
    """Neither an answer that cannot be encoded nor INCLUDE_METRICS_IN_CLIENT_RESPONSE=false loses a count."""

    class Odd(Counting):
        def predict(self, X, names=None):
            return {"x": object()} if X[0, 0] else X

    with Client(Odd, front, include_metrics=False) as client:
        shown = client.post("/predict", json={"data": {"ndarray": [[0]]}})
        assert "metrics" not in shown.json()["meta"]
        assert client.post("/predict", json={"data": {"ndarray": [[1]]}}).status_code == 500
        assert samples(client, "hits_total") == [2]


def test_the_classs_metrics_are_not_recorded_when_it_raises(front):
    """A call that raises records nothing of the class's."""
    with Client(Counting, front) as client:
        assert client.post("/predict", json={"data": {"ndarray": [[-1]]}}).status_code == 500
        assert samples(client, "hits_total") == []


def test_a_raw_answers_metrics_are_recorded(front):
    """What a raw hook puts into meta.metrics counts, and the answer goes out as it is."""

    class Raw:
        def predict_raw(self, msg):
            return {"strData": "x", "meta": {"metrics": [{"key": "raw", "type": "COUNTER", "value": 2}]}}

    with Client(Raw, front) as client:
        answer = client.post("/predict", json=BODY)
        assert answer.json()["meta"]["metrics"] == [{"key": "raw", "type": "COUNTER", "value": 2}]
        assert samples(client, "raw_total", method="predict") == [2]


def test_metrics_that_came_with_the_request_are_not_recorded(front):
    """A request's own meta.metrics travel on to the answer; they were counted where they were made."""
    with Client(Echo, front) as client:
        body = {**BODY, "meta": {"metrics": [{"key": "before", "type": "COUNTER", "value": 1}]}}
        assert client.post("/predict", json=body).json()["meta"]["metrics"]
        assert samples(client, "before_total") == []


def test_feedback_counts_its_rewards(front):
    """Rewards are added up; a reward of 0 does not count; the hook is called all the same."""
    with Client(Counting, front) as client:
        for reward in (1, 0, 0.5):
            body = {"request": BODY, "reward": reward, "truth": BODY}
            assert client.post("/send-feedback", json=body).status_code == 200
        assert samples(client, "seldon_api_model_feedback_total", method="feedback") == [2]
        assert samples(client, "seldon_api_model_feedback_reward_total", method="feedback") == [1.5]


def test_parts_of_a_stream_record_their_metrics(front):
    """Each part of a stream carries its own metrics; the stream is one request."""

    class Stream:
        def predict(self, X, names=None):
            for _ in range(3):
                yield SeldonResponse(X, metrics=[create_counter("parts", 1)])

    with Client(Stream, front) as client:
        answer = client.post("/v2/models/Stream/generate_stream", json={"text_input": "x"})
        assert answer.text.count("data:") == 3
        assert samples(client, "parts_total") == [3]
        [count] = samples(client, "prefork_requests_total", endpoint="/v2/models/{model}/generate_stream", status="2xx")
        assert count == 1
        assert samples(client, "prefork_stage_duration_seconds_count", stage="predict") == [1]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/html,*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=nonsense", "text/plain; version=0.0.4; charset=utf-8"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ],
)
def test_both_formats_parse(front, accept, content_type):
    """The scraper gets the format that it accepts, and prometheus_client's parser of that format reads every family."""
    with Client(Counting, front) as client:
        client.post("/predict", json=BODY)
        client.post("/predict", content=b"{")
        answer = client.get("/metrics", headers={"accept": accept})
        assert answer.headers["content-type"].startswith(content_type)
        is_open = content_type.startswith("application")
        names = {family.name for family in (parse_openmetrics if is_open else parse)(answer.text)}
        of_others = {"prefork_recycles", "prefork_worker_deaths", "prefork_failed_replacements"} | OF_BATCHES
        assert names == {*FAMILIES, "hits", "work"} - of_others
        assert {"# EOF"} & set(answer.text.splitlines()) == ({"# EOF"} if is_open else set())


def test_head_has_the_head_only(front):
    """HEAD /metrics is GET without the body."""
    with Client(Echo, front) as client:
        answer = client.head("/metrics")
        assert (answer.status_code, answer.content) == (200, b"")


def test_every_histogram_is_consistent(front):
    """Buckets never fall, the last one is the count, and the bounds are those of the server."""
    with Client(Counting, front) as client:
        for _ in range(5):
            client.post("/predict", json=BODY)
        text = client.get("/metrics").text
    for family in parse(text):
        if family.type != "histogram" or not family.name.startswith("prefork"):
            continue
        series = {}
        for each in family.samples:
            labels = tuple(sorted((name, value) for name, value in each.labels.items() if name != "le"))
            series.setdefault(labels, []).append(each)
        for found in series.values():
            buckets = [each for each in found if each.name.endswith("_bucket")]
            assert [float(each.labels["le"]) for each in buckets] == [*LATENCIES, float("inf")]
            counts = [each.value for each in buckets]
            assert counts == sorted(counts)
            assert counts[-1] == next(each.value for each in found if each.name.endswith("_count"))


def test_the_table_in_the_documentation_is_current():
    """docs/metrics.md has the table that the code gives; `python -m prefork.metrics` prints it anew."""
    text = DOCS.read_text()
    assert text.partition("<!-- table -->\n")[2].partition("<!-- end of table -->")[0] == table()


def test_every_metric_has_a_good_name():
    """Names begin with `prefork_`, a counter's does not say `_total`, and times and sizes say their unit."""
    for family in FAMILIES.values():
        assert family.name.startswith("prefork_")
        assert not family.name.endswith("_total")
        assert family.kind != "histogram" or family.name.endswith(("_seconds", "_rows"))
        assert family.text.endswith(".")


OF_BATCHES = {
    "prefork_model_requests",
    "prefork_model_rows",
    "prefork_model_executions",
    "prefork_model_request_seconds",
    "prefork_model_batch_rows",
}
"""What is counted only of a model that batches or has processes of its own."""

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def exemplars_of(client):
    """Those of the requests' durations on the OpenMetrics page: the bucket's bound, and the exemplar."""
    text = client.get("/metrics", headers={"accept": OPENMETRICS}).text
    families = {family.name: family for family in parse_openmetrics(text)}
    found = families["prefork_request_duration_seconds"].samples
    return [(float(each.labels["le"]), each.exemplar) for each in found if each.exemplar]


def test_an_exemplar_has_the_trace_of_the_newest_request(front):
    """Under `tracing` the bucket of a request's duration names its trace, the duration and when it was; one newer replaces it."""
    with Client(Echo, front, tracing=True) as client:
        for trace in ("a" * 32, TRACE):
            client.post("/predict", json=BODY, headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
        found = exemplars_of(client)
        assert TRACE in {exemplar.labels["trace_id"] for _, exemplar in found}
        for bound, exemplar in found:
            assert 0 < exemplar.value <= bound
            assert abs(float(exemplar.timestamp) - time.time()) < 60


@pytest.mark.parametrize("header", ["", "00-abc-00f067aa0ba902b7-01", f"00-{'0' * 32}-00f067aa0ba902b7-01", TRACE])
def test_a_header_that_is_no_traceparent_is_no_exemplar(front, header):
    """What is malformed, and the trace of zeros, which is invalid, are passed over."""
    with Client(Echo, front, tracing=True) as client:
        assert client.post("/predict", json=BODY, headers={"traceparent": header}).status_code == 200
        assert exemplars_of(client) == []


def test_there_are_no_exemplars_unless_asked_for(front):
    """Without `tracing` the header is not looked at, and the classic format has none in any case."""
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    with Client(Echo, front) as client:
        client.post("/predict", json=BODY, headers=headers)
        assert exemplars_of(client) == []
    with Client(Echo, front, tracing=True) as client:
        client.post("/predict", json=BODY, headers=headers)
        assert TRACE not in client.get("/metrics").text
