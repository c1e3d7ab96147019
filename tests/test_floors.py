"""What the import floors cannot see: reads of the environment, imports by name, and the size of files and functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "server" / "prefork"
MODULES = sorted(PACKAGE.rglob("*.py"))
ENVIRONMENT = {f"os.{name}" for name in ("environ", "environb", "getenv", "getenvb", "putenv", "unsetenv")}


def names_of_the_environment(tree: ast.AST) -> set[int]:
    """The lines that read or write the process's environment through `os`."""
    nodes = list(ast.walk(tree))
    attributes = {node.lineno for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node) in ENVIRONMENT}
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "os"]
    return attributes | {node.lineno for node in froms for alias in node.names if f"os.{alias.name}" in ENVIRONMENT}


def text_run_as_code(tree: ast.AST) -> set[int]:
    """The lines that call `__import__`, `exec` or `eval`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {node.lineno for node in calls if ast.unparse(node.func) in {"__import__", "exec", "eval"}}


def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def test_the_package_is_found():
    """The walk below sees the package, so that an empty list of offenders means something."""
    assert {"errors.py", "http.py", "payload.py"} <= {module.name for module in MODULES}
    assert names_of_the_environment(ast.parse("import os\nos.environ['A'] = ''\nfrom os import getenv")) == {2, 3}
    assert text_run_as_code(ast.parse("x = 1\neval('x')\nmodel.eval()")) == {2}


def test_only_settings_knows_the_environment():
    """Only settings/loading.py touches the environment for Prefork, and compat/env_utils.py when a user's class asks it to."""
    found = {str(module.relative_to(PACKAGE)) for module in MODULES if names_of_the_environment(parsed(module))}
    assert found == {"settings/loading.py", "compat/env_utils.py"}


def test_nothing_runs_text_as_code():
    """User code comes in through the loader's importlib; nothing calls `__import__`, `exec` or `eval`."""
    assert [f"{module.name}:{line}" for module in MODULES for line in text_run_as_code(parsed(module))] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(module):
    """A file has under 400 lines, and no function in it more than 50."""
    lines = module.read_text(encoding="utf-8").count("\n")
    functions = [node for node in ast.walk(parsed(module)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= 50]
    assert lines < 400
    assert long == []
