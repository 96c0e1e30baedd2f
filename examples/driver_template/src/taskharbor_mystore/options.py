"""What a DSN says: mystore:///path/jobs.db?retention=36h&max_payload=65536"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from taskharbor.drivers.kit import max_payload_of, options_of, retention_of


class MyStoreOptions(NamedTuple):
    path: str  # yours: host, port, user, password and database
    retention: timedelta
    max_payload: int


def parse(dsn: str) -> MyStoreOptions:
    """The options of a DSN; ValueError for one that this driver does not know."""
    options = options_of(dsn, frozenset({"retention", "max_payload"}))
    path = unquote(urlsplit(dsn).path)
    if not path.strip("/"):
        raise ValueError("expected the path of a file, such as mystore:///var/lib/jobs.db")
    return MyStoreOptions(path, retention_of(options), max_payload_of(options))
