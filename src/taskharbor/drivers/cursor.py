"""Cursors of listings: opaque, the same on every driver, and checked.

A cursor that lost a character must not quietly begin somewhere else.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from datetime import datetime

from taskharbor.model.times import from_us, to_us

# What a cursor begins with: that of one listing is not one of another.
_ID, _PLACE, _SCHEDULE, _DUE = b"1", b"2", b"3", b"4"


def encode_cursor(id: str) -> str:
    """The cursor of the page that begins behind this id.

    >>> encode_cursor("01J") == encode_cursor("01K")
    False
    """
    return _encode(_ID, id)


def decode_cursor(cursor: str) -> str:
    """The id behind which a page begins, or ValueError.

    >>> decode_cursor(encode_cursor("01J"))
    '01J'
    """
    return _decode(_ID, cursor)


def encode_place(at: datetime, id: str) -> str:
    """The cursor of the page of the audit that begins behind this entry.

    >>> decode_place(encode_place(from_us(0), "01J"))[1]
    '01J'
    """
    return _encode(_PLACE, f"{to_us(at)}:{id}")


def decode_place(cursor: str) -> tuple[datetime, str]:
    """The moment and the id of the entry behind which a page begins, or ValueError.

    >>> decode_place(encode_place(from_us(0), "01J"))
    (datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), '01J')
    """
    return _decode_moment(_PLACE, cursor)


def encode_schedule(name: str) -> str:
    """The cursor of the page of schedules that begins behind this name.

    >>> decode_schedule(encode_schedule("nightly"))
    'nightly'
    """
    return _encode(_SCHEDULE, name)


def decode_schedule(cursor: str) -> str:
    """The name behind which a page of schedules begins, or ValueError."""
    return _decode(_SCHEDULE, cursor)


def encode_due(next_at: datetime, name: str) -> str:
    """The cursor of the page of due schedules that begins behind this one.

    >>> decode_due(encode_due(from_us(0), "nightly"))[1]
    'nightly'
    """
    return _encode(_DUE, f"{to_us(next_at)}:{name}")


def decode_due(cursor: str) -> tuple[datetime, str]:
    """The moment and the name behind which a page of due schedules begins, or ValueError."""
    return _decode_moment(_DUE, cursor)


def _decode_moment(kind: bytes, cursor: str) -> tuple[datetime, str]:
    at, _, name = _decode(kind, cursor).partition(":")
    try:
        return from_us(int(at)), name
    except (ValueError, OverflowError):
        raise _damaged() from None


def _encode(kind: bytes, text: str) -> str:
    data = text.encode()
    return base64.urlsafe_b64encode(kind + zlib.crc32(data).to_bytes(4, "big") + data).decode()


def _decode(kind: bytes, cursor: str) -> str:
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        text = data[5:].decode()
    except (AttributeError, UnicodeError, binascii.Error):
        raise _damaged() from None
    if _encode(kind, text) != cursor or "\x00" in text:  # no store has such an id; PostgreSQL cannot be asked for it
        raise _damaged()
    return text


def _damaged() -> ValueError:
    return ValueError("cursor: expected one that the same listing returned, got a damaged one")
