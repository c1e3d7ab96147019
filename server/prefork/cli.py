"""The `prefork` command.

Nothing here may import numpy before the thread budget stands in the environment: OpenBLAS reads it once, when numpy
loads it. So the server itself is imported by `start`, last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

import prefork
from prefork import flags, models, scaffold, workers
from prefork.errors import SettingError
from prefork.settings import Settings, apply_thread_budget, load

_KSERVE = (
    "access-log-format",
    "configure-logging",
    "enable-docs-url",
    "enable-grpc",
    "enable-latency-logging",
    "enable-predictor-health-check",
    "grpc-max-receive-message-length",
    "grpc-max-send-message-length",
    "grpc-port",
    "log-config-file",
    "max-asyncio-workers",
    "max-threads",
    "predictor-host",
    "predictor-protocol",
    "predictor-request-retries",
    "predictor-request-timeout-seconds",
    "predictor-use-ssl",
)
"""What KServe appends to a container's arguments and what its users copy from its examples; each takes a value."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """The console script."""
    flags.run(cli, args)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(prefork.__version__, prog_name="prefork")
def cli() -> None:
    """Serve a Python class with a `predict` method over REST."""


def _serve(model: str | None, **given: Any) -> int:
    unused = flags.take_unused(given)
    settings = load({"model": model, **given})
    return start(settings, unused)


cli.add_command(
    flags.Command(
        "serve",
        callback=_serve,
        params=[click.Argument(["model"], required=False), *flags.of_settings(), *flags.unused(_KSERVE)],
        help="Serve MODEL: the module and class `Iris`, `pkg.module:Class` or `pkg.module.Class`, or the path of a saved model.",
    )
)


def _check(model: str | None, *, as_json: bool, **given: Any) -> int:
    settings = load({"model": model, **given})
    _require_model(settings, "check")
    apply_thread_budget(settings)
    from prefork import target
    from prefork.check import check

    settings = target.settled(settings)

    text, code = check(settings, as_json=as_json)
    click.echo(text, nl=False)
    return code


cli.add_command(
    flags.Command(
        "check",
        callback=_check,
        params=[
            click.Argument(["model"], required=False),
            click.Option(["as_json", "--json"], is_flag=True, help="As JSON, with sizes in bytes."),
            *flags.of_settings(),
        ],
        help="Examine MODEL without serving it: its hooks, its memory, and whether it can be preloaded.",
    )
)


@cli.command()
@click.argument("name")
@click.option("--directory", type=Path, help="Where to; by default a new directory called NAME.")
def init(name: str, directory: Path | None) -> None:
    """Write a project that runs: a model class NAME, its training, its test and its image."""
    place = directory or Path(name)
    scaffold.init(name, place)
    click.echo(f"{place} is ready. Next:\n\n    cd {place} && prefork serve\n")


cli.add_command(workers.workers)
cli.add_command(models.models)


def start(settings: Settings, unused: Sequence[str] = ()) -> int:
    """Run the server until it ends, and return its exit code. unused: the options that were given in vain."""
    if not settings.repository:
        _require_model(settings, "serve")
    apply_thread_budget(settings)
    from prefork import hosting, target
    from prefork.processes import arbiter

    settings = target.settled(settings)
    for note in (*settings.notes, *([f"{', '.join(unused)}: accepted and not used"] if unused else [])):
        click.echo(f"prefork: {note}", err=True)
    hosting.check(settings)
    return arbiter.run(settings)


def _require_model(settings: Settings, command: str) -> None:
    if not settings.model and not settings.model_dir:
        raise SettingError(
            f"no model to {command}: name it, as in `prefork {command} Iris`, or write `model: Iris` in prefork.yaml"
        )
