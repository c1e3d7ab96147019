"""What every generation needs of its supervisor: its orders, its folder, and the ways to start a process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

from prefork.remote.charge import Charge
from prefork.repository.config import Device
from prefork.supervisor import environment
from prefork.supervisor.interpreters import Interpreters
from prefork.supervisor.lines import to_stderr
from prefork.supervisor.orders import Orders
from prefork.supervisor.process import InstanceProcess, Task
from prefork.supervisor.roster import Roster
from prefork.supervisor.source import Version


class Means:
    """program: the arguments of an interpreter that make it an instance. report: where a model's own lines go."""

    def __init__(
        self,
        orders: Orders,
        roster: Roster,
        *,
        program: tuple[str, ...] = ("-P", "-m", "prefork.remote"),
        report: Callable[[bytes], None] = to_stderr,
    ) -> None:
        self.orders = orders
        self.roster = roster
        self._program = program
        self._report = report
        self._interpreters = Interpreters(roster)
        self._outer = environment.inherited()
        self._count = itertools.count(1)

    async def check(self, version: Version) -> None:
        """Whether its instances can be started at all. Raises ModelLoadError."""
        python = environment.interpreter(version.config, version.directory, self._outer)
        await self._interpreters.check(python, self._variables(version, None, "check"))

    def start(
        self,
        version: Version,
        place: int,
        device: Device | None,
        listeners: tuple[int, ...],
        on_stuck: Callable[[], None],
    ) -> InstanceProcess:
        """Start an instance. Raises LoadFailed."""
        mark = f"{self.roster.mark}{os.getpid()}.{next(self._count)}"
        task = Task(
            python=environment.interpreter(version.config, version.directory, self._outer),
            environment=self._variables(version, device, mark),
            charge=self._charge(version, place, device),
            listeners=listeners,
            label=f"{version} {place}",
            mark=mark,
            program=self._program,
        )
        return InstanceProcess(task, self.roster, on_stuck, self._report)

    def folder(self, name: str) -> Path:
        """The model's part of the run directory."""
        return Path(self.orders.run_dir, "models", name)

    def _variables(self, version: Version, device: Device | None, mark: str) -> dict[str, str]:
        return environment.variables(version.config, device, mark, outer=self._outer, said=self.orders.said)

    def _charge(self, version: Version, place: int, device: Device | None) -> Charge:
        return Charge(
            config=version.config,
            version=version.number,
            folder=version.folder,
            directory=version.directory,
            place=place,
            device=device,
            parent=os.getpid(),
            timeout=self.orders.timeout,
            max_frame=self.orders.max_frame,
            metadata=self.orders.metadata,
            image=self.orders.image,
        )
