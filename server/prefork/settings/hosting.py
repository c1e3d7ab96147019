"""The settings of models in processes of their own, of batching and of model repositories: a part of `Settings`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from prefork.settings import environment
from prefork.settings.setting import (
    MOST,
    MOST_MICROSECONDS,
    About,
    one_of,
    seconds_from,
    segment,
    several,
    size,
    text,
    whole,
)


def _place(raw: Any) -> str:
    """A reader of `host`, which other servers call the address to listen on."""
    try:
        return str(one_of("worker", "process", "auto")(raw))
    except ValueError as error:
        raise ValueError(f"{error}, where the model lives; the address to listen on is --bind or --address") from None


class Hosting(msgspec.Struct, frozen=True, kw_only=True):
    """Where models run, how their requests are put together, and where they come from."""

    host: Annotated[
        Literal["worker", "process", "auto"],
        About(
            "Where the model lives: in every HTTP worker, or in `instances` processes of its own that all workers share. "
            "`auto` is `worker` for a class, and what its runtime says for a saved model. It is not the address to listen on: that is "
            "`bind`, or `address`.",
            "--host",
            "PREFORK_MODEL_HOST",
            read=_place,
        ),
    ] = "auto"
    runtime: Annotated[
        str,
        About(
            "Who serves a saved model, where its content does not tell: `onnx`, `sklearn`, ...",
            "--runtime",
            "PREFORK_RUNTIME",
            "what the file is",
        ),
    ] = ""
    allow_pickle: Annotated[
        bool,
        About(
            "Read a pickled model although others than its owner can write it; reading it runs what stands in it.",
            "--allow-pickle",
            "PREFORK_ALLOW_PICKLE",
        ),
    ] = False
    instances: Annotated[
        int,
        About(
            "Processes of the model's own under `host: process`; with `devices`, for each of them.",
            "--instances",
            "PREFORK_INSTANCES",
            read=whole(1, MOST),
        ),
    ] = 1
    devices: Annotated[
        tuple[str, ...],
        About(
            "GPUs for the model's processes, as in `0,1`; each process sees its own as the only one.",
            "--devices",
            "PREFORK_DEVICES",
            "none",
            read=several(text),
        ),
    ] = ()
    environment: Annotated[
        dict[str, str], About("Environment variables for the model's processes.", default="none", read=environment.read)
    ] = msgspec.field(default_factory=dict)
    python: Annotated[
        str,
        About(
            "The interpreter, or the folder of a virtual environment, for the model's processes; Prefork has to be installed there.",
            "--python",
            "PREFORK_PYTHON",
            "the server's own",
        ),
    ] = ""
    allocator: Annotated[
        Literal["", "jemalloc", "tcmalloc"],
        About(
            "The memory allocator to preload into the model's processes.",
            "--allocator",
            "PREFORK_ALLOCATOR",
            "the C library's",
        ),
    ] = ""
    memory_limit: Annotated[
        int,
        About(
            "Bytes of memory that each of the model's processes may have; more is a MemoryError there. 0 is no limit.",
            "--memory-limit",
            "PREFORK_MEMORY_LIMIT",
            read=size,
        ),
    ] = 0
    unload_timeout: Annotated[
        float,
        About(
            "Seconds that requests in flight have to finish when a model is unloaded; then its streams are ended with an error.",
            "--unload-timeout",
            "PREFORK_UNLOAD_TIMEOUT",
        ),
    ] = 30.0
    max_batch_size: Annotated[
        int,
        About(
            "Rows that one call of the model may have: requests that wait together are put together. 0 is no batching.",
            "--max-batch-size",
            "PREFORK_MAX_BATCH_SIZE",
        ),
    ] = 0
    max_batch_delay: Annotated[
        int,
        About(
            "Microseconds that a request may wait for others to join its batch.",
            "--max-batch-delay",
            "PREFORK_MAX_BATCH_DELAY",
            read=whole(0, MOST_MICROSECONDS),
        ),
    ] = 0
    preferred_batch_sizes: Annotated[
        tuple[int, ...],
        About(
            "Sizes of batches that are not waited beyond, as in `8,16`.",
            "--preferred-batch-sizes",
            "PREFORK_PREFERRED_BATCH_SIZES",
            "none",
            read=several(whole(1)),
        ),
    ] = ()
    retry_alone: Annotated[
        bool,
        About(
            "When a call for several requests raises, try each of them alone, once.",
            "--retry-alone",
            "PREFORK_RETRY_ALONE",
        ),
    ] = False
    repository: Annotated[
        tuple[str, ...],
        About(
            "Folders of models to serve, each `<name>/<version>/`; instead of MODEL. May be repeated.",
            "--repository --model-repository",
            "PREFORK_REPOSITORY",
            "none",
            read=several(text),
        ),
    ] = ()
    model_config_name: Annotated[
        str,
        About(
            "Where a model has `configs/<this>.pbtxt`, read that instead of its `config.pbtxt`.",
            "--model-config-name",
            "PREFORK_MODEL_CONFIG_NAME",
            "none",
            read=segment,
        ),
    ] = ""
    control: Annotated[
        Literal["none", "explicit", "poll"],
        About(
            "Who loads the models of a repository: `none` loads all at the start, `explicit` those of `load_model` and then "
            "whoever asks the API, `poll` follows what changes in the folders.",
            "--control --model-control-mode",
            "PREFORK_CONTROL",
        ),
    ] = "none"
    load_model: Annotated[
        tuple[str, ...],
        About(
            "Models to load at the start under `control: explicit`; `*` is all. May be repeated.",
            "--load-model",
            "PREFORK_LOAD_MODEL",
            "none",
            read=several(text),
        ),
    ] = ()
    poll_seconds: Annotated[
        float,
        About(
            "Seconds between two looks at the repository under `control: poll`.",
            "--poll-seconds --repository-poll-secs",
            "PREFORK_POLL_SECONDS",
            read=seconds_from(0.05),
        ),
    ] = 15.0
    load_threads: Annotated[
        int,
        About(
            "Models that may load at the same time.",
            "--load-threads --model-load-thread-count",
            "PREFORK_LOAD_THREADS",
            read=whole(1, MOST),
        ),
    ] = 4
    run_dir: Annotated[
        str,
        About(
            "A private folder for the sockets between the server's processes.",
            "--run-dir",
            "PREFORK_RUN_DIR",
            "a temporary one",
        ),
    ] = ""
    model_cache: Annotated[
        str,
        About(
            "A folder for models that are fetched from `https://`, `s3://`, `gs://` or `hf://`; servers may share it.",
            "--model-cache",
            "PREFORK_MODEL_CACHE",
            "`prefork/models` in `$XDG_CACHE_HOME`, else in `~/.cache`",
        ),
    ] = ""
