"""The `seldon-core-microservice` command, with every flag and variable of Seldon's, starting this server.

What differs from `prefork serve`: the defaults (one worker, one thread, 0.0.0.0, metrics on port 6000), SELDON_LOG_LEVEL beats `--log-level`,
and an argument that the command does not know ends it with exit code 255.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import click

from prefork import flags
from prefork.cli import start
from prefork.errors import SettingError
from prefork.settings import load

_DEFAULTS = {"workers": 1, "threads": 1, "address": "0.0.0.0", "port": 9000, "metrics_port": 6000}  # noqa: S104 - Seldon's containers
_SERVICE_TYPES = ("MODEL", "ROUTER", "TRANSFORMER", "COMBINER", "OUTLIER_DETECTOR")


class UnknownArgument(SettingError):
    """An option or argument that Seldon's command has not; the exit code is its."""

    exit_code = 255


class _Command(flags.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UnknownArgument(error.format_message()) from None


def main(args: Sequence[str] | None = None) -> NoReturn:
    """The console script."""
    flags.run(command, args)


def _microservice(interface_name: str, extra: tuple[str, ...], **given: Any) -> int:
    if extra:
        raise UnknownArgument(
            f"unknown arguments: {' '.join(extra)}; since Seldon 1.5 there is no API type (REST, GRPC)"
        )
    given.pop("service_type")
    unused = flags.take_unused(given)
    settings = load({"model": interface_name, **given}, defaults=_DEFAULTS, variables_first=("log_level",))
    return start(settings, unused)


command = _Command(
    "seldon-core-microservice",
    callback=_microservice,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Argument(["interface_name"]),
        click.Argument(["extra"], nargs=-1, type=click.UNPROCESSED),
        click.Option(
            ["--service-type"], type=click.Choice(_SERVICE_TYPES), help="Accepted: every path is always served."
        ),
        *flags.of_settings(),
        *flags.unused(["persistence", "debug"], is_boolean=True),
        *flags.unused(["grpc-port", "grpc-threads", "grpc-workers"]),
    ],
    help="Serve the class INTERFACE_NAME (`Iris`, or `pkg.module.Class`).",
)
