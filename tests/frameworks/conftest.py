"""`--matrix` writes what passed in test_runtimes.py into docs/runtimes.md: each kind of saved model by host and protocol."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "runtimes.md"
BEGIN, END = "<!-- matrix -->\n", "<!-- /matrix -->"
COLUMNS = {
    "test_v2_json": "V2 JSON",
    "test_v2_binary": "V2 binary",
    "test_seldon": "Seldon",
    "test_v1": "V1",
    "test_data_frame": "data frame",
}
HOSTS = ("worker", "process")

Outcomes = dict[tuple[str, str, str], set[str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flag."""
    parser.addoption("--matrix", action="store_true", help="write the matrix of docs/runtimes.md")


def pytest_configure(config: pytest.Config) -> None:
    """Watch, where the flag is given; with pytest-xdist, in the process that collects the reports."""
    if config.getoption("--matrix") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Matrix(), "matrix")


class Matrix:
    """The outcomes of a run, by case, host and test."""

    def __init__(self) -> None:
        self._outcomes: Outcomes = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a test, and of a set-up that did not come to it."""
        found = re.search(
            r"test_runtimes\.py::(\w+)\[(.+)-(worker|process)(?:-(?:instances|inputs))?\]$", report.nodeid
        )
        if found is not None and (report.when == "call" or not report.passed):
            test, case, host = found.groups()
            self._outcomes[case, host, test].add(report.outcome)

    def pytest_sessionfinish(self) -> None:
        """Write the table, if anything of it ran."""
        if self._outcomes:
            text = PAGE.read_text()
            before, _, rest = text.partition(BEGIN)
            PAGE.write_text(before + BEGIN + "".join(_lines(self._outcomes)) + END + rest.partition(END)[2])


def _lines(outcomes: Outcomes) -> Iterator[str]:
    from frameworks.test_runtimes import CASES

    yield f"| runtime | model | made with | {' | '.join(COLUMNS.values())} |\n|---|---|---|{'---|' * len(COLUMNS)}\n"
    for name in sorted({case for case, _, _ in outcomes}):
        case = CASES[name]
        cells = [_cell([outcomes.get((name, host, test), set()) for host in HOSTS]) for test in COLUMNS]
        yield f"| {case.runtime} | {name} | {case.framework} {_version(case.framework)} | {' | '.join(cells)} |\n"
    yield f"\nyes: equal to the library's own prediction in both hosts. Prefork {version('prefork')}, numpy {version('numpy')}.\n"


def _cell(hosts: list[set[str]]) -> str:
    """What both hosts did; a protocol that has no form for the model's inputs was skipped."""
    if all(found == {"passed"} for found in hosts):
        return "yes"
    if all(found == {"skipped"} for found in hosts):
        return ""
    return ", ".join(
        f"{host}: {'yes' if found == {'passed'} else 'no'}" for host, found in zip(HOSTS, hosts, strict=True)
    )


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "?"
