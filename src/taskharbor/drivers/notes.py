"""The notes of `extend`, checked before a store is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskharbor.model.bounds import MAX_NOTE_BYTES, check_bytes
from taskharbor.model.errors import InvalidJob
from taskharbor.model.lease import Lease


def bad_notes(leases: Sequence[Lease], notes: Mapping[str, bytes]) -> dict[int, InvalidJob]:
    """Why the note of a lease cannot be stored, by the place of the lease in the call; empty if all can.

    >>> bad_notes([], {})
    {}
    """
    bad: dict[int, InvalidJob] = {}
    for place, lease in enumerate(leases):
        if lease.token in notes:
            try:
                check_bytes(notes[lease.token], "note", MAX_NOTE_BYTES)
            except InvalidJob as invalid:
                bad[place] = invalid
    return bad
