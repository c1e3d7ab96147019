"""Every setting of the server, in one frozen struct; `loading` reads it from its sources.

`python -m prefork.settings` prints the table of all of them, as in docs/settings.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from prefork.settings import address, parameters
from prefork.settings.recycling import Recycling
from prefork.settings.setting import MOST, About, either, segment, size, version_label, whole


class Settings(Recycling, frozen=True, kw_only=True):
    """What the server was told. Durations are seconds, sizes are bytes.

    `notes` is no setting: sentences for the log about what was said and has no effect. Nor is `thread_variables`: the names of the
    thread-count variables that the operator has set.
    """

    model: Annotated[
        str,
        About(
            "The class to serve: `Iris` (module `Iris`, class `Iris`), `pkg.module:Class` or `pkg.module.Class`. The "
            "working directory is searched last, so that nothing in it hides an installed module.",
            "MODEL",
            "PREFORK_MODEL",
        ),
    ] = ""
    name: Annotated[
        str,
        About(
            "The name under which V1 and V2 paths serve the model.",
            "--name --model-name",
            "PREFORK_NAME",
            "the name of the class",
            read=segment,
        ),
    ] = ""
    version: Annotated[
        str,
        About(
            "The model's version in V2 paths and metadata.", "--model-version", "PREFORK_MODEL_VERSION", read=segment
        ),
    ] = "1"
    parameters: Annotated[
        dict[str, Any],
        About(
            "Arguments for the class's constructor: Seldon's JSON list of `name`, `type` (INT, FLOAT, DOUBLE, STRING, "
            "BOOL) and `value`, or a JSON object. `-p name=value` sets one of them and may be repeated. Those of prefork.yaml "
            "are defaults, by name, for what the command line or the variable say.",
            "--parameters",
            "PREDICTIVE_UNIT_PARAMETERS",
            read=parameters.read,
        ),
    ] = msgspec.field(default_factory=dict)
    model_dir: Annotated[
        str,
        About(
            "A directory with the model's files. It is searched for the class after the working directory, and is passed to "
            "a constructor that takes `model_dir` or `model_uri`.",
            "--model-dir",
            "PREFORK_MODEL_DIR",
        ),
    ] = ""
    config: Annotated[
        str,
        About(
            "The YAML file that settings are read from. A relative path starts at the working directory.",
            "--config -c",
            "PREFORK_CONFIG",
            "`prefork.yaml` in the working directory, else in `model_dir`, where there is one",
        ),
    ] = ""
    bind: Annotated[
        str,
        About(
            "The address to listen on: `host:port`, `[v6]:port`, `unix:path`. It wins over `address` and `port` unless they "
            "come from a source before its own.",
            "--bind -b",
            "GUNICORN_BIND",
            "`address:port`",
            read=address.read,
        ),
    ] = ""
    address: Annotated[
        str,
        About(
            "The interface to listen on.",
            "--address",
            "PREFORK_ADDRESS",
            "`0.0.0.0` in a container, `127.0.0.1` outside one",
        ),
    ] = ""
    port: Annotated[
        int,
        # Never PREFORK_PORT: Kubernetes sets it to tcp://... in every pod beside a Service called prefork.
        About(
            "The port to listen on; 0 takes a free one.",
            "--port --http-port",
            "PREDICTIVE_UNIT_HTTP_SERVICE_PORT PREDICTIVE_UNIT_SERVICE_PORT PORT",
            read=whole(0, 65535),
        ),
    ] = 9000
    workers: Annotated[
        int,
        About(
            "HTTP worker processes, each with its own copy of the model. `auto` is one for each whole CPU of the "
            "container's quota (cgroup v1 or v2), or of the machine where there is no quota.",
            "--workers -w",
            "GUNICORN_WORKERS WEB_CONCURRENCY",
            read=whole(1, words=("auto",)),
        ),
    ] = 4
    threads: Annotated[
        int,
        About(
            "Threads in each worker that call the model. 1 never calls it twice at once; 0 calls it inline on the event loop, for "
            "models that take microseconds. More than 1 makes `sync` a `gthread`.",
            "--threads",
            "GUNICORN_THREADS",
            read=whole(0, MOST),
        ),
    ] = 1
    worker_class: Annotated[
        Literal["asgi", "sync", "gthread", "gevent"],
        About(
            "`asgi`, the default and the fastest, or the Flask application on gunicorn's `sync`, `gthread` or `gevent` worker.",
            "--worker-class -k",
            "GUNICORN_WORKER_CLASS",
        ),
    ] = "asgi"
    single_threaded: Annotated[
        bool,
        About("Seldon's way to say at most one thread.", "--single-threaded", "FLASK_SINGLE_THREADED"),
    ] = False
    keepalive: Annotated[
        float,
        About(
            "Seconds that an idle connection is kept open. gunicorn's `sync` worker keeps none.",
            "--keepalive --keep-alive",
            "GUNICORN_KEEPALIVE",
        ),
    ] = 75.0
    timeout: Annotated[
        float,
        About(
            "Seconds of silence after which a worker is killed and replaced; 0 never. Seldon's annotation "
            "`seldon.io/rest-timeout` (milliseconds) sets it too.",
            "--timeout -t",
            "GUNICORN_TIMEOUT",
        ),
    ] = 60.0
    request_timeout: Annotated[
        float,
        About(
            "Seconds that a request has from the moment it is read whole: waiting for the model and computing. Then the client gets 503, "
            "or 504 once the model had begun. 0 is no limit. A request may give itself less, with the header "
            "`X-Request-Timeout` (seconds) or V2's parameter `timeout` (microseconds).",
            "--request-timeout",
            "PREFORK_REQUEST_TIMEOUT",
        ),
    ] = 0.0
    max_queue: Annotated[
        int,
        About(
            "Requests that may wait for the model in each worker; one more gets 503 with `Retry-After` at once. 0 is no limit. Of the "
            "worker classes `asgi` and `gthread` have such a queue.",
            "--max-queue",
            "PREFORK_MAX_QUEUE",
        ),
    ] = 128
    read_timeout: Annotated[
        float,
        About(
            "Seconds that a client has to send a request, and as many more as its body takes at 1 KiB a second; also how long "
            "a client may read nothing of its answer. 0 is no limit.",
            "--read-timeout",
            "PREFORK_READ_TIMEOUT",
        ),
    ] = 30.0
    drain_grace: Annotated[
        float,
        About(
            "Seconds after TERM during which the server says that it is not ready but answers as before, so that those who "
            "send requests learn of it. The image sets 5.",
            "--drain-grace",
            "PREFORK_DRAIN_GRACE",
        ),
    ] = 0.0
    graceful_timeout: Annotated[
        float,
        About(
            "Seconds that requests in flight have to finish when a worker stops.",
            "--graceful-timeout",
            "GUNICORN_GRACEFUL_TIMEOUT",
        ),
    ] = 30.0
    preload_app: Annotated[
        bool | Literal["force"],
        About(
            "Import and construct the class once, before the workers are forked, instead of in each; `load()` runs in each "
            "worker all the same. What would not survive the fork ends the start with a message, unless it says `force`. Off "
            "under `reload`.",
            "--preload-app --preload",
            "GUNICORN_PRELOAD_APP",
            read=either("force"),
        ),
    ] = False
    trial_timeout: Annotated[
        float,
        About(
            "Under `preload_app`: seconds that the trial child, which is forked before the workers, has for `load()`, and again "
            "for one `predict`; 0 for no trial. `load()` has `load_timeout` where that is set, and longer.",
            "--trial-timeout",
            "PREFORK_TRIAL_TIMEOUT",
        ),
    ] = 30.0
    reload: Annotated[
        bool, About("Restart the workers when the model's code changes.", "--reload", "GUNICORN_RELOAD")
    ] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"],
        About(
            "The least level that is logged.",
            "--log-level",
            "SELDON_LOG_LEVEL GUNICORN_LOG_LEVEL",
        ),
    ] = "info"
    access_log: Annotated[
        bool, About("Log every request to standard output.", "--access-log", "GUNICORN_ACCESS_LOG")
    ] = False
    pidfile: Annotated[str, About("A file for the arbiter's process id.", "--pidfile --pid", "GUNICORN_PIDFILE")] = ""
    max_body_size: Annotated[
        int,
        About(
            "Bytes of a request's body, as sent and as decompressed, above which it is refused with 413. `64M` is read too.",
            "--max-body-size",
            "PREFORK_MAX_BODY_SIZE",
            "64 MiB",
            read=size,
        ),
    ] = 64 << 20
    max_depth: Annotated[
        int,
        About(
            "Levels of nesting in a request's JSON above which it is refused with 400.",
            "--max-depth",
            "PREFORK_MAX_DEPTH",
            read=whole(1, 1000),
        ),
    ] = 100
    nan: Annotated[
        Literal["null", "literal"],
        About(
            "How NaN and infinities are written in JSON: `null`, or the literals NaN, Infinity and -Infinity, which are "
            "no JSON. Both are read.",
            "--nan",
            "PREFORK_NAN",
        ),
    ] = "null"
    compression: Annotated[
        bool,
        About(
            "Compress answers for clients that accept gzip or deflate.",
            "--compression",
            "PREFORK_COMPRESSION",
        ),
    ] = True
    compress_min_size: Annotated[
        int,
        About(
            "Bytes under which an answer is not compressed.",
            "--compress-min-size",
            "PREFORK_COMPRESS_MIN_SIZE",
            read=size,
        ),
    ] = 1024
    forward_headers: Annotated[
        bool,
        About(
            'Give the request\'s headers to the model as `meta["headers"]`.',
            "--forward-headers",
            "PREFORK_FORWARD_HEADERS",
        ),
    ] = False
    payload_passthrough: Annotated[
        bool,
        About(
            "Seldon's `/predict`: hand the body's bytes to `predict_raw` as they came, and send what it answers as it is.",
            "--payload-passthrough",
            "PAYLOAD_PASSTHROUGH",
        ),
    ] = False
    include_metrics: Annotated[
        bool,
        About(
            "Seldon's protocol: put the model's `metrics()` into the answer's `meta`.",
            "--include-metrics",
            "INCLUDE_METRICS_IN_CLIENT_RESPONSE",
        ),
    ] = True
    unit_id: Annotated[
        str,
        About("Seldon's name of this node of the graph, for `requestPath` and routing.", "", "PREDICTIVE_UNIT_ID"),
    ] = ""
    unit_image: Annotated[
        str, About("The image that runs, for `requestPath` and the metadata.", "", "PREDICTIVE_UNIT_IMAGE")
    ] = ""
    metrics_port: Annotated[
        int,
        About(
            "A port of its own for the metrics, beside `/metrics` on the server's; 0 is none. Its host is that of `bind`.",
            "--metrics-port",
            "PREDICTIVE_UNIT_METRICS_SERVICE_PORT",
            "none; 6000 for `seldon-core-microservice`",
            read=whole(0, 65535),
        ),
    ] = 0
    metrics_endpoint: Annotated[
        str,
        About("The path of the metrics on that port.", "--metrics-endpoint", "PREDICTIVE_UNIT_METRICS_ENDPOINT"),
    ] = "/metrics"
    metrics_worker_id: Annotated[
        bool,
        About(
            "Give the class's own metrics the label `worker_id`, the number of the worker's place, instead of adding the workers up.",
            "--metrics-worker-id",
            "PREFORK_METRICS_WORKER_ID",
        ),
    ] = False
    tracing: Annotated[
        bool,
        About(
            "Read the header `traceparent` (W3C): OpenMetrics then shows beside each bucket of the requests' durations the trace id of "
            "the newest request in it, as an exemplar.",
            "--tracing",
            "PREFORK_TRACING TRACING",
        ),
    ] = False
    count_feedback: Annotated[
        bool,
        About("Count what comes to `/send-feedback`, and its rewards, in the metrics.", "", "SELDON_EXECUTOR_ENABLED"),
    ] = True
    deployment: Annotated[
        str, About("Seldon's name of the deployment, a label of the class's own metrics.", "", "SELDON_DEPLOYMENT_ID")
    ] = ""
    predictor: Annotated[
        str, About("Seldon's name of the predictor, a label of the class's own metrics.", "", "PREDICTOR_ID")
    ] = ""
    predictor_version: Annotated[
        str,
        About(
            "The predictor's version, a label of the class's own metrics. A JSON object of labels is read for its `version`.",
            "",
            "PREDICTOR_LABELS",
            read=version_label,
        ),
    ] = ""
    model_metadata: Annotated[
        dict[str, Any] | None,
        About(
            "YAML or JSON that goes over what the class's `init_metadata()` gives.",
            "",
            "MODEL_METADATA",
            "none",
        ),
    ] = None
    gunicorn: Annotated[
        dict[str, Any],
        About("Any other setting of gunicorn's, by its name in gunicorn's own documentation.", default="none"),
    ] = msgspec.field(default_factory=dict)
    gunicorn_cmd_args: Annotated[
        str,
        About(
            "Any other setting of gunicorn's, as its command line has it. What is a setting of this table counts as that.",
            "",
            "GUNICORN_CMD_ARGS",
        ),
    ] = ""
    notes: tuple[str, ...] = ()
    thread_variables: tuple[str, ...] = ()
