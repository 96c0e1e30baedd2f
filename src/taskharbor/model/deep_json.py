"""JSON of any depth, read and written without recursion.

A store also keeps what other programs wrote, and that may be nested deeper than Python's recursion limit. msgspec
reads all the rest; only a document that makes it give up is read token by token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

DEEP = 100
"""Levels beyond which a structure is written in one line: indenting it would take quadratic space."""

_TOKEN = re.compile(r'[ \t\r\n]*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null)|($))', re.DOTALL)
_ENDS = {("}", dict), ("]", list)}
_SCALAR = re.compile(
    r'"(?:[^"\\]|\\.)*+"?|-?\d[\d.eE+-]*', re.DOTALL
)  # a text may end with the data: each is read once


def read(data: bytes) -> Any:
    """The value of a JSON document, or ValueError.

    >>> read(b'{"a": [1, "two"]}')
    {'a': [1, 'two']}
    """
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        return _parsed(data.decode())


def write(value: Any) -> bytes:
    """A value of dicts, lists and scalars as JSON, in one line."""
    parts: list[bytes] = []
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, msgspec.Raw):
            parts.append(bytes(item))
        elif isinstance(item, dict):
            waiting.append(_CLOSE_OBJECT)
            for number, (key, child) in enumerate(reversed(item.items())):
                comma = b"" if number == len(item) - 1 else b","
                waiting += (child, msgspec.Raw(comma + msgspec.json.encode(str(key)) + b":"))
            parts.append(b"{")
        elif isinstance(item, list):
            waiting.append(_CLOSE_LIST)
            for number, child in enumerate(reversed(item)):
                waiting.append(child)
                if number < len(item) - 1:
                    waiting.append(_COMMA)
            parts.append(b"[")
        else:
            parts.append(msgspec.json.encode(item))
    return b"".join(parts)


_CLOSE_OBJECT, _CLOSE_LIST, _COMMA = msgspec.Raw(b"}"), msgspec.Raw(b"]"), msgspec.Raw(b",")


def is_deep(value: Any) -> bool:
    """Whether a value has more than `DEEP` levels."""
    level = [value]
    for _ in range(DEEP):
        level = [child for item in level for child in children(item)]
        if not level:
            return False
    return True


def children(value: Any) -> Iterator[Any]:
    """The items of a dict, list, tuple or set. By its class, because an object's own methods may raise."""
    kind = type(value)
    if issubclass(kind, dict):
        yield from dict.values(value)
    else:
        for container in (list, tuple, set, frozenset):
            if issubclass(kind, container):
                yield from container.__iter__(value)


def scalars_of(text: str) -> Iterator[Any]:
    """The texts and numbers in text that looks like JSON but may be malformed.

    >>> list(scalars_of('{"to": "ada", "n": [12, "ev'))
    ['to', 'ada', 'n', 12, 'ev']
    """
    for found in _SCALAR.finditer(text):
        try:
            yield msgspec.json.decode(found.group())
        except (msgspec.DecodeError, UnicodeEncodeError):
            yield found.group().strip('"')


def _parsed(text: str) -> Any:
    """Decode with an explicit stack. A key is a text that is followed by a colon."""
    top: list[Any] = []
    stack: list[Any] = [top]
    keys: list[str] = []  # of the objects on the stack whose value is being read
    wants = "value"  # or: first (value or end), key, first key (key or end), colon, next (comma or end)
    at = 0
    while True:
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"no JSON at character {at}")
        at = found.end()
        mark, scalar = found[1], found[2]
        inside = stack[-1]
        if found[3] is not None:
            if len(stack) == 1 and wants == "next":
                return top[0]
            raise ValueError("the JSON ends too early")
        if scalar is not None and wants in ("key", "first key") and scalar[0] == '"':
            keys.append(msgspec.json.decode(scalar))
            wants = "colon"
        elif scalar is not None and wants in ("value", "first"):
            _put(inside, keys, msgspec.json.decode(scalar))
            wants = "next"
        elif mark in ("{", "[") and wants in ("value", "first"):
            new: Any = {} if mark == "{" else []
            _put(inside, keys, new)
            stack.append(new)
            wants = "first key" if mark == "{" else "first"
        elif len(stack) > 1 and (mark, type(inside)) in _ENDS and wants in ("first", "first key", "next"):
            stack.pop()
            wants = "next"
        elif mark == "," and wants == "next" and len(stack) > 1:
            wants = "key" if isinstance(inside, dict) else "value"
        elif mark == ":" and wants == "colon":
            wants = "value"
        else:
            raise ValueError(f"no JSON at character {found.start()}")


def _put(inside: Any, keys: list[str], value: Any) -> None:
    if isinstance(inside, dict):
        inside[keys.pop()] = value
    else:
        inside.append(value)
