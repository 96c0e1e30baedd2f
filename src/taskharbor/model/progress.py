"""Progress: what a handler last reported with `ctx.progress`, as a record keeps it in its `note`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from taskharbor.model.bounds import MAX_NOTE_BYTES
from taskharbor.model.safe_repr import shows
from taskharbor.model.times import from_ms, to_ms

_ROOM_BYTES = MAX_NOTE_BYTES - 64  # for the numbers and the time


@shows("done", "total", "at")
class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a handler is: `done` of `total` (None: not known), its own words, and when it said so.

    >>> Progress(done=3, total=12, note="pages").fraction
    0.25
    """

    done: float
    total: float | None = None
    note: str = ""  # its own words
    at: datetime | None = None  # when it was reported

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None without a total."""
        return None if not self.total else min(max(self.done / self.total, 0.0), 1.0)


@shows("done", "total")
class _Note(msgspec.Struct, array_like=True):
    done: float
    total: float | None
    note: str
    at_ms: int | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Note).decode


def write_note(progress: Progress) -> bytes:
    """Progress as a record keeps it: at most 1 KiB; longer words are cut.

    >>> read_note(write_note(Progress(done=1, total=2, note="pages"))).note
    'pages'
    """
    text = progress.note.encode(errors="replace")[:_ROOM_BYTES].decode(errors="ignore")
    at_ms = None if progress.at is None else to_ms(progress.at)
    return _encode(_Note(float(progress.done), progress.total, text, at_ms))


def read_note(note: bytes) -> Progress | None:
    """The progress in a note; None for an empty one, and for one that another program damaged."""
    if not note:
        return None
    try:
        found = _decode(note)
        at = None if found.at_ms is None else from_ms(found.at_ms)
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return None
    return Progress(done=found.done, total=found.total, note=found.note, at=at)
