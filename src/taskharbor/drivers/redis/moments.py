"""Moments in sorted sets and rows: microseconds since 1970 in 18 digits, so that text is in the order of time."""

from __future__ import annotations

from datetime import datetime

from taskharbor.model.job import EPOCH
from taskharbor.model.times import to_us

MOMENT_DIGITS = 18  # enough up to the year 9999
LAST_US = to_us(datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=EPOCH.tzinfo))


def digits_of(at: datetime) -> bytes:
    """A moment as it is stored.

    >>> digits_of(EPOCH)
    b'000000000000000000'
    """
    return b"%0*d" % (MOMENT_DIGITS, to_us(at))
