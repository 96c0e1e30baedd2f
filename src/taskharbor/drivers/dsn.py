"""DSNs: the store's address and its options, read the same way for every driver.

A DSN may carry a password, so nothing here repeats one: errors show `redact(dsn)`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(?=:)", re.IGNORECASE)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def scheme_of(dsn: str) -> str:
    """The scheme in lower case, or ValueError that says what a DSN looks like."""
    match = _SCHEME.match(dsn)
    if match is None:
        raise ValueError(
            "expected a DSN such as sqlite:///jobs.db, postgresql://host/db or memory://, got one without a scheme"
        )
    return match.group().lower()


def redact(dsn: str) -> str:
    """The DSN without what may be secret: user, password and options.

    >>> redact("postgresql://app:s3cret@db.example:5432/jobs?sslpassword=x")
    'postgresql://…@db.example:5432/jobs?…'
    """
    try:
        parts = urlsplit(dsn)
        scheme, where, path = parts.scheme, parts.netloc, parts.path
    except ValueError:
        return f"{dsn.split(':', 1)[0]}:…"
    if "@" in where:
        where = "…@" + where.rsplit("@", 1)[1]
    # A password with an unescaped "/", "?" or "#" in it ends up in what parses as the path or the options.
    path = "…@" + path.rsplit("@", 1)[1] if "@" in path else path
    hidden = "?…" if parts.query or parts.fragment else ""
    return f"{scheme}://{where}{path}{hidden}"


def options_of(dsn: str, known: frozenset[str]) -> dict[str, str]:
    """The options behind the `?`, or ValueError naming one that this driver does not know."""
    options = dict(parse_qsl(urlsplit(dsn).query, keep_blank_values=True))
    for name in options:
        if name not in known:
            raise ValueError(
                f"unknown option {name!r} in the DSN; expected one of: {', '.join(sorted(known)) or 'none'}"
            )
    return options


def span(text: str, what: str) -> timedelta:
    """A duration in a DSN: seconds, or a number with ms, s, m, h or d.

    >>> span("36h", "retention")
    datetime.timedelta(days=1, seconds=43200)
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{what}: expected a duration such as 3600, 90s or 24h, got {text!r}")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
