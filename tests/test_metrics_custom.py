"""The class's own metrics: Seldon's names, labels and buckets, exact under threads."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from prefork.errors import BadMetric
from prefork.metrics import Ledger, Meter
from prefork.metrics.families import ERRORS
from prefork.metrics.ledger import SINK
from prefork.metrics.series import own
from prefork.settings import Settings

SELDON = Settings(
    deployment="iris-deployment",
    unit_id="classifier",
    unit_image="registry:5000/iris:1.2",
    predictor="default",
    predictor_version="v3",
)
LABELS = {
    "deployment_name": "iris-deployment",
    "seldon_deployment_name": "iris-deployment",
    "model_name": "classifier",
    "model_image": "registry:5000/iris",
    "image_name": "registry:5000/iris",
    "model_version": "1.2",
    "image_version": "1.2",
    "predictor_name": "default",
    "predictor_version": "v3",
    "method": "predict",
}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def meter(ledger=None, settings=SELDON, **more):
    return Meter((ledger or Ledger(**more)).take(), settings, "Iris", "1")


def samples(of, name):
    """The samples of that name, as (labels, value)."""
    text = of.page("")[1].decode()
    return [(each.labels, each.value) for family in parse(text) for each in family.samples if each.name == name]


def test_a_counter_adds_to_its_total_with_seldons_labels():
    """COUNTER `hits` is `hits_total`, with every label that Seldon's dashboards select by."""
    found = meter()
    for _ in range(3):
        found.custom.record([{"key": "hits", "type": "COUNTER", "value": 2}], "predict")
    assert samples(found, "hits_total") == [(LABELS, 6.0)]


def test_what_was_not_said_is_not_implemented():
    """Labels for which Seldon's variables say nothing are NOT_IMPLEMENTED, as on the peer."""
    found = meter(settings=Settings())
    found.custom.record([{"key": "hits", "type": "COUNTER", "value": 1}], "router")
    [(labels, _)] = samples(found, "hits_total")
    assert set(labels) == set(LABELS)
    assert set(labels.values()) == {"NOT_IMPLEMENTED", "router"}


def test_tags_are_labels():
    """Tags become labels, whatever characters are in their names and values; each set of tags is a series."""
    found = meter()
    tags = {"class": 'a "quoted"\nvalue\\', "1st-tag": "x", "le": "mine", "number": 5}
    found.custom.record([{"key": "hits", "type": "COUNTER", "value": 1, "tags": tags}], "predict")
    found.custom.record([{"key": "hits", "type": "COUNTER", "value": 1}], "predict")
    more = {"class": 'a "quoted"\nvalue\\', "_1st_tag": "x", "exported_le": "mine", "number": "5"}
    assert samples(found, "hits_total") == [({**LABELS, **more}, 1.0), (LABELS, 1.0)]


def test_a_gauge_has_the_last_value_of_any_worker():
    """GAUGE has the value that was set last, by whichever worker, also when that worker has gone."""
    ledger = Ledger()
    first, second = meter(ledger), meter(ledger)
    for one, value in ((first, 1.0), (second, 2.0), (first, 3.5)):
        one.custom.record([{"key": "drift", "type": "GAUGE", "value": value}], "predict")
    assert samples(second, "drift") == [(LABELS, 3.5)]
    ledger.accounts[1].free()
    assert samples(second, "drift") == [(LABELS, 3.5)]


def test_a_timer_has_seldons_buckets():
    """TIMER, in milliseconds, is a histogram in seconds of 50 bounds from 0.001 to 30 evenly spaced in their logarithm."""
    found = meter()
    for milliseconds in (0.5, 12, 29_999.5, 60_000):
        found.custom.record([{"key": "work", "type": "TIMER", "value": milliseconds}], "predict")
    buckets = samples(found, "work_bucket")
    bounds = [labels["le"] for labels, _ in buckets]
    assert len(bounds) == 51
    assert (bounds[0], bounds[49], bounds[50]) == ("0.001", "29.999999999999996", "+Inf")
    ratios = [float(b) / float(a) for a, b in pairwise(bounds[:50])]
    assert max(ratios) - min(ratios) < 1e-9
    counts = {labels["le"]: value for labels, value in buckets}
    assert (counts["0.001"], counts["29.999999999999996"], counts["+Inf"]) == (1, 3, 4)
    assert samples(found, "work_count") == [(LABELS, 4.0)]
    [(_, total)] = samples(found, "work_sum")
    assert total == pytest.approx(90.012)


def test_feedback_is_counted_by_seldons_rule():
    """Each feedback with a reward counts, its reward is added, also a negative one; a reward of 0 is not counted at all."""
    found = meter()
    for reward in (1.0, 0.0, 0.5, -0.25):
        found.custom.feedback(reward)
    labels = {**LABELS, "method": "feedback"}
    assert samples(found, "seldon_api_model_feedback_total") == [(labels, 3.0)]
    assert samples(found, "seldon_api_model_feedback_reward_total") == [(labels, 1.25)]


def test_feedback_is_not_counted_where_the_executor_is_off():
    """SELDON_EXECUTOR_ENABLED=false turns the counters of feedback off."""
    found = meter(settings=Settings(count_feedback=False))
    found.custom.feedback(1.0)
    assert samples(found, "seldon_api_model_feedback_total") == []


def test_threads_and_workers_count_exactly():
    """Eight threads in each of four accounts, each adding one 500 times to a counter and a timer: 16,000 of both."""
    ledger = Ledger()
    meters = [meter(ledger) for _ in range(4)]
    metrics = [{"key": "hits", "type": "COUNTER", "value": 1}, {"key": "work", "type": "TIMER", "value": 1000}]
    start = threading.Barrier(32)

    def add(found):
        start.wait()
        for _ in range(500):
            found.custom.record(metrics, "predict")

    threads = [threading.Thread(target=add, args=(found,)) for found in meters for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert samples(meters[0], "hits_total") == [(LABELS, 16_000.0)]
    assert samples(meters[0], "work_count") == [(LABELS, 16_000.0)]
    assert samples(meters[0], "work_sum") == [(LABELS, 16_000.0)]


def test_worker_id_is_the_number_of_the_place():
    """Where it is asked for, each worker has series of its own, told apart by its place, which its successor takes over."""
    ledger = Ledger()
    settings = Settings(metrics_worker_id=True)
    for _ in range(2):
        meter(ledger, settings).custom.record([{"key": "hits", "type": "COUNTER", "value": 1}], "predict")
    ledger.accounts[1].free()
    successor = meter(ledger, settings)
    successor.custom.record([{"key": "hits", "type": "COUNTER", "value": 1}], "predict")
    assert [(labels["worker_id"], value) for labels, value in samples(successor, "hits_total")] == [("1", 2), ("2", 1)]


def test_series_beyond_the_room_are_counted_as_dropped():
    """A class that makes up tags without end fills its account; what is dropped is counted and what was there stays right."""
    found = meter(words=1536)
    for number in range(200):
        metric = {"key": "hits", "type": "COUNTER", "value": 1, "tags": {"user": str(number)}}
        found.custom.record([metric, {"key": "all", "type": "COUNTER", "value": 1}], "predict")
    kept = samples(found, "hits_total")
    [(_, dropped)] = samples(found, "prefork_metrics_dropped_total")
    assert 10 < len(kept) < 190
    assert len(kept) + dropped == 200
    assert samples(found, "all_total") == [(LABELS, 200.0)]


def test_a_class_cannot_crowd_the_server_out():
    """When the class has filled its room there is still some for a series of the server's own."""
    ledger = Ledger(words=2048)
    account = ledger.take()
    found = Meter(account, SELDON, "Iris", "1")
    for number in range(300):
        found.custom.record([{"key": f"hits{number}", "type": "COUNTER", "value": 1}], "predict")
    assert samples(found, "prefork_metrics_dropped_total")[0][1] > 0
    assert own(account, ERRORS, "BadRequest") != SINK


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_finite_number_does_not_spoil_a_counter(value):
    """A counter that is given NaN or an infinity keeps its sum; the update is counted as dropped."""
    found = meter()
    for each in (1.0, value, 2.0):
        found.custom.record([{"key": "hits", "type": "COUNTER", "value": each}], "predict")
    assert samples(found, "hits_total") == [(LABELS, 3.0)]
    assert samples(found, "prefork_metrics_dropped_total") == [({}, 1.0)]


def test_numbers_of_numpy_are_numbers():
    """A value may be any scalar of numpy's."""
    found = meter()
    found.custom.record([{"key": "hits", "type": "COUNTER", "value": np.float32(1.5)}], "predict")
    found.custom.record([{"key": "hits", "type": "COUNTER", "value": np.int64(2)}], "predict")
    assert samples(found, "hits_total") == [(LABELS, 3.5)]


@pytest.mark.parametrize("value", [1j, np.array([1.0, 2.0]), 10**400])
def test_a_value_that_is_no_number_is_refused(value):
    """What has no value as one float is a BadMetric that names the metric."""
    with pytest.raises(BadMetric, match="'hits'"):
        meter().custom.record([{"key": "hits", "type": "COUNTER", "value": value}], "predict")


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_odd_metrics_leave_the_page_readable(accept):
    """Names of several kinds, negative counters and timers, gauges of NaN and names of any characters: both formats parse."""
    found = meter()
    odd = [
        {"key": "x", "type": "COUNTER", "value": -1},
        {"key": "x", "type": "GAUGE", "value": 1},
        {"key": "x", "type": "TIMER", "value": -5},
        {"key": "y_total", "type": "COUNTER", "value": 1},
        {"key": "not a name!", "type": "GAUGE", "value": float("nan")},
        {"key": "0", "type": "TIMER", "value": float("inf")},
        {"key": "", "type": "GAUGE", "value": 1e300},
        {"key": "prefork_requests_in_flight", "type": "GAUGE", "value": 77},
        {"key": "half\ud800", "type": "GAUGE", "value": 1, "tags": {"a b": "\udfff", "c": ["unhashable"]}},
    ]
    found.custom.record(odd, "predict")
    text = found.page(accept)[1].decode()
    families = {family.name: family for family in (parse_openmetrics if accept else parse)(text)}
    assert families["y"].samples[0].value == 1
    assert families["_0"].type == "histogram"
    assert families["prefork_requests_in_flight"].samples[0].value == 0
    assert ("not_a_name_" in families, "half_" in families) == (True, True)
    names = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
