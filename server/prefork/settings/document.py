"""YAML as it is written: text, numbers, true and false, nothing, and lists and mappings of them. prefork.yaml and model.yaml are read here.

What YAML 1.1 would make something else of - a date, `1:30` in base 60, `010` in base 8 - stays text. A key that is said twice,
a tag such as `!!set` and aliases that would fill the memory are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

DEEPEST = 100
"""Levels of lists and mappings inside each other."""
REPEATED = 100_000
"""Values that aliases may add to those that are written."""
LONGEST_NUMBER = 1000
"""Characters. Python refuses to read a few thousand."""

_YAML = "tag:yaml.org,2002:"
_NUMBERS = (_YAML + "int", _YAML + "float")
_MERGE = _YAML + "merge"
_PLAIN = (*_NUMBERS, _MERGE, *(_YAML + name for name in ("str", "bool", "null", "seq", "map")))
_BASE_8_OR_60 = re.compile(r"[-+]?(?:0[0-7_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)")


def read(text: bytes | str) -> Any:
    """The one document in it; None where it is empty. Raises ValueError with one line, which says where."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from None
    except RecursionError:
        raise ValueError(f"it nests deeper than {DEEPEST} levels") from None
    except LookupError as error:
        raise ValueError(f"a value does not fit its tag: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Loader(yaml.SafeLoader):
    """PyYAML's safe one, without the readings that change what was written."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        is_plain = kind is yaml.ScalarNode and implicit[0]
        return _YAML + "str" if is_plain and (tag not in _PLAIN or _BASE_8_OR_60.fullmatch(value)) else tag


class _Extent(NamedTuple):
    """values: with those that aliases repeat."""

    values: int
    depth: int


def _check(root: yaml.Node) -> None:
    known: dict[yaml.Node, _Extent | None] = {}
    values = _extent(root, known).values
    if values - len(known) > REPEATED:
        raise _wrong(root, f"its aliases repeat over {REPEATED} values")


def _extent(node: yaml.Node, known: dict[yaml.Node, _Extent | None]) -> _Extent:
    """That of a node, whose own form is checked; of one that was seen before, an alias's, what is known."""
    if node in known:
        found = known[node]
        if found is None:
            raise _wrong(node, "it contains itself, by an alias")
        return found
    known[node] = None
    _check_form(node)
    inner = [_extent(each, known) for each in _children(node)]
    found = _Extent(1 + sum(each.values for each in inner), 1 + max((each.depth for each in inner), default=0))
    if found.depth > DEEPEST:
        raise _wrong(node, f"it nests deeper than {DEEPEST} levels")
    known[node] = found
    return found


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from (key, value)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _check_form(node: yaml.Node) -> None:
    if node.tag not in _PLAIN:
        raise _wrong(node, f"the tag {node.tag.replace(_YAML, '!!')} has no meaning here; a plain value is needed")
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
    elif isinstance(node, yaml.ScalarNode):
        _check_scalar(node)


def _check_scalar(node: yaml.ScalarNode) -> None:
    if node.tag in _NUMBERS and len(node.value) > LONGEST_NUMBER:
        raise _wrong(node, "the number is too long")
    try:
        node.value.encode()
    except UnicodeEncodeError:
        raise _wrong(node, "half of a surrogate pair is no text; write the character itself") from None


def _check_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _wrong(key, "a list or mapping cannot be a key")
        if key.value in seen and key.tag != _MERGE:
            raise _wrong(key, f"{key.value} is said twice")
        seen.add(key.value)


def _wrong(node: yaml.Node, problem: str) -> ValueError:
    return ValueError(f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}: {problem}")


def _one_line(error: yaml.YAMLError) -> str:
    """What PyYAML says, with the place in it."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
