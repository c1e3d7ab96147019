"""Every metric of the server itself: its name, kind, labels and meaning, for the page and for docs/metrics.md.

Names are Prometheus's, without the `_total` of counters. Times are seconds, sizes are bytes. The class's own metrics are
not here: their names are the class's.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]
Mode = Literal["sum", "max", "last"]

LATENCIES = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
STAGES = ("read", "queue", "decode", "predict", "encode")


class Family(msgspec.Struct, frozen=True):
    """Series that differ only in their labels.

    mode: what a gauge says of several workers: the `sum` or the `max` of the live ones, or the `last` value that any has set.
    buckets: a histogram's upper bounds, without the infinite one. numbers: how many a series has that is not on the page.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    mode: Mode = "sum"
    buckets: tuple[float, ...] = ()
    numbers: int = 0

    @property
    def width(self) -> int:
        """How many numbers a series has.

        A counter has one, a gauge whose mode is `last` has its value and the time at which it was set, a histogram has one
        for each bucket, the infinite one among them, and the sum.
        """
        if self.numbers:
            return self.numbers
        if self.kind == "histogram":
            return len(self.buckets) + 2
        return 2 if self.kind == "gauge" and self.mode == "last" else 1


REQUESTS = Family(
    "prefork_requests",
    "counter",
    "Requests answered, by the route's path, its protocol and the class of the status: `2xx` to `5xx`, or `gone` where the client was.",
    ("endpoint", "protocol", "status"),
)
DURATION = Family(
    "prefork_request_duration_seconds",
    "histogram",
    "From the head of a request to the end of its answer.",
    ("endpoint",),
    buckets=LATENCIES,
)
STAGE = Family(
    "prefork_stage_duration_seconds",
    "histogram",
    "Of requests to the model: `read` the body, `queue` for a model thread, `decode`, `predict`, `encode`. A stage that "
    "failed is not in it. Of a stream `predict` is the time to its first part.",
    ("stage",),
    buckets=LATENCIES,
)
IN_FLIGHT = Family("prefork_requests_in_flight", "gauge", "Requests that are being read, computed or answered.")
WAITING = Family("prefork_queue_depth", "gauge", "Requests that wait for a model thread.")
ERRORS = Family(
    "prefork_errors",
    "counter",
    "Errors told to clients, by kind: `BadRequest`, `ModelFailed` and so on; `Custom` for an exception of the class's that "
    "says its own status, `Internal` for a fault of the server.",
    ("kind",),
)
MODELS = Family(
    "prefork_model_workers",
    "gauge",
    "Workers in which the model is in that state: `LOADING` or `READY`.",
    ("model", "version", "state"),
)
LOAD = Family(
    "prefork_model_load_seconds",
    "gauge",
    "How long `load()` took in the worker where it took longest.",
    ("model", "version"),
    "max",
)
MODEL_REQUESTS = Family(
    "prefork_model_requests",
    "counter",
    "Requests to a model that batches or has processes of its own, by their outcome: `success` or `failure`.",
    ("model", "version", "outcome"),
)
MODEL_ROWS = Family("prefork_model_rows", "counter", "Rows of those requests that were computed.", ("model", "version"))
MODEL_EXECUTIONS = Family(
    "prefork_model_executions", "counter", "Calls of the model for them; one may be for many.", ("model", "version")
)
MODEL_SECONDS = Family(
    "prefork_model_request_seconds",
    "counter",
    "Time of those requests, by stage: `queue` until the model was free, `compute`, for each as long as its whole batch took.",
    ("model", "version", "stage"),
)
BATCH_ROWS = Family(
    "prefork_model_batch_rows",
    "histogram",
    "Rows in one call of such a model.",
    ("model", "version"),
    buckets=BATCHES,
)
EXECUTED = Family(
    "executed",
    "counter",
    "Calls of a model with so many rows: their number, their rows and their nanoseconds. For V2's statistics, as are the next two.",
    ("model", "version", "batch"),
    numbers=3,
)
FAILED_REQUESTS = Family(
    "failed", "counter", "Requests that a model did not answer, and their nanoseconds.", ("model", "version"), numbers=2
)
RECENT = Family(
    "recent", "gauge", "When a model was last asked, in Unix milliseconds.", ("model", "version"), numbers=1
)
RECYCLES = Family(
    "prefork_recycles",
    "counter",
    "Workers that were told to go, by the reason: `hup`, `code` (changed), `max_requests`, `max_worker_memory`, "
    "`max_worker_age`, `operator`, `stuck`, `surplus`.",
    ("reason",),
)
FAILED = Family(
    "prefork_failed_replacements",
    "counter",
    "Workers that could not load the model while the server went on. `/ready` says why the last one could not.",
)
DEATHS = Family(
    "prefork_worker_deaths",
    "counter",
    "Workers that ended without being told to, by the signal, or `exit`.",
    ("cause",),
)
DROPPED = Family(
    "prefork_metrics_dropped",
    "counter",
    "Updates that were not recorded: there is no room for another series, or the value is no finite number.",
)
RESIDENT = Family(
    "prefork_process_resident_bytes",
    "gauge",
    "Resident memory of a process at this moment: `arbiter`, or `worker-1` and so on, by place and not by pid.",
    ("process",),
)
PROPORTIONAL = Family(
    "prefork_process_proportional_bytes",
    "gauge",
    "The same with each shared page divided among those who share it, so that the processes can be added up.",
    ("process",),
)
INSTANCES = Family(
    "prefork_instances",
    "gauge",
    "Processes at this moment that are a version of a model, ready or not; 0 of them is no line.",
    ("model", "version"),
)
INSTANCES_RESIDENT = Family(
    "prefork_instance_resident_bytes", "gauge", "Resident memory of these processes together.", ("model", "version")
)
INSTANCES_PROPORTIONAL = Family(
    "prefork_instance_proportional_bytes",
    "gauge",
    "The same with each shared page divided among those who share it.",
    ("model", "version"),
)
BUILD = Family(
    "prefork_build_info", "gauge", "Always 1, with the versions of Prefork and Python.", ("version", "python")
)

FAMILIES = {
    each.name: each
    for each in (
        REQUESTS,
        DURATION,
        STAGE,
        IN_FLIGHT,
        WAITING,
        ERRORS,
        MODELS,
        LOAD,
        MODEL_REQUESTS,
        MODEL_ROWS,
        MODEL_EXECUTIONS,
        MODEL_SECONDS,
        BATCH_ROWS,
        RECYCLES,
        FAILED,
        DEATHS,
        RESIDENT,
        PROPORTIONAL,
        INSTANCES,
        INSTANCES_RESIDENT,
        INSTANCES_PROPORTIONAL,
        DROPPED,
        BUILD,
    )
}
"""By name, in the order of the page."""


def table() -> str:
    """Markdown: every metric with its kind, its labels and its meaning, as in docs/metrics.md."""
    rows = [
        f"| `{each.name}{'_total' if each.kind == 'counter' else ''}` | {_kind(each)} | "
        f"{' '.join(f'`{label}`' for label in each.labels)} | {each.text} |\n"
        for each in FAMILIES.values()
    ]
    return "| metric | kind | labels | meaning |\n|---|---|---|---|\n" + "".join(rows)


def _kind(family: Family) -> str:
    return family.kind if family.kind != "gauge" or family.mode == "sum" else f"{family.kind}, {family.mode}"
