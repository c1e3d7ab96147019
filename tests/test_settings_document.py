"""YAML as prefork.yaml and model.yaml are read: nothing is changed silently, and nothing in it hurts the server."""

from __future__ import annotations

import pytest

from prefork.settings.document import read

LAUGHS = "\n".join(
    ["a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    + [
        f"{name}: &{name} [{', '.join(['*' + before] * 9)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
)


@pytest.mark.parametrize("word", ["2024-01-01", "2024-01-01 10:00:00", "2024-13-45", "1:30", "12:30:45.5", "010", "="])
def test_what_looks_like_a_date_is_text(word):
    """What YAML 1.1 would turn into a date, or a number of another base, stays the text that was written."""
    assert read(f"key: {word}") == {"key": word}


def test_plain_values_are_read():
    """Text, numbers, true and false, nothing, lists and mappings, by alias too; an empty document is nothing."""
    text = "a: &a [1, -2.5, 0x10, yes, null, 'x', !!str 3]\nb: *a\nc: {<<: {A: a}, B: b}\n"
    values = [1, -2.5, 16, True, None, "x", "3"]
    assert read(text) == {"a": values, "b": values, "c": {"A": "a", "B": "b"}}
    assert read("# nothing\n") is None
    assert read("a: ä".encode()) == {"a": "ä"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", "line 4, column 3: c is said twice"),
        ("a: {b: [1}", "line 1, column 10: "),
        ("a: 1\n---\nb: 1", "line 2, column 1: but found another document"),
        (LAUGHS, "its aliases repeat over 100000 values"),
        ("a: &a {b: *a}", "line 1, column 4: it contains itself, by an alias"),
        ("a: " + "[" * 200 + "]" * 200, "it nests deeper than 100 levels"),
        ("a: " + "[" * 5000 + "]" * 5000, "it nests deeper than 100 levels"),
        ("a: " + "9" * 5000, "line 1, column 4: the number is too long"),
        ('a: "\\ud800"', "line 1, column 4: half of a surrogate pair is no text"),
        ('"\\ud800": 1', "line 1, column 1: half of a surrogate pair is no text"),
        ("a: !!timestamp 2024-01-01", "line 1, column 4: the tag !!timestamp has no meaning here"),
        ("a: !!binary aGVsbG8=", "the tag !!binary has no meaning here"),
        ("a: !!set {b, c}", "the tag !!set has no meaning here"),
        ("a: !!python/object/apply:os.system [x]", "has no meaning here; a plain value is needed"),
        ("a: !b c", "the tag !b has no meaning here"),
        ("a: !!int x", "invalid literal for int"),
        ("a: !!bool x", "a value does not fit its tag"),
        ("? [a]\n: 1", "a list or mapping cannot be a key"),
        ("a: *b", "line 1, column 4: found undefined alias"),
        ("a: \0", "unacceptable character"),
    ],
    ids=lambda each: each[:30].encode("unicode_escape").decode(),
)
def test_what_cannot_be_meant_is_one_line(text, problem):
    """Whatever is no plain document is a ValueError of one line, which says where."""
    with pytest.raises(ValueError, match=r"^.") as caught:
        read(text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
