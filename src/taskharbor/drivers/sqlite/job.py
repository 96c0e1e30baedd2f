"""One job as its row says: a record, where it stands, and what a damaged row reads like.

    BLOCKED    open dependencies                    DONE, DLQ, CANCELLED   terminal
    WAITING    ready, or scheduled while `moment` (its run_at) lies ahead
    LEASED     inflight, or ready again once `moment` (the end of its lease) is over

Moments are whole microseconds since 1970: exact for any datetime. `lined` is explained in queues.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from taskharbor.drivers.contract import DAMAGED_PREFIX
from taskharbor.drivers.sqlite.sql import COLUMNS
from taskharbor.model.job import EPOCH, JobRecord, State
from taskharbor.model.shown import shown

BLOCKED, WAITING, LEASED, DONE, DLQ, CANCELLED = range(6)
STATES = {
    BLOCKED: State.BLOCKED,
    WAITING: State.READY,
    LEASED: State.INFLIGHT,
    DONE: State.DONE,
    DLQ: State.DLQ,
    CANCELLED: State.CANCELLED,
}
FINISHED = frozenset({DONE, CANCELLED})

_MICROSECOND = timedelta(microseconds=1)
_NUMBERS = ("attempts", "max_attempts", "deliveries", "lost")
_decode = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


def ticks(moment: datetime) -> int:
    """A moment as whole microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


def moment_of(value: int) -> datetime:
    """The moment so many microseconds after 1970."""
    return EPOCH + timedelta(0, 0, value)


def maybe_ticks(moment: datetime | None) -> int | None:
    return None if moment is None else ticks(moment)


def ids_json(ids: Sequence[str]) -> str:
    """Ids as the one text parameter that `json_each` takes apart."""
    return json.dumps(list(ids), ensure_ascii=False)


class Job(msgspec.Struct, gc=False):
    """A row of taskharbor_jobs, in the order of its columns. Mutable: `store.save` writes it back."""

    num: int
    id: str
    queue: str
    state: Any
    lined: int
    rank: int
    time: int
    arrival: int
    moment: int | None
    token: str
    worker: str
    settled: str
    settled_as: str
    priority: Any
    holds: int
    type: Any
    payload: Any
    run_at: int | None
    timeout: int | None
    attempts: Any
    max_attempts: Any
    deliveries: Any
    lost: Any
    idempotency_key: bytes | None
    grp: str | None
    group_limit: int
    depends_on: str | None
    flow_id: str | None
    handed_to: str | None
    metadata: str | None
    last_error: str
    failed_at: int | None
    reason: str
    created_at: int
    finished_at: int | None
    result: bytes | None

    def __repr__(self) -> str:
        return shown(self, "id", "queue", "state", "type", "worker")

    @property
    def dependencies(self) -> list[str]:
        """The ids it depends on, each once, in their order."""
        return list(dict.fromkeys(json.loads(self.depends_on))) if self.depends_on else []

    @property
    def finished(self) -> bool:
        """Done or cancelled: nothing is to be expected of it. A dead job is unfinished, somebody may requeue it."""
        return self.state in FINISHED


assert Job.__struct_fields__ == tuple(COLUMNS.split(", "))


def state_at(state: Any, moment: int | None, now: int) -> State:
    """The state of the contract at a moment. What nobody knows reads as dead."""
    if state == LEASED:
        return State.INFLIGHT if moment is not None and moment > now else State.READY
    if state == WAITING:
        return State.SCHEDULED if moment is not None and moment > now else State.READY
    return STATES.get(state, State.DLQ)


_moment: tuple[Any, datetime] = (0, EPOCH)  # the last created_at: jobs of one call share it


def plain_record(row: Sequence[Any], queue: str) -> JobRecord | None:
    """The record of a row of line.sql as it reads after one more reservation; None: the whole row must be looked at."""
    global _moment
    _, id, kind, payload, attempts, max_attempts, deliveries, lost, created, priority, state, plain = row
    if not (
        plain
        and type(kind) is str
        and kind
        and type(payload) is bytes
        and type(attempts) is type(max_attempts) is type(deliveries) is type(lost) is type(created) is int
        and state == WAITING
    ):
        return None
    known, created_at = _moment
    if known != created:
        try:
            created_at = moment_of(created)
        except OverflowError:  # no moment that anybody could have stored
            return None
        _moment = (created, created_at)
    return JobRecord(
        id=id,
        type=kind,
        queue=queue,
        payload=payload,
        priority=priority,
        attempts=attempts,
        max_attempts=max_attempts,
        deliveries=deliveries + 1,
        lost=lost,
        created_at=created_at,
    )


def record_of(row: Sequence[Any], reserved: int = 0) -> JobRecord:
    """The record of a sound row; as it reads after `reserved` more reservations. Positions, not names: it is warm."""
    return _full_record(row, reserved, moment_of(row[33]))


def _full_record(row: Sequence[Any], reserved: int, created_at: datetime) -> JobRecord:
    run_at, timeout, key, depends_on, metadata, failed_at, finished_at = (
        None if reserved and row[3] == LEASED else row[17],  # taken over after its lease has ended
        row[18],
        row[23],
        row[26],
        row[29],
        row[31],
        row[34],
    )
    return JobRecord(
        id=row[1],
        type=row[15],
        queue=row[2],
        payload=row[16],
        run_at=None if run_at is None else EPOCH + timedelta(0, 0, run_at),
        timeout=None if timeout is None else timedelta(0, 0, timeout),
        priority=row[13],
        attempts=row[19],
        max_attempts=row[20],
        deliveries=row[21] + reserved,
        lost=row[22] + reserved if row[3] == LEASED else row[22],
        idempotency_key=None if key is None else key.decode(),
        group=row[24],
        group_limit=row[25],
        depends_on=() if depends_on is None else tuple(json.loads(depends_on)),
        flow_id=row[27],
        handed_to=row[28],
        metadata={} if metadata is None else _decode(metadata),
        last_error=row[30],
        failed_at=None if failed_at is None else EPOCH + timedelta(0, 0, failed_at),
        reason=row[32],
        created_at=created_at,
        finished_at=None if finished_at is None else EPOCH + timedelta(0, 0, finished_at),
        result=row[35],
    )


def damage_of(row: Sequence[Any]) -> str | None:
    """What another program did to a row that would stop a worker, or None."""
    if type(row[15]) is not str or not row[15]:
        return "type is missing"
    if type(row[16]) is not bytes:
        return "payload is missing"
    for name, value in zip(_NUMBERS, row[19:23], strict=True):
        if type(value) is not int:
            return f"{name} is not a number"
    if row[3] not in STATES:
        return "unknown state"
    return _unreadable(row)


def _unreadable(row: Sequence[Any]) -> str | None:
    try:
        record_of(row)
    except Exception as error:  # any field may hold anything; no text of it, which may be the user's data
        return f"a field cannot be read ({type(error).__name__})"
    return None


def sound(row: Sequence[Any]) -> bool:
    """Whether a worker can run the row, as far as it can be told without building the record."""
    kind = row[15]
    return (
        type(kind) is str
        and kind != ""
        and type(row[16]) is bytes
        and type(row[19]) is int
        and type(row[20]) is int
        and type(row[21]) is int
        and type(row[22]) is int
        and (row[3] == WAITING or row[3] == LEASED)
    )


def damaged(row: Sequence[Any]) -> str:
    """The reason of a damaged row."""
    return f"{DAMAGED_PREFIX}: {damage_of(row)}"


def readable(row: Sequence[Any]) -> JobRecord:
    """The record of any row: a damaged one is shown with fields of the right kinds."""
    if damage_of(row) is None:
        return record_of(row)
    shown = list(row)
    if row[3] not in STATES:
        shown[32] = damaged(row)
    for index, kind, instead in _KINDS:
        if type(shown[index]) is not kind and not (instead is None and shown[index] is None):
            shown[index] = instead
    try:
        return _full_record(shown, 0, moment_of(shown[33]))
    except Exception:
        for index in (17, 18, 23, 26, 29, 31, 34):  # what has a form of its own, beyond being of the right kind
            shown[index] = None
        return _full_record(shown, 0, EPOCH)


_KINDS: tuple[tuple[int, type, Any], ...] = (
    (13, int, 0),
    (15, str, ""),
    (16, bytes, b""),
    *((index, int, 0) for index in (19, 20, 21, 22, 25, 33)),
    *((index, int, None) for index in (17, 18, 31, 34)),
    *((index, str, None) for index in (24, 26, 27, 28, 29)),
    (23, bytes, None),
    (30, str, ""),
    (32, str, ""),
    (35, bytes, None),
)


def metadata_json(metadata: dict[str, str]) -> str | None:
    return _encode(metadata).decode() if metadata else None
