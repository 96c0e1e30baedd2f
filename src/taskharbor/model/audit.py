"""The audit: who did what with the jobs of a store.

An entry is written before the action and again, under the same id, after it. So an action that a crash cut short is in
the audit as well: as one whose end is not known.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from taskharbor.model.safe_repr import shows

AUDIT_KEPT_FOR = timedelta(days=90)
MAX_AUDIT_BYTES = 16 * 1024


@shows("id", "at")
class StoredAudit(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as a store keeps it. `data` is written by core; a driver never decodes it."""

    id: str
    at: datetime
    by: str
    data: bytes = b""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action: who did what, with which jobs, and how it ended.

    `ids`: the jobs that were named, at most 20 of them; `filter` and `options`: of an action by filter. `done` and
    `refused` are None until the action has ended, and stay so if a crash cut it short. `status` is that of a bulk
    operation, else empty.

    >>> from datetime import UTC
    >>> entry = AuditEntry(id="01J", at=datetime(2030, 1, 1, tzinfo=UTC), by="ada", action="requeue", ids=("01H",), n=1)
    >>> read_entry(entry.stored()) == entry
    True
    """

    id: str  # the id of this entry
    at: datetime  # when it was done
    by: str  # the name given as `by`, else user and machine
    action: str  # such as "requeue", "cancel", "amend", "pause"
    target: str = ""  # a queue, a flow or a schedule, by its name
    ids: tuple[str, ...] = ()
    n: int | None = None  # how many jobs were asked for
    filter: dict[str, str] = {}
    options: dict[str, str] = {}
    done: int | None = None
    refused: int | None = None
    status: str = ""

    def stored(self) -> StoredAudit:
        """The entry as a store keeps it."""
        return StoredAudit(id=self.id, at=self.at, by=self.by, data=_encode(self))


MAX_AUDIT_IDS = 20

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode


def read_entry(stored: StoredAudit) -> AuditEntry:
    """The entry that a store kept; one with the action "unreadable" for what another program wrote or damaged."""
    try:
        return _decode(stored.data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return AuditEntry(id=stored.id, at=stored.at, by=stored.by, action="unreadable")


class AuditPage(msgspec.Struct, frozen=True):
    """One page of the audit; `cursor` is None on the last one."""

    items: tuple[StoredAudit, ...]
    cursor: str | None = None
