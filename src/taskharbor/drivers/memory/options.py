"""What a DSN of the memory driver says."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from taskharbor.drivers.dsn import max_payload_of, options_of, retention_of, scheme_of
from taskharbor.model.bounds import check_name

_OPTIONS = frozenset({"retention", "max_payload"})


class MemoryOptions(NamedTuple):
    """`name` is empty for a store that belongs to one driver and its siblings.

    `memory://` is a store of its own, which ends with the process; all harbors of a process that name `memory://shop`
    share one.

    Options:
        retention: How long done and cancelled jobs are kept. Default: 24h.
        max_payload: The largest payload, in bytes. Default: 1048576.
    """

    name: str
    retention: timedelta
    max_payload: int


def parse(dsn: str) -> MemoryOptions:
    """The options of a DSN, or ValueError that says what was expected.

    >>> parse("memory://shop?retention=2h").retention
    datetime.timedelta(seconds=7200)
    """
    parts = urlsplit(dsn)
    if scheme_of(dsn) != "memory" or not dsn[len("memory:") :].startswith("//"):
        raise ValueError("expected memory:// or memory://name")
    if parts.path or parts.fragment:
        raise ValueError("expected memory:// or memory://name, got more than a name")
    if parts.netloc:
        check_name(parts.netloc, "name")
    options = options_of(dsn, _OPTIONS)
    return MemoryOptions(parts.netloc, retention_of(options), max_payload_of(options))
