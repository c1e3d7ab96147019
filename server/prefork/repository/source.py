"""A model's Python file read as text: which class in it is meant. Nothing is imported.

The class is the one with hooks (`predict`, `execute`, ...), its own or inherited within the file; of several the one
called like the model, the file, `Model` or `TritonPythonModel`. A class that others in the file derive from is not meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from prefork.errors import RepositoryError
from prefork.repository import files

HOOKS = frozenset(
    {"predict", "execute", "transform_input", "transform_output", "route", "aggregate", "send_feedback"}
    | {"predict_raw", "transform_input_raw", "transform_output_raw", "route_raw", "aggregate_raw", "send_feedback_raw"}
)
NAMES = ("Model", "TritonPythonModel")

Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """One Python file. Raises RepositoryError where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = _parsed(path)
        self._classes = {each.name: each for each in _statements(self._tree.body) if isinstance(each, ast.ClassDef)}

    def check(self, name: str) -> None:
        """Raises RepositoryError where the file surely does not define or import a class or function of that name."""
        bound = {each for statement in _statements(self._tree.body) for each in _bound(statement)}
        first = name.partition(".")[0]
        if first not in bound and "*" not in bound and "__getattr__" not in bound:
            there = f"it has {', '.join(self._classes)}" if self._classes else "it has no class"
            raise RepositoryError(f"{self._path}: there is no {first!r}; {there}")

    def find(self, names: Iterable[str]) -> str:
        """The class that is meant. names: the model's and others that one may be called like, the best first.

        Raises RepositoryError where none is, or more than one.
        """
        public = [name for name in self._classes if not name.startswith("_")]
        inherited = {base for each in self._classes.values() for base in _bases(each)}
        hooked = [name for name in public if self._has_hook(name, ())]
        leaves = [name for name in hooked if name not in inherited] or hooked or public
        if len(leaves) == 1:
            return leaves[0]
        wanted = {_folded(name): rank for rank, name in enumerate(reversed([*names, *NAMES]))}
        named = sorted((wanted[_folded(name)], name) for name in leaves if _folded(name) in wanted)
        if named:
            return named[-1][1]
        problem = f"any of {', '.join(leaves)} could be meant" if leaves else "there is no class with predict"
        raise RepositoryError(f"{self._path}: {problem}; say `class: {self._path.stem}:Class` in model.yaml")

    def has(self, name: str) -> bool:
        """Whether there is a class of that name, in any case."""
        return any(_folded(each) == _folded(name) for each in self._classes)

    def _has_hook(self, name: str, below: tuple[str, ...]) -> bool:
        if name not in self._classes or name in below:
            return False
        definition = self._classes[name]
        own = {each for statement in definition.body for each in _bound(statement)}
        return bool(own & HOOKS) or any(self._has_hook(base, (*below, name)) for base in _bases(definition))


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(files.read(path), str(path))
    except OSError as error:
        raise RepositoryError(f"{path}: cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        raise RepositoryError(f"{path}: line {error.lineno or 1}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise RepositoryError(f"{path}: is no Python: {error}") from None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those within if, try and with too. A chain of thousands of `elif` is as deep as it is long."""
    waiting = body[::-1]
    while waiting:
        statement = waiting.pop()
        yield statement
        waiting += reversed(_within(statement))


def _within(statement: ast.stmt) -> list[ast.stmt]:
    if not isinstance(statement, ast.If | ast.With | ast.Try | ast.TryStar):
        return []
    parts = [getattr(statement, each, []) for each in ("body", "orelse", "finalbody")]
    parts += [handler.body for handler in getattr(statement, "handlers", [])]
    return [each for part in parts for each in part]


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement binds."""
    if isinstance(statement, ast.ClassDef | Definition):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


def _bases(definition: ast.ClassDef) -> list[str]:
    return [base.id for base in definition.bases if isinstance(base, ast.Name)]


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
