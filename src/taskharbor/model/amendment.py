"""Amendments: changes of a stored job that is not running."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, UnsetType

from taskharbor.model.safe_repr import shows


@shows("id", "deliveries", "edits")
class Amend(msgspec.Struct, frozen=True, kw_only=True):
    """New values for some fields of one job; what is UNSET stays as it is.

    `deliveries` and `edits` are those of the record that the editor saw: if the job was reserved or amended since, it
    is not changed. The last four are texts about the payload: core masks them when it replaces the payload.

    >>> Amend(id="01J", deliveries=0, edits=0, priority=5).changes()
    {'priority': 5}
    """

    id: str
    deliveries: int
    edits: int
    payload: bytes | UnsetType = UNSET
    run_at: datetime | UnsetType | None = UNSET
    priority: int | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    timeout: timedelta | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    trail: bytes | UnsetType = UNSET
    note: bytes | UnsetType = UNSET

    def changes(self) -> dict[str, object]:
        """The fields to change, with their new values."""
        values = ((name, getattr(self, name)) for name in _CHANGEABLE)
        return {name: value for name, value in values if value is not UNSET}


_CHANGEABLE = (
    "payload",
    "run_at",
    "priority",
    "max_attempts",
    "timeout",
    "metadata",
    "last_error",
    "reason",
    "trail",
    "note",
)
