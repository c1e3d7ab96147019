"""The supervisor as a process: its signals, its log, its exit status."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

from prefork import standard
from prefork.errors import PreforkError, StartupError
from prefork.supervisor import kernel, orders, parent
from prefork.supervisor.roster import Roster
from prefork.supervisor.supervisor import Supervisor

_FORMAT = "%(asctime)s [%(process)d] [%(levelname)s] %(message)s"
_TIME = "[%Y-%m-%d %H:%M:%S %z]"
"""As the arbiter's lines."""


def main(arguments: Sequence[str]) -> int:
    """Run until told to end. arguments: the number of the descriptor with the orders, perhaps `-P -m other.program` for instances."""
    standard.name_streams()
    # A terminal's Ctrl-C and hang-up reach every process: the arbiter then tells its children.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
        signal.signal(number, signal.SIG_IGN)
    told = orders.read(int(arguments[0]))
    _log_as(told.log_level)
    roster = Roster(told.run_dir)
    if told.parent and not parent.watch(told.parent, roster.kill_all):
        return 0
    kernel.adopt_orphans()
    program = tuple(arguments[1:]) or ("-P", "-m", "prefork.remote")
    try:
        asyncio.run(_serve(told, roster, program))
    except StartupError as error:
        sys.stderr.write(f"prefork: {error}\n")
        return error.exit_code
    except PreforkError as error:  # of a repository that is no folder
        sys.stderr.write(f"prefork: {error.message}\n")
        return StartupError.exit_code
    return 0


async def _serve(told: orders.Orders, roster: Roster, program: tuple[str, ...]) -> None:
    await Supervisor(told, roster, program).serve()


def _log_as(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
    logger = logging.getLogger("prefork")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
