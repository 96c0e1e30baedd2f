"""Options of a DSN, read the same way for every driver: `options_of` splits them, these turn each into its value.

Every function takes the options by name, the one that is wanted and its default, and raises ValueError with what was
expected and what came. A value is cut to 40 characters there: it may be a password that lost its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from taskharbor.drivers.base import DEFAULT_RETENTION
from taskharbor.drivers.dsn import span
from taskharbor.model.bounds import MAX_PAYLOAD_BYTES

_MOST_DIGITS = 9


def retention_of(options: Mapping[str, str]) -> timedelta:
    """`retention`: how long done and cancelled jobs are kept.

    >>> retention_of({"retention": "36h"})
    datetime.timedelta(days=1, seconds=43200)
    """
    return span(options["retention"], "retention") if "retention" in options else DEFAULT_RETENTION


def max_payload_of(options: Mapping[str, str]) -> int:
    """`max_payload`: the largest payload in bytes."""
    return number_of(options, "max_payload", MAX_PAYLOAD_BYTES, "a number of bytes")


def number_of(options: Mapping[str, str], name: str, default: int, what: str, minimum: int = 1) -> int:
    """A whole number. `what` says what is counted: "a number of connections"."""
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS or int(text) < minimum:
        raise ValueError(f"{name}: expected {what}, got {text[:40]!r}")
    return int(text)


def seconds_of(options: Mapping[str, str], name: str, default: str, *, zero: bool = False) -> float:
    """A duration in seconds; `zero`: whether it may be none at all."""
    text = options.get(name, default)
    seconds = span(text, name).total_seconds()
    if seconds <= 0 and not zero:
        raise ValueError(f"{name}: expected more than zero seconds, got {text[:40]!r}")
    return seconds


def flag_of(options: Mapping[str, str], name: str, default: bool) -> bool:
    """0 or 1."""
    text = options.get(name, "1" if default else "0")
    if text not in ("0", "1"):
        raise ValueError(f"{name}: expected 0 or 1, got {text[:40]!r}")
    return text == "1"


def choice_of(options: Mapping[str, str], name: str, *choices: str) -> str:
    """One of some words, of which the first is the default."""
    text = options.get(name, choices[0])
    if text not in choices:
        raise ValueError(f"{name}: expected {', '.join(choices[:-1])} or {choices[-1]}, got {text[:40]!r}")
    return text
