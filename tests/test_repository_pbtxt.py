"""The reader of protobuf's text format."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.repository import pbtxt
from prefork.repository.pbtxt import PbtxtError, Word

READ = [
    ("", {}),
    ("# nothing\n  # at all", {}),
    ('name: "two"', {"name": ["two"]}),
    ("name : 'it''s' # joined", {"name": ["its"]}),
    ('a: "one" # comment\n  "two"\n', {"a": ["onetwo"]}),
    (r'a: "\n\t\\\"\'\101\x41\u00e9\U0001F600"', {"a": ["\n\t\\\"'AA\u00e9\U0001f600"]}),
    (r'a: "\303\251"', {"a": ["\u00e9"]}),
    ("a: 1 a: 2", {"a": [1, 2]}),
    ("a: [1, -2, 0x1F, 017, 0]", {"a": [1, -2, 31, 15, 0]}),
    ("a: [ ]", {"a": []}),
    ("a: - 5", {"a": [-5]}),
    (
        "a: 1.5 b: .5 c: 2. d: 1e3 e: 3f f: -2.5e-1F",
        {"a": [1.5], "b": [0.5], "c": [2.0], "d": [1e3], "e": [3.0], "f": [-0.25]},
    ),
    ("kind: KIND_GPU, on: true; off: False", {"kind": ["KIND_GPU"], "on": ["true"], "off": ["False"]}),
    ("a { b { c: 1 } }", {"a": [{"b": [{"c": [1]}]}]}),
    ("a: < b: 1 > a { }", {"a": [{"b": [1]}, {}]}),
    ("input [ { name: 'A' }, { name: 'B' } ]", {"input": [{"name": ["A"]}, {"name": ["B"]}]}),
    ("input: [{dims: [-1]}]", {"input": [{"dims": [-1]}]}),
    ("e1: 2", {"e1": [2]}),
]

REFUSED = [
    ("a", "line 1, column 2: ':'"),
    ("a:", "line 1, column 3: a value"),
    ("a: }", "line 1, column 4: a value"),
    ("a {", "line 1, column 4: the name of a field"),
    ("a { b: 1 >", "line 1, column 10: the name of a field"),
    ("}", "line 1, column 1: the name of a field"),
    ("\n\n  a: [1 2]", "line 3, column 9: ',' or ']'"),
    ("a: [1,]", "line 1, column 7: a value"),
    ("a [1]", "line 1, column 3: ':'"),
    ('a: "open', "line 1, column 4: '\"' is not understood"),
    ('a: "two\nlines"', "is not understood"),
    (r'a: "\q"', r"there is no escape \q"),
    (r'a: "\777"', "line 1, column 4"),
    (r'a: "\xff"', "it is not UTF-8"),
    (r'a: "\ud800"', "line 1, column 4"),
    (r'a: "\UFFFFFFFF"', "line 1, column 4"),
    ("[pkg.ext]: 1", "the name of a field"),
    ("-a: 1", "the name of a field"),
    ("1: 2", "the name of a field"),
    ("a: " + "9" * 5000, "line 1, column 4: the number is too long"),
    ("a: @", "'@' is not understood"),
    ("a{" * 101 + "}" * 101, "nest deeper than 100"),
]


@pytest.mark.parametrize(("text", "message"), READ, ids=[text[:24] for text, _ in READ])
def test_what_is_read(text: str, message: dict[str, Any]):
    """Each notation of the format is the value that protobuf gives it."""
    assert pbtxt.read(text) == message


@pytest.mark.parametrize(("text", "problem"), REFUSED, ids=[text[:24] for text, _ in REFUSED])
def test_what_is_refused(text: str, problem: str):
    """What is not the format is an error that says where."""
    with pytest.raises(PbtxtError) as caught:
        pbtxt.read(text)
    assert problem in str(caught.value)
    assert str(caught.value).startswith("line ")


def test_words_are_told_from_texts():
    """An enum's value is no text in quotes."""
    message = pbtxt.read("a: TRUE b: 'TRUE'")
    assert isinstance(message["a"][0], Word)
    assert not isinstance(message["b"][0], Word)


def test_a_message_of_the_greatest_depth_is_read():
    """A hundred messages in each other are as many as there may be."""
    assert pbtxt.read("a{" * 100 + "}" * 100).keys() == {"a"}


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
SCALARS = (
    st.text()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["KIND_GPU", "true", "TYPE_FP32"]).map(Word)
)
MESSAGES: Any = st.recursive(
    st.dictionaries(NAMES, st.lists(SCALARS, min_size=1, max_size=3), max_size=4),
    lambda inner: st.dictionaries(NAMES, st.lists(inner, min_size=1, max_size=3), max_size=3),
    max_leaves=12,
)


def written(message: dict[str, list[Any]], dice: random.Random) -> str:
    """The message as text, in one of the many ways that it may be written."""
    fields = []
    for name, values in message.items():
        space = dice.choice([" ", "\n", "\t# note }\n"])
        if dice.random() < 0.5 and len(values) > 1:
            fields.append(f"{name}:{space}[{f',{space}'.join(value_of(value, dice) for value in values)}]")
        else:
            colons = [dice.choice([":", ""]) if isinstance(value, dict) else ":" for value in values]
            fields += [f"{name}{c}{space}{value_of(v, dice)}" for c, v in zip(colons, values, strict=True)]
    return dice.choice(["\n", ", ", "; "]).join(fields)


def value_of(value: Any, dice: random.Random) -> str:
    if isinstance(value, dict):
        opening, closing = dice.choice(["{}", "<>"])
        return f"{opening} {written(value, dice)} {closing}"
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, str):
        return text_of(value, dice)
    if isinstance(value, int):
        return dice.choice([str(value), hex(value)])
    number = repr(value)
    return number + dice.choice(["", "f"]) if "." in number or "e" in number else f"{number}.0"


def text_of(value: str, dice: random.Random) -> str:
    quote = dice.choice("\"'")
    plain = [each if 32 <= each < 127 and chr(each) not in f"\\{quote}" else None for each in value.encode()]
    escaped = [chr(p) if p else f"\\{each:03o}" for p, each in zip(plain, value.encode(), strict=True)]
    at = dice.randint(0, len(escaped))
    return f"{quote}{''.join(escaped[:at])}{quote} {quote}{''.join(escaped[at:])}{quote}"


@given(MESSAGES, st.integers(0, 2**32))
def test_what_is_written_is_read_back(message: dict[str, Any], seed: int):
    """Any message, written in any of the format's ways, is read back to the bit, and words stay words."""
    found = pbtxt.read(written(message, random.Random(seed)))
    assert found == message
    assert kinds(found) == kinds(message)


def kinds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: kinds(each) for name, each in value.items()}
    if isinstance(value, list):
        return [kinds(each) for each in value]
    return type(value), math.copysign(1, value) if isinstance(value, float) else 0


@given(st.text(alphabet="ab01{}<>[]:,;.-+xef\"'\\# \n") | st.text())
def test_any_text_is_read_or_refused(text: str):
    """No text does anything but give a message or say where it is wrong."""
    try:
        found = pbtxt.read(text)
    except PbtxtError:
        return
    assert isinstance(found, dict)
