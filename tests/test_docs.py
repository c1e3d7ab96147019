"""README.md and docs/*.md, taken at their word: commands are run, code is executed, answers are compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from prefork import cli, microservice, scaffold, settings
from prefork.endpoints import ROUTES
from running import SOURCE, Running, free_port

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

ELSEWHERE = ("pip install . scikit-learn", "make setup test")
"""How the blocks of README's first screen begin that tests/test_readme.py follows to the letter."""

NOT_RUN = {"images.md": 2}
"""How many blocks of a page have a marker, so that nobody adds one without saying so here."""

LONG_RUNNING = ("prefork serve", "seldon-core-microservice")
FRAGMENTS = "import joblib\nimport numpy as np\nfrom Iris import Iris\n\n"
"""What README's classes take for granted; blocks in docs/ are complete."""

OTHER_TOOLS = {"--as-dockerfile", "--incremental", "--matrix"}
NOT_READ = {"GUNICORN_MAX_REQUESTS_JITTER", "SELDON_DEBUG"}
"""Variables that are named to say that they are not read, or whose name is cut short in a table."""

RUN_TESTS = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("block", sys.argv[1])
block = sys.modules["block"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(block)
for name in [name for name in vars(block) if name.startswith("test_")]:
    getattr(block, name)()
"""


class Block(NamedTuple):
    """A fenced block: where it stands, what it says, why it is not run, and the answer shown right behind it."""

    page: str
    line: int
    language: str
    text: str
    reason: str
    answer: str


FENCE = re.compile(
    r"(?:<!-- not run: (.*?) -->\n)?^```(\w*)\n(.*?)^```\n(?:```json\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)


def blocks_of(page: Path) -> Iterator[Block]:
    source, at = page.read_text(), 0
    while match := FENCE.search(source, at):
        reason, language, text, answer = match.groups(default="")
        yield Block(page.name, source.count("\n", 0, match.start(2)) + 1, language, text, reason, answer)
        # The answer is looked at again, as a block of its own.
        at = match.end(3) + len("```\n")


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def chosen(language: str) -> list[Any]:
    """The blocks of a language that are to be run, as parameters with their places for names."""
    found = [block for block in BLOCKS if block.language == language and not block.reason]
    return [
        pytest.param(block, id=f"{block.page}:{block.line}") for block in found if not block.text.startswith(ELSEWHERE)
    ]


COMMANDS = [param for param in chosen("sh") if not param.values[0].text.startswith(LONG_RUNNING)]
SERVERS = [param for param in chosen("sh") if param.values[0].text.startswith(LONG_RUNNING)]


def test_no_block_is_left_out_in_silence():
    """Every block has a language that is checked here, or a marker that says why it is not run."""
    assert {block.language for block in BLOCKS} <= {"sh", "python", "json", "yaml", "text"}
    assert dict(Counter(block.page for block in BLOCKS if block.reason)) == NOT_RUN
    assert all("<!-- not run" not in block.text for block in BLOCKS)
    assert sum(page.read_text().count("<!-- not run") for page in PAGES) == sum(NOT_RUN.values())
    assert sum(block.text.startswith(ELSEWHERE) for block in BLOCKS) == len(ELSEWHERE)
    assert sum(page.read_text().count("\n```") for page in PAGES) == 2 * len(BLOCKS)


# --- commands ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with the commands that the pages call; curl fails on an error's status, and tells every status."""
    place = tmp_path_factory.mktemp("bin")
    curl = shutil.which("curl")
    assert curl is not None, "curl is not installed"
    scripts = {
        "curl": f'exec {curl} --fail --max-time 60 --write-out "%{{stderr}}%{{http_code}}\\n" "$@"',
        "prefork": f'exec {sys.executable} -m prefork "$@"',
        "seldon-core-microservice": f'exec {sys.executable} -c "from prefork.microservice import main; main()" "$@"',
    }
    for name, script in scripts.items():
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(0o755)
    own = {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
    own["PREDICTIVE_UNIT_METRICS_SERVICE_PORT"] = "0"  # else Seldon's command takes 6000
    return {**os.environ, **own, "PYTHONPATH": str(SOURCE), "PREFORK_ADDRESS": "127.0.0.1"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that `prefork init Iris` writes, with its model trained."""
    folder = tmp_path_factory.mktemp("project") / "Iris"
    scaffold.init("Iris", folder)
    subprocess.run([sys.executable, "train.py"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def iris(project: Path, commands: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`prefork serve` in that project, on a free port."""
    port = free_port()
    running = start(
        f"prefork serve --workers 1 --port {port}", port, project, commands, tmp_path_factory.mktemp("iris")
    )
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


def start(command: str, port: int, folder: Path, variables: dict[str, str], place: Path) -> Running:
    log = place / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=folder, env=variables, stdout=out, stderr=subprocess.STDOUT
        )
    return Running(process, port, log)


@pytest.mark.parametrize("block", COMMANDS)
def test_command(block: Block, iris: Running, commands: dict[str, str]):
    """Each command succeeds against the template's model, and answers what is shown behind it."""
    assert "curl " in block.text
    script = block.text.replace("9000", str(iris.port))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=commands,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr + iris.log
    statuses = done.stderr.split()
    assert statuses
    assert all(status.startswith("2") for status in statuses)
    if block.answer:
        assert is_shown(json.loads(block.answer), json.loads(done.stdout), abridged=block.page == "README.md"), (
            done.stdout
        )


def is_shown(shown: Any, answer: Any, *, abridged: bool = False) -> bool:
    """Whether an answer is the one that a page shows; an abridged one may leave keys out.

    `...` stands for anything, as a value or, as a key, for more keys. Floats are shown to two digits, since releases of
    scikit-learn differ in the others.
    """
    if shown == "...":
        return True
    if isinstance(shown, dict) and isinstance(answer, dict):
        known = shown.keys() - {"..."}
        complete = known <= answer.keys() if abridged or "..." in shown else known == answer.keys()
        return complete and all(is_shown(shown[key], answer[key], abridged=abridged) for key in known)
    if isinstance(shown, list) and isinstance(answer, list):
        same = zip(shown, answer, strict=False)
        return len(shown) == len(answer) and all(is_shown(one, other, abridged=abridged) for one, other in same)
    if isinstance(shown, float) and isinstance(answer, float):
        return abs(shown - answer) < 0.01
    return type(shown) is type(answer) and bool(shown == answer)


@pytest.mark.parametrize("block", SERVERS)
def test_server_command(block: Block, project: Path, commands: dict[str, str], tmp_path: Path):
    """Each command that starts a server opens its port, and ends with 0 on TERM."""
    (command,) = block.text.splitlines()
    port = free_port()
    running = start(command.replace("9000", str(port)), port, project, commands, tmp_path)
    try:
        running.wait_ready()
    finally:
        status = running.stop()
    assert status == 0, running.log


# --- code and settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", chosen("python"))
def test_python(block: Block, iris: Running, project: Path, commands: dict[str, str], tmp_path: Path):
    """Each piece of code runs as a module of its own, without a warning, and the tests in it pass."""
    prelude = FRAGMENTS if block.page == "README.md" else ""
    (tmp_path / "block.py").write_text(prelude + block.text.replace("9000", str(iris.port)))
    command = [sys.executable, "-W", "error", "-c", RUN_TESTS, str(tmp_path / "block.py")]
    variables = {**commands, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(project)])}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", chosen("json"))
def test_json(block: Block):
    """Each answer that is shown is JSON."""
    json.loads(block.text)


def kubernetes(document: Any) -> bool:
    return "apiVersion" in document


SETTINGS = [param for param in chosen("yaml") if not kubernetes(yaml.safe_load(param.values[0].text))]
MANIFESTS = [param for param in chosen("yaml") if kubernetes(yaml.safe_load(param.values[0].text))]


@pytest.mark.parametrize("block", SETTINGS)
def test_settings(block: Block, tmp_path: Path):
    """Each prefork.yaml is read without complaint, and says what the page says."""
    (tmp_path / "prefork.yaml").write_text(block.text)
    found = settings.load({}, {}, tmp_path)
    said = yaml.safe_load(block.text)
    assert found.model == said["model"]
    assert found.parameters == said["parameters"]


@pytest.mark.parametrize("block", MANIFESTS)
def test_manifest(block: Block, tmp_path: Path):
    """A Kubernetes manifest has variables, ports and paths that there are, and leaves time to stop."""
    pod = yaml.safe_load(block.text)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables.keys() <= known_variables()
    said = settings.load({}, variables, tmp_path)
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert sleep + said.graceful_timeout + 1 < pod["terminationGracePeriodSeconds"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"http": said.port}
    probes = [container[name] for name in ("readinessProbe", "startupProbe", "livenessProbe")]
    assert all((probe.get("tcpSocket") or probe["httpGet"])["port"] == "http" for probe in probes)
    asked = {probe["httpGet"]["path"] for probe in probes if "httpGet" in probe}
    assert asked <= {route.path for route in ROUTES}
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


# --- what is named -----------------------------------------------------------------------------------------------


def known_variables() -> set[str]:
    return {name for about in settings.abouts().values() for name in about.env.split()}


def quoted(pattern: str) -> set[str]:
    """What the pages about the server have in backticks and matches, outside of blocks."""
    texts = [page.read_text() for page in PAGES if page.name != "performance.md"]
    pages = [re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE) for text in texts]
    spans = [span for page in pages for span in re.findall(r"`([^`\n]+)`", page)]
    return {found for span in spans for found in re.findall(pattern, span)}


def test_flags_exist():
    """Every flag that a page names is one of Prefork's commands' own."""
    options = {
        name.replace("_", "-")
        for group in (cli.cli, cli.cli.commands["workers"], cli.cli.commands["models"], {"": microservice.command})
        for command in getattr(group, "commands", group).values()
        for option in command.params
        for name in (*option.opts, *option.secondary_opts)
    }
    named = {flag.replace("_", "-") for flag in quoted(r"(?<![\w-])--[a-z][a-z_-]+")}
    assert named - OTHER_TOOLS <= options


def test_variables_exist():
    """Every variable with a prefix of ours or Seldon's that a page names is read."""
    named = quoted(r"\b(?:PREFORK|GUNICORN|PREDICTIVE_UNIT|SELDON)_[A-Z_]+[A-Z]\b")
    assert named - NOT_READ - {"PREFORK_WORKERS"} <= known_variables() | {"SELDON_LOG_LEVEL"}


def rows(page: str, head: str) -> list[list[str]]:
    """The cells of every table of a page whose head begins so."""
    found: list[list[str]] = []
    inside = False
    for line in (ROOT / "docs" / page).read_text().splitlines():
        inside = line.startswith("|") and (inside or line.startswith(head))
        if inside:
            found.append([cell.strip() for cell in line.strip("|").replace("\\|", "/").split("|")])
    return [row for row in found if set(row[0]) - set("-") and not head.startswith(f"| {row[0]} |")]


def test_paths_are_the_route_table():
    """The paths of protocols.md, with their methods, are those that are served, no more and no fewer."""
    told: dict[str, set[str]] = {}
    for paths, methods, _ in rows("protocols.md", "| path | methods |"):
        names = re.findall(r"`([^`]+)`", paths)
        each = [set(group.split(", ")) for group in methods.split("; ")]
        told |= dict(zip(names, each if len(each) > 1 else each * len(names), strict=True))
    versions = {
        path.replace("{model}", "{model}/versions/{version}"): told[path] for path in told if "/v2/models" in path
    }
    assert told | versions == {route.path: set(route.methods) for route in ROUTES}


def test_names_of_seldon_core_resolve(commands: dict[str, str]):
    """Every name that seldon.md lists can be imported where the real package is absent."""
    lines, module = ["from prefork.compat import finder", "finder.install()"], ""
    for first, names in rows("seldon.md", "| module | names |"):
        module = first.strip("`") or module
        found = re.findall(r"`(\w+)`", names)
        lines.append(f"from {module} import {', '.join(found)}" if found else f"import {module}")
    assert len(lines) > 8
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=commands, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path):
    """Every link within the repository leads to a file, and to a heading if it names one."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in headings(file), target


def headings(page: Path) -> set[str]:
    """The anchors that a page's headings have."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
