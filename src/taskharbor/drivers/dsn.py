"""DSNs: the store's address and its options, parsed the same way for every driver.

A DSN may contain a password, so nothing here repeats one: errors show `redact(dsn)`.

`options_of` splits the options, and the functions after it turn one into its value. Each takes the options by name, the
one that is wanted and its default, and raises ValueError with what was expected and what came. A value is cut to 40
characters there: it may be a password that lost its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import parse_qsl, unquote, urlsplit

from taskharbor.drivers.base import DEFAULT_RETENTION
from taskharbor.model.bounds import MAX_PAYLOAD_BYTES
from taskharbor.model.times import LONGEST

UNREADABLE = "it cannot be read; write any of / ? # @ : % in a password as %2F %3F %23 %40 %3A %25"

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(?=:)", re.IGNORECASE)
_HOSTS = re.compile(r"(?:(?:[\w.-]*|\[[0-9a-fA-F:.%\w]+\])(?::\d*)?(?:,|$))*")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")
_MOST_DIGITS = 9
_UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def scheme_of(dsn: str) -> str:
    """The scheme in lower case, or ValueError with examples of a DSN."""
    match = _SCHEME.match(dsn)
    if match is None:
        got = "one without a scheme" if dsn.strip() else "an empty one; is the setting that it comes from set?"
        raise ValueError(f"expected a DSN such as sqlite:///jobs.db, postgresql://host/db or memory://, got {got}")
    return match.group().lower()


def redact(dsn: str) -> str:
    """The DSN without what may be secret: user, password and options. Anything that might be secret is left out.

    >>> redact("postgresql://app:s3cret@db.example:5432/jobs?sslpassword=x")
    'postgresql://…@db.example:5432/jobs?…'
    """
    scheme, slashes, rest = dsn.partition("://")
    match = _SCHEME.match(dsn)
    if match is None or not slashes or match.group() != scheme:
        return "…" if match is None else f"{match.group()}:…"
    head, mark, tail = _cut(rest)
    if "@" in tail:
        return f"{scheme}://…"  # a password with an unescaped "?" or "#" in it: where it ends is unknown
    _, at, shown = head.rpartition("@")
    where, slash, path = shown.partition("/")
    if _HOSTS.fullmatch(where) is None:
        where = "…"  # "redis://:password": this is not a host
    path = _UNPRINTABLE.sub("…", path)
    return f"{scheme}://{'…@' if at else ''}{where}{slash}{path}{'?…' if mark else ''}"


def conceals(dsn: str, text: str) -> bool:
    """Whether a text about this DSN can be shown: it repeats no part of the user or password in it."""
    who = _who(dsn)
    if who is None:
        return False
    words = _words(who)
    return who not in text if len(who) > 2 and not words else not any(word in text for word in words)


def concealed(dsn: str, text: str) -> str:
    """The text with every part of the user or password left out; empty if the end of the credentials cannot be found.

    >>> concealed("postgresql://ada:s3cret@db/jobs", 'password authentication failed for user "ada"')
    'password authentication failed for user "…"'
    """
    who = _who(dsn)
    for word in sorted(_words(who or ""), key=len, reverse=True):
        text = text.replace(word, "…")
    return text if conceals(dsn, text) else ""


def _who(dsn: str) -> str | None:
    """What may be a user and a password in a DSN; None if the end of the credentials cannot be found."""
    _, slashes, rest = dsn.partition("://")
    head, _, tail = _cut(rest)
    if "@" in tail or not slashes:
        return None
    who, at, where = head.rpartition("@")
    if not at and _HOSTS.fullmatch(where.partition("/")[0]) is None:
        who = where  # "redis://:secret": not a host, so it may be anything
    return who


def _words(who: str) -> list[str]:
    return re.findall(r"\w{3,}", f"{who} {unquote(who)}")  # parsers drop or decode the characters between them


def _cut(rest: str) -> tuple[str, str, str]:
    """The part before the first "?" or "#", that mark, and the part after it."""
    found = re.search(r"[?#]", rest)
    return (rest, "", "") if found is None else (rest[: found.start()], found.group(), rest[found.end() :])


def options_of(dsn: str, known: frozenset[str]) -> dict[str, str]:
    """The options behind the `?`, or ValueError naming one that this driver does not know.

    >>> options_of("mystore://host/jobs?retention=36h", frozenset({"retention"}))
    {'retention': '36h'}
    """
    options = dict(parse_qsl(urlsplit(dsn).query, keep_blank_values=True))
    for name in options:
        if name not in known:
            shown = repr(name) if re.fullmatch(r"\w{1,40}", name) and conceals(dsn, name) else "(its name is not shown)"
            expected = ", ".join(sorted(known)) or "none"
            raise ValueError(f"unknown option {shown} in the DSN; expected one of: {expected}")
    return options


def span(text: str, what: str) -> timedelta:
    """A duration in a DSN: seconds, or a number with ms, s, m, h or d.

    >>> span("36h", "retention")
    datetime.timedelta(days=1, seconds=43200)
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{what}: expected a duration such as 3600, 90s or 24h, got {text!r}")
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > LONGEST.total_seconds():
        raise ValueError(f"{what}: expected at most {LONGEST.days} days, got {text[:40]!r}")
    return timedelta(seconds=seconds)


def retention_of(options: Mapping[str, str]) -> timedelta:
    """`retention`: how long done and cancelled jobs are kept.

    >>> retention_of({"retention": "36h"})
    datetime.timedelta(days=1, seconds=43200)
    """
    return span(options["retention"], "retention") if "retention" in options else DEFAULT_RETENTION


def max_payload_of(options: Mapping[str, str]) -> int:
    """`max_payload`: the largest payload in bytes.

    >>> max_payload_of({"max_payload": "65536"}), max_payload_of({})
    (65536, 1048576)
    """
    return number_of(options, "max_payload", MAX_PAYLOAD_BYTES, "a number of bytes")


def number_of(options: Mapping[str, str], name: str, default: int, what: str, minimum: int = 1) -> int:
    """A whole number, at least `minimum`. `what` says what is counted: "a number of connections".

    >>> number_of({"pool": "4"}, "pool", 10, "a number of connections")
    4
    """
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS or int(text) < minimum:
        raise ValueError(f"{name}: expected {what}, got {text[:40]!r}")
    return int(text)


def seconds_of(options: Mapping[str, str], name: str, default: str, *, zero: bool = False) -> float:
    """A duration in seconds; `zero`: whether it may be none at all.

    >>> seconds_of({}, "timeout", "1500ms")
    1.5
    """
    text = options.get(name, default)
    seconds = span(text, name).total_seconds()
    if seconds <= 0 and not zero:
        raise ValueError(f"{name}: expected more than zero seconds, got {text[:40]!r}")
    return seconds


def flag_of(options: Mapping[str, str], name: str, default: bool) -> bool:
    """0 or 1.

    >>> flag_of({"create": "0"}, "create", True)
    False
    """
    text = options.get(name, "1" if default else "0")
    if text not in ("0", "1"):
        raise ValueError(f"{name}: expected 0 or 1, got {text[:40]!r}")
    return text == "1"


def choice_of(options: Mapping[str, str], name: str, *choices: str) -> str:
    """One of some words, of which the first is the default.

    >>> choice_of({}, "durability", "full", "normal")
    'full'
    """
    text = options.get(name, choices[0])
    if text not in choices:
        raise ValueError(f"{name}: expected {', '.join(choices[:-1])} or {choices[-1]}, got {text[:40]!r}")
    return text
