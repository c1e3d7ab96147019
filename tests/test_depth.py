"""How deep bodies may nest."""

from __future__ import annotations

import json as python_json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from json_bodies import LONG, WIRE
from prefork.errors import BadRequest
from prefork.protocols import depth


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("padding", ["", LONG])
def test_nesting_is_bounded(opening, padding):
    """A body nested deeper than max_depth is a 400 before anything recurses into it; one of that depth is taken."""
    closing = {"[": "]", '{"a":': "}", '[{"a":': "}]"}[opening]
    levels = len(closing)

    def nested(times: int) -> bytes:
        return (f'{{"note":{opening * times}1{closing * times}}}' + padding).encode()

    assert WIRE.decode(nested(98 // levels)).note
    for times in (100, 1010 // levels, 5000, 200_000):
        with pytest.raises(BadRequest, match="deeper than 100"):
            WIRE.decode(nested(times))
    assert WIRE.decode(nested(200 // levels), max_depth=300).note
    with pytest.raises(BadRequest, match="nests too deep"):
        WIRE.decode(nested(200_000), max_depth=1_000_000)


@pytest.mark.parametrize("spec", ["data", "items"])
def test_nesting_of_arrays_is_bounded(spec):
    """Lists where numbers are expected count as any others."""
    deep = "[" * 120 + "1" + "]" * 120
    body = f'{{"data":{{"array":{deep}}}}}' if spec == "data" else f'{{"items":[{{"array":[[1,2],[3,{deep}]]}}]}}'
    for each in (body, body + LONG):
        with pytest.raises(BadRequest, match="deeper than 100"):
            WIRE.decode(each.encode())


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@settings(deadline=None)
@given(
    st.recursive(
        st.text(alphabet='[]{}"\\a', max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\[{', max_size=2), inner, max_size=2),
    )
)
def test_depth_is_told_from_the_text(value):
    """The depth of a text is that of its value, whatever brackets, quotes and backslashes its strings hold."""
    assert depth.depth(python_json.dumps(value).encode()) == depth_of(value)


def test_depth_over_chunks():
    """A text of many megabytes, whose strings run over the chunks, has its depth too."""
    value = [["[" * 700_000 + '"' * 700_001], ["{" * 1_500_000]] * 2
    assert depth.depth(python_json.dumps(value).encode()) == 2


def test_many_rows_are_not_deep():
    """Thousands of brackets side by side are fine."""
    assert len(WIRE.decode(b'{"note":[' + b"[1]," * 5000 + b"[1]]}").note) == 5001
