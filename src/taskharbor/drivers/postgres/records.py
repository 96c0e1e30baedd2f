"""Records as rows and back. Times are whole microseconds since 1970.

PostgreSQL's text cannot hold NUL: idempotency keys are bytes there, and metadata is JSON text, in which NUL is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

import msgspec

from taskharbor.drivers.base import DAMAGED_PREFIX
from taskharbor.model.bounds import check_name, check_record
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import EPOCH, JobInfo, JobRecord, State
from taskharbor.model.lease import Lost
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import MICROSECOND, from_us, to_us

_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.decode
_metadata = msgspec.json.Decoder(dict[str, str]).decode

COLUMNS = (
    "id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries, lost, key, grp, "
    "group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, "
    "result, began_at, worker, trail, error_class, fingerprint, note, edits, keep_for"
)
WIDTH = 32
LARGE_COLUMNS = ("payload", "result", "trail")  # left empty in a listing without payloads
RESERVED_COLUMNS = (
    "id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries, lost, created_at, rare, "
    "scan_from, token"
)
SCAN_FROM = RESERVED_COLUMNS.split(", ").index("scan_from")  # only the last row may have it: see reserve.py
LAST_US = 253_402_300_799_999_999  # the last microsecond of the year 9999
_NOT_A_RECORD = (InvalidJob, OverflowError, msgspec.MsgspecError, UnicodeError, TypeError, ValueError)


class StoredState(IntEnum):
    """The column `state`; 0001_tables.sql says what each means. SQL files name them in lower case, as `@leased@`."""

    BLOCKED = 0
    SCHEDULED = 1
    QUEUED = 2
    LEASED = 3
    EXPIRED = 4
    DONE = 5
    DEAD = 6
    CANCELLED = 7


class RefusalCode(IntEnum):
    """Why an outcome or an extension of a lease was not applied; see settle/refusals.sql."""

    ALREADY_APPLIED = 0
    UNKNOWN_JOB = 1
    NOT_INFLIGHT = 2
    OTHER_TOKEN = 3
    LEASE_ENDED = 4
    HOLDS = 5
    IS_LOCKED = 6


ACK, RETRY, FAIL, CANCEL = 1, 2, 3, 4  # kinds of outcomes


class JobColumns(msgspec.Struct, omit_defaults=True, gc=False):
    """A record on its way into the store; bytes become base64, and fields with their defaults are left out."""

    o: int  # its position in the call
    id: str
    queue: str
    type: str
    payload: bytes
    run_at: int | None = None
    timeout: int | None = None
    priority: int = 0
    attempts: int = 0
    max_attempts: int = 0
    key: bytes | None = None
    grp: str | None = None
    group_limit: int = 0
    depends_on: list[str] | None = None
    flow_id: str | None = None
    metadata: str | None = None
    created_at: int | None = None
    keep_for: int | None = None

    def __repr__(self) -> str:
        return shown(self, "id", "queue", "type")


def nearest_moment(microseconds: int) -> datetime:
    """The moment `microseconds` after 1970; the nearest possible one if there is none."""
    return from_us(min(max(microseconds, 0), LAST_US))


def to_row(job: JobRecord, position: int) -> JobColumns:
    """A record as it is sent; `position`: its place in the call."""
    return JobColumns(
        position,
        job.id,
        job.queue,
        job.type,
        job.payload,
        None if job.run_at is None else to_us(job.run_at),
        None if job.timeout is None else job.timeout // MICROSECOND,
        job.priority,
        job.attempts,
        job.max_attempts,
        None if job.idempotency_key is None else job.idempotency_key.encode(),
        job.group,
        job.group_limit,
        list(job.depends_on) or None,
        job.flow_id,
        to_json(job.metadata) if job.metadata else None,
        None if job.created_at == EPOCH else to_us(job.created_at),
        None if job.keep_for is None else job.keep_for // MICROSECOND,
    )


def to_json(value: Any) -> str:
    """JSON text; bytes inside become base64."""
    return _to_json(value).decode()


def from_row(row: Sequence[Any]) -> JobRecord:
    """A stored record. Fields that another program has damaged are shown as empty."""
    try:
        record = _record(row)
        check_record(record, shown=True)
    except _NOT_A_RECORD:
        record = _record([_readable(name, value) for name, value in zip(_NAMES, row, strict=False)])
    return record


def _record(row: Sequence[Any]) -> JobRecord:
    (
        id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries, lost, key, group,
        group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at,
        result, began_at, ran_on, trail, error_class, fingerprint, note, edits, keep_for,
    ) = row[:WIDTH]  # fmt: skip
    return JobRecord(
        id=id,
        queue=queue,
        type=type or "",
        payload=payload or b"",
        run_at=None if run_at is None else EPOCH + timedelta(microseconds=run_at),
        timeout=None if timeout is None else timedelta(microseconds=timeout),
        priority=priority,
        attempts=attempts or 0,
        max_attempts=max_attempts or 0,
        deliveries=deliveries or 0,
        lost=lost or 0,
        idempotency_key=None if key is None else key.decode(),
        group=group,
        group_limit=group_limit or 0,
        depends_on=tuple(depends_on) if depends_on else (),
        flow_id=flow_id,
        handed_to=handed_to,
        metadata={} if metadata is None else _metadata(metadata.encode()),
        last_error=last_error or "",
        failed_at=None if failed_at is None else EPOCH + timedelta(microseconds=failed_at),
        reason=reason or "",
        created_at=EPOCH + timedelta(microseconds=created_at or 0),
        finished_at=None if finished_at is None else EPOCH + timedelta(microseconds=finished_at),
        result=result,
        began_at=None if began_at is None else EPOCH + timedelta(microseconds=began_at),
        ran_on=ran_on or "",
        trail=trail or b"",
        error_class=error_class or "",
        fingerprint=fingerprint or "",
        note=note or b"",
        edits=edits or 0,
        keep_for=None if keep_for is None else timedelta(microseconds=keep_for),
    )


_NAMES = COLUMNS.split(", ")
_SAMPLE: dict[str, Any] = dict.fromkeys(_NAMES) | {"id": "a", "queue": "q", "type": "t", "priority": 0}


def _readable(name: str, value: Any) -> Any:
    """The value of a column; None, which is shown as empty, if no record can have it."""
    try:
        check_record(_record([*(_SAMPLE | {name: value}).values()]))
    except _NOT_A_RECORD:
        return None
    return value


class DamagedRecord(Exception):
    """A record that cannot be handed out, and why."""


def from_reserved_row(row: Sequence[Any], now: datetime, worker: str) -> JobRecord:
    """A record as the reserve functions return it, reserved at `now` by `worker`. Fields that few jobs have are in the
    column `rare`, which is mostly null; the server has checked the others."""
    id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries, lost, made, rare, _, _ = (
        row
    )
    try:
        if rare is not None:
            record = _rare_record(row, to_us(now), worker)
            check_record(record)
            return record
        check_name(type, "type")
    except _NOT_A_RECORD as error:
        field = str(error).partition(":")[0] if isinstance(error, InvalidJob) else "a field"
        raise DamagedRecord(f"{field} has a value that no client can have stored") from error
    return JobRecord(
        id=id,
        queue=queue,
        type=type,
        payload=payload,
        run_at=None if run_at is None else EPOCH + timedelta(microseconds=run_at),
        timeout=None if timeout is None else timedelta(microseconds=timeout),
        priority=priority,
        attempts=attempts,
        max_attempts=max_attempts,
        deliveries=deliveries,
        lost=lost,
        created_at=EPOCH + timedelta(microseconds=made),
        began_at=now,
        ran_on=worker,
    )


def _rare_record(row: Sequence[Any], began_at: int, worker: str) -> JobRecord:
    (
        key, group, limit, depends_on, flow, heir, metadata, error, failed, why, finished, result, trail, error_class,
        fingerprint, note, edits, keep_for, _,
    ) = _from_json(row[_RARE])  # fmt: skip
    return _record(
        (*row[: _RARE - 1], _from_hex(key), group, limit, depends_on, flow, heir, metadata, error, failed, why,
         row[_RARE - 1], finished, _from_hex(result), began_at, worker, _from_hex(trail), error_class, fingerprint,
         _from_hex(note), edits, keep_for)
    )  # fmt: skip


_RARE = RESERVED_COLUMNS.split(", ").index("rare")


def _from_hex(data: str | None) -> bytes | None:
    return None if data is None else bytes.fromhex(data)


def lost_before(row: Sequence[Any]) -> Lost | None:
    """The execution before that of a reserved row, if it was lost. It is the last of the rare columns; what stands
    there may be about an earlier delivery, and what another program damaged is about none."""
    if row[_RARE] is None:
        return None
    try:
        number, worker, began_at, ended_at = _from_json(_from_json(row[_RARE])[-1])
        if number != row[_DELIVERIES] - 1:
            return None
        began = None if began_at is None or not 0 <= began_at <= LAST_US else from_us(began_at)
        return Lost(worker or "", began, nearest_moment(ended_at))
    except _NOT_A_RECORD:
        return None


_DELIVERIES = RESERVED_COLUMNS.split(", ").index("deliveries")


def info_from(row: Sequence[Any], now: int) -> JobInfo:
    """A job as it reads at a moment: the record's columns, then state, wake, worker and what it waits for."""
    state, wake, worker, waiting_for = row[WIDTH : WIDTH + 4]
    record = from_row(row)
    if state in (StoredState.LEASED, StoredState.EXPIRED):
        if wake > now:
            return JobInfo(record, State.INFLIGHT, worker or "", nearest_moment(wake))
        return JobInfo(msgspec.structs.replace(record, run_at=None), State.READY)
    if state in (StoredState.SCHEDULED, StoredState.QUEUED):
        ahead = row[_RUN_AT] is not None and row[_RUN_AT] > now
        return JobInfo(record, State.SCHEDULED if ahead else State.READY)
    if state == StoredState.BLOCKED:
        return JobInfo(record, State.BLOCKED, waiting_for=tuple(waiting_for or ()))
    if state in _FINISHED:
        return JobInfo(record, _FINISHED[state])
    return JobInfo(msgspec.structs.replace(record, reason=f"{DAMAGED_PREFIX}: unknown state"), State.DLQ)


_RUN_AT = _NAMES.index("run_at")
_FINISHED = {
    StoredState.DONE: State.DONE,
    StoredState.DEAD: State.DLQ,
    StoredState.CANCELLED: State.CANCELLED,
}


def base64_of(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(data).decode()
