"""Cursors of listings: opaque, the same on every driver, and checked.

A cursor that lost a character must not quietly begin somewhere else.
"""

from __future__ import annotations

import base64
import binascii
import zlib


def encode_cursor(id: str) -> str:
    """The cursor of the page that begins behind this id."""
    data = id.encode()
    return base64.urlsafe_b64encode(b"1" + zlib.crc32(data).to_bytes(4, "big") + data).decode()


def decode_cursor(cursor: str) -> str:
    """The id behind which a page begins, or ValueError.

    >>> decode_cursor(encode_cursor("01J"))
    '01J'
    """
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        id = data[5:].decode()
    except (AttributeError, UnicodeError, binascii.Error):
        raise _damaged() from None
    if encode_cursor(id) != cursor or "\x00" in id:  # no store has such an id, and PostgreSQL cannot be asked for it
        raise _damaged()
    return id


def _damaged() -> ValueError:
    return ValueError("cursor: expected one that list returned, got a damaged one")
