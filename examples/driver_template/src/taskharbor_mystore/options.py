"""What a DSN says: mystore://host/name?retention=36h&max_payload=65536"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from taskharbor.drivers.dsn import options_of
from taskharbor.drivers.options import max_payload_of, retention_of


class MyStoreOptions(NamedTuple):
    address: str
    retention: timedelta
    max_payload: int


def parse(dsn: str) -> MyStoreOptions:
    """The options of a DSN; ValueError for one that this driver does not know."""
    options = options_of(dsn, frozenset({"retention", "max_payload"}))
    parts = urlsplit(dsn)
    return MyStoreOptions(parts.netloc + parts.path, retention_of(options), max_payload_of(options))
