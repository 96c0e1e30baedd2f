"""Ids and tokens: time-ordered ids for jobs, unguessable tokens for leases.

An id is a ULID: 26 characters of Crockford's base32, 48 bits of milliseconds and 80 random bits, and within one
process each is greater than the one before, even within one millisecond. A derived id has a hash in place of the
random bits, so that several processes make the same one. Tokens are 128 random bits in hex.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Iterator

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)  # ten bits at a time: 13 look-ups make an id
_SHIFTS = tuple(range(120, -1, -10))


def _render(number: int) -> str:
    pairs = _PAIRS
    return "".join([pairs[(number >> shift) & 1023] for shift in _SHIFTS])


class IdSource:
    """Makes ids that grow: while the millisecond stays the same or goes back, the random part counts up."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Also in a forked child: one that went on from its parent's last id would make the same ids."""
        self._lock = threading.Lock()
        self._last = 0
        self._pool, self._at = b"", 0
        self._upper, self._prefix = -1, ""

    def make(self, milliseconds: int) -> str:
        """The next id for a moment in milliseconds since 1970."""
        with self._lock:
            if milliseconds <= self._last >> 80:
                # A random step: still unguessable from its neighbour, and far from the end of the millisecond's space.
                at = self._at
                if at == len(self._pool):
                    self._pool, at = os.urandom(4096), 0
                self._at = at + 4
                self._last += 1 + int.from_bytes(self._pool[at : at + 4], "big")
            else:
                self._last = (milliseconds << 80) | secrets.randbits(79)
            return self._written()

    def _written(self) -> str:
        """The last id as text. The first 18 characters are cached: a random step rarely changes them."""
        last, pairs = self._last, _PAIRS
        if last >> 40 != self._upper:
            self._upper, self._prefix = last >> 40, _render(last)[:18]
        low = pairs[last >> 30 & 1023] + pairs[last >> 20 & 1023] + pairs[last >> 10 & 1023] + pairs[last & 1023]
        return self._prefix + low


_SOURCE = IdSource()


def new_id(milliseconds: int) -> str:
    """An id for a job made at that moment.

    >>> a, b = new_id(1_700_000_000_000), new_id(1_700_000_000_000)
    >>> len(a), a < b
    (26, True)
    """
    return _SOURCE.make(milliseconds)


def derived_id(milliseconds: int, text: str) -> str:
    """The id of a moment and a text: the same in every process, and different for another moment or text.

    >>> derived_id(1_700_000_000_000, "a") == derived_id(1_700_000_000_000, "a")
    True
    """
    if not 0 <= milliseconds < 1 << 48:
        raise ValueError(f"expected milliseconds since 1970 that fit into an id, got {milliseconds}")
    digest = hashlib.blake2b(f"{text}\0{milliseconds}".encode(), digest_size=10, person=b"id").digest()
    return _render(milliseconds << 80 | int.from_bytes(digest, "big"))


def new_tokens(count: int) -> Iterator[str]:
    """`count` lease tokens from one read of the system's random source: a read for each costs 5 times as much."""
    digits = os.urandom(16 * count).hex()
    return iter([digits[start : start + 32] for start in range(0, 32 * count, 32)])
