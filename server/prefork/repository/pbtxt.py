r"""Protocol buffers' text format to Python, without the message's definition.

`read` gives a mapping of every field to the list of what it was given: text, `Word` (an enum's value, true, inf),
int, float, or a mapping again. `[1, 2]` and repeating the field say the same. Comments, `<>` for `{}`, `,` and `;` between
fields, adjacent texts and every escape are read; extensions (`[package.field]`) are refused.
Source of the format: protobuf.dev/reference/protobuf/textformat-spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

Message = dict[str, list[Any]]
MAX_DEPTH = 100
LONGEST_NUMBER = 1000

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<float>-?\s*(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?|-?\s*\d+(?:[eE][+-]?\d+[fF]?|[fF])(?!\w))
    |(?P<int>-?\s*(?:0[xX][0-9a-fA-F]+|\d+))
    |(?P<word>-?\s*[A-Za-z_]\w*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"} | {
    each: each for each in (b"\\", b"'", b'"', b"?")
}
_CLOSING = {"{": "}", "<": ">"}


class PbtxtError(ValueError):
    """The text is none of this format; the message says line and column."""


class Word(str):
    """What stands without quotes and is no number: an enum's value, `true`, `inf`."""

    __slots__ = ()


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def read(text: str) -> Message:
    """The whole text as one message. Raises PbtxtError."""
    return _Reader(text).fields("")


class _Reader:
    """Reads the tokens one by one, with one of them in sight."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = next(self._tokens)
        self._depth = 0

    def fields(self, closing: str) -> Message:
        """The fields up to the closing mark, or to the end of the text where it is none."""
        message: Message = {}
        while self._next.text != closing or self._next.kind not in ("mark", "end"):
            name = self._take("word", "the name of a field")
            if not name.text[0].isalpha() and name.text[0] != "_":
                raise self._wrong("the name of a field is needed", name)
            message.setdefault(name.text, []).extend(self._field())
            if self._next.text in (",", ";") and self._next.kind == "mark":
                self._advance()
        self._advance()
        return message

    def _field(self) -> list[Any]:
        """The values of one field, from behind its name. Only messages may do without the colon."""
        first = self._next
        if self._at(":"):
            self._advance()
            return self._values()
        values = self._values() if self._at("{<[") else [None]
        if not all(isinstance(value, dict) for value in values):
            raise self._wrong("':' is needed", first)
        return values

    def _values(self) -> list[Any]:
        """One value, or those of a list."""
        if not self._at("["):
            return [self._value()]
        self._advance()
        values: list[Any] = []
        while not self._at("]"):
            values.append(self._value())
            if not self._at(",]"):
                raise self._wrong("',' or ']' is needed", self._next)
            if self._at(","):
                self._advance()
                if self._at("]"):
                    raise self._wrong("a value is needed", self._next)
        self._advance()
        return values

    def _value(self) -> Any:
        token = self._advance()
        if token.kind == "mark" and token.text in _CLOSING:
            return self._message(token)
        if token.kind == "text":
            return self._string(token)
        if len(token.text) > LONGEST_NUMBER and token.kind in ("int", "float"):
            raise self._wrong("the number is too long", token)
        if token.kind in ("int", "float", "word"):
            return _scalar(token)
        raise self._wrong("a value is needed", token)

    def _message(self, opening: _Token) -> Message:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"messages nest deeper than {MAX_DEPTH}", opening)
        message = self.fields(_CLOSING[opening.text])
        self._depth -= 1
        return message

    def _string(self, first: _Token) -> str:
        parts = [first]
        while self._next.kind == "text":
            parts.append(self._advance())
        try:
            return b"".join(_ESCAPE.sub(_unescaped, part.text[1:-1].encode()) for part in parts).decode()
        except (ValueError, OverflowError) as error:
            problem = "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)
            raise self._wrong(f"the text cannot be read: {problem}", first) from None

    def _at(self, marks: str) -> bool:
        return self._next.kind == "mark" and self._next.text in marks

    def _take(self, kind: str, what: str) -> _Token:
        token = self._advance()
        if token.kind != kind:
            raise self._wrong(f"{what} is needed", token)
        return token

    def _advance(self) -> _Token:
        token = self._next
        self._next = next(self._tokens, token)
        return token

    def _split(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise self._wrong(f"{self._text[at]!r} is not understood", _Token("", "", at))
            kind = match.lastgroup or ""
            if kind != "space":
                yield _Token(kind, match[0], at)
            at = match.end()
        yield _Token("end", "", at)

    def _wrong(self, problem: str, token: _Token) -> PbtxtError:
        before = self._text[: token.at]
        line, column = before.count("\n") + 1, token.at - (before.rfind("\n") + 1) + 1
        return PbtxtError(f"line {line}, column {column}: {problem}")


def _scalar(token: _Token) -> Any:
    text = "".join(token.text.split())
    if token.kind == "word":
        return Word(text)
    if token.kind == "float":
        return float(text.rstrip("fF"))
    digits = text.lstrip("-")
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" and set(digits) <= set("01234567") else 10
    return int(text, base)


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, plain = match.groups()
    if octal is not None:
        return bytes([int(octal, 8)])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if plain is None:
        return chr(int(short or long, 16)).encode()
    if plain not in _PLAIN:
        raise ValueError(f"there is no escape \\{plain.decode(errors='replace')}")
    return _PLAIN[plain]
