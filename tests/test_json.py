"""The JSON that comes in and goes out: exact, bounded, and the same by the short way and by the long one."""

from __future__ import annotations

import json as python_json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from json_bodies import LONG, WIRE, array_of, both, same_array
from prefork.errors import BadRequest
from prefork.protocols import json
from vectors import same_json


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_non_finite_numbers_are_taken(literal):
    """NaN, the infinities, and numbers too large for float64 are taken, as Python's own json does."""
    for found in both(f'{{"data":{{"array":[[{literal},1]]}}}}'):
        wanted = np.array(python_json.loads(f"[[{literal},1]]"))
        assert same_array(array_of(found.data.array), wanted)


def test_big_integers_are_exact():
    """Integers of more than 64 bits are Python's."""
    for found in both('{"note":123456789012345678901234567890}'):
        assert found.note == 123456789012345678901234567890
    with pytest.raises(BadRequest):
        WIRE.decode(b'{"note":[NaN,' + b"9" * 5000 + b"]}")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b'{"data":',
        b'{"note":1} x',
        b"{'note':1}",
        b'{"note":01}',
        b'{"note":+1}',
        b'{"note":.5}',
        b'{"note":nan}',
        b'{"note":[1,]}',
        b'{"note":"\x01"}',
        b'{"note":"\xff"}',
        b'{"note":"\xed\xa0\x80"}',
        b'{"\xff":1}',
        b'{"note":"\\ud800"}',
        b'{"note":["\\udc00",NaN]}',
        b'{"note":["\xff",NaN]}',
        b'\xef\xbb\xbf{"note":1}',
        '{"note":1}'.encode("utf-16"),
    ],
)
def test_what_is_no_json_is_refused(body):
    """What is no JSON text in UTF-8 is a 400, short or long."""
    for each in (body, body + LONG.encode(), LONG.encode() + body):
        with pytest.raises(BadRequest, match="not JSON: "):
            WIRE.decode(each)


def test_errors_say_where():
    """A syntax error names its byte, a value of the wrong type its path."""
    with pytest.raises(BadRequest, match=r"the body is not JSON: .*\(byte 9\)"):
        WIRE.decode(b'{"note": x}')
    for body in (b'{"data":{"names":3}}', b'{"data":{"names":3}}' + LONG.encode()):
        with pytest.raises(BadRequest, match=r"at `\$\.data\.names`"):
            WIRE.decode(body)
    with pytest.raises(BadRequest, match=r"^No: "):
        json.Wire(Any, complaint="No").decode(b"{")


@pytest.mark.parametrize("body", ['{"note":1,"note":2}', '{"data":{"array":[1]},"data":{"array":[2]},"note":2}'])
def test_the_last_of_equal_keys_counts(body):
    """Of two equal keys the last one counts."""
    for found in both(body):
        assert found.note == 2
        assert found.data is None or array_of(found.data.array).tolist() == [2]


def test_keys_that_are_hard_to_look_up():
    """Keys with a NUL, empty keys and very many keys are read by the long way as by the short one."""
    for found in both('{"note\\u0000":1,"":2,"note":3}'):
        assert found.note == 3
    body = {f"k{at}": at for at in range(5000)} | {"note": {"a\0b": 1, "a": 2}}
    assert WIRE.decode(python_json.dumps(body).encode()).note == {"a\0b": 1, "a": 2}


def test_text_and_views_are_bodies_too():
    """A str and a memoryview decode as bytes do; a str with a lone surrogate is a 400."""
    assert WIRE.decode('{"note":"é"}').note == "é"
    assert WIRE.decode(memoryview(b'{"note":1}')).note == 1
    with pytest.raises(BadRequest):
        WIRE.decode('{"note":"\ud800"}')


def test_threads_do_not_disturb_each_other():
    """Threads that decode at once each get their own numbers."""
    wrong = []

    def work(number: int) -> None:
        body = python_json.dumps({"data": {"array": [[number, number + 0.5]] * 500}}).encode()
        for _ in range(50):
            found = WIRE.decode(body).data.array
            if not (found == [number, number + 0.5]).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_specs_are_short_to_write():
    """None in a spec is an array, a list of one spec is for every element, and so is the key `*`."""
    body = python_json.dumps({"a": [[1.5]] * 500, "b": [{"c": [1] * 500}], "d": [[2] * 500]}).encode()
    found = json.Wire(dict[str, Any], {"a": None, "b": [{"c": None}], "d": {"*": json.ARRAY}}).decode(body)
    assert found["a"].shape == (500, 1)
    assert found["b"][0]["c"].shape == found["d"][0].shape == (500,)
    assert isinstance(json.Wire(Any, json.ARRAY).decode(b"[1.5" + b",1" * 2000 + b"]"), np.ndarray)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@settings(deadline=None)
@given(json_values, st.sampled_from(["null", "literal"]))
def test_json_values_come_back(value, nan):
    """What is JSON already comes back as the same value, integers of any size included, sorted or not."""
    assert same_json(json.encode(value, nan=nan), python_json.dumps(value))
    assert same_json(json.encode(value, nan=nan, sort=True), python_json.dumps(value))
    if len(json.encode(value)) < 2000:
        assert same_json(json.encode(json.Wire(Any).decode(json.encode(value))), python_json.dumps(value))


def test_keys_are_sorted_when_asked_for():
    """`sort` orders the keys at every level, `newline` ends the text with one."""
    value = {"b": {"d": 1, "c": 2}, "a": np.array([{"z": 1, "y": 2}], dtype=object)}
    assert json.encode(value, sort=True, newline=True) == b'{"a":[{"y":2,"z":1}],"b":{"c":2,"d":1}}\n'
    assert json.encode({2: 0, 10: 0}, sort=True) == b'{"10":0,"2":0}'
