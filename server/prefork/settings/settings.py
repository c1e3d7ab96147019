"""Every setting of the server, in one frozen struct; the only module that reads the process's environment.

A setting comes from the first of these sources that has it: the command line, GUNICORN_CMD_ARGS, its environment variable,
Seldon's pod annotations, prefork.yaml, the default. Whatever cannot be meant is a SettingError of one line that opens
with the source. `python -m prefork.settings` prints the table of all of them, as in docs/settings.md.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

from prefork.settings import address, cpus, derived, parameters, sources
from prefork.settings.setting import About, Given, reader, segment, size, whole
from prefork.settings.table import markdown


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the server was told. Durations are seconds, sizes are bytes.

    `notes` is no setting: sentences for the log about what was said and has no effect.
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
            "The address to listen on: `host:port`, `[v6]:port`, `unix:path`. It wins over `host` and `port` unless they "
            "come from a source before its own.",
            "--bind -b",
            "GUNICORN_BIND",
            "`host:port`",
            read=address.read,
        ),
    ] = ""
    host: Annotated[
        str,
        About(
            "The host to listen on.",
            "--host",
            "PREFORK_HOST",
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
    max_requests: Annotated[
        int,
        About("Requests after which a worker is replaced; 0 never.", "--max-requests", "GUNICORN_MAX_REQUESTS"),
    ] = 0
    max_requests_jitter: Annotated[
        int,
        About(
            "At most so many requests more, drawn for each worker; no effect without `max_requests`.",
            "--max-requests-jitter",
            "GUNICORN_MAX_REQUESTS_JITTER",
        ),
    ] = 0
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
    graceful_timeout: Annotated[
        float,
        About(
            "Seconds that requests in flight have to finish when a worker stops.",
            "--graceful-timeout",
            "GUNICORN_GRACEFUL_TIMEOUT",
        ),
    ] = 30.0
    preload_app: Annotated[
        bool,
        About(
            "Import and construct the class once, before the workers are forked, instead of in each; `load()` runs in each "
            "worker all the same. Off under `reload`.",
            "--preload-app --preload",
            "GUNICORN_PRELOAD_APP",
        ),
    ] = False
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


def abouts() -> dict[str, About]:
    """What is written about each setting, by the name of its field, in the order of the table."""
    hints = get_type_hints(Settings, include_extras=True)
    found = {name: get_args(hint) for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    return {
        name: msgspec.structs.replace(about, read=about.read or reader(hint)) for name, (hint, about) in found.items()
    }


def load(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    *,
    root: str | Path = "/",
    defaults: Mapping[str, Any] | None = None,
    variables_first: Sequence[str] = (),
) -> Settings:
    """Resolve every setting, or raise SettingError.

    flags: by field name, as text or typed, None for one that was not given; `assignments` is a list of `name=value`.
    environ, cwd: the process's own where None; root: where `/proc`, `/sys` and `/etc/podinfo` are found.
    defaults: a command's own, under every source; variables_first: the settings whose variable beats the flag.
    """
    environ = os.environ if environ is None else environ
    flags = dict(flags or {})
    assignments = flags.pop("assignments", None) or ()
    known = abouts()
    layers = sources.layers(
        sources.from_flags(flags, known),
        environ,
        known,
        cwd=Path(cwd or Path.cwd()),
        root=Path(root),
        variables_first=variables_first,
    )
    own = {name: Given(f"{name}: ", value) for name, value in (defaults or {}).items()}
    values = {name: given.read(known[name]) for name, given in ChainMap(*layers, own).items()}
    values["parameters"] = derived.parameters(values.get("parameters", {}), layers, assignments)
    values["notes"] = tuple(sources.unread(environ, known))
    return Settings(**derived.settle(values, layers, environ, Path(root)))


def apply_thread_budget(settings: Settings, environ: MutableMapping[str, str] | None = None) -> None:
    """Set the thread-count variables that are not set, so that the workers share the CPUs.

    It has to run before numpy is imported, which fixes OpenBLAS's threads, and before the workers are forked.
    """
    environ = os.environ if environ is None else environ
    environ.update(cpus.thread_budget(cpus.available(), settings.workers, environ))


def table() -> str:
    """Markdown: every setting with its key in prefork.yaml, its flags, its variables, its default and its meaning."""
    return markdown(abouts(), msgspec.structs.asdict(Settings()))
