"""Records as rows and back. Times are whole microseconds since 1970.

PostgreSQL's text cannot hold NUL: idempotency keys are bytes there, and metadata is JSON text, in which NUL is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
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
    "result, began_at, worker, trail, error_class, fingerprint, note, edits, keep_for, memos"
)
LARGE_COLUMNS = ("payload", "result", "trail")  # left empty in a listing without payloads
RESERVED_COLUMNS = (
    "id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries, lost, created_at, rare, "
    "scan_from, token"
)
_NAMES = COLUMNS.split(", ")
_RESERVED_NAMES = RESERVED_COLUMNS.split(", ")
SCAN_FROM = _RESERVED_NAMES.index("scan_from")  # only the last row may have it: see reserve.py
RUN_AT, ATTEMPTS = _RESERVED_NAMES.index("run_at"), _RESERVED_NAMES.index("attempts")
_RARE = _RESERVED_NAMES.index("rare")
_RARE_COLUMNS = (  # as rare_columns.sql returns them
    "key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, finished_at, "
    "result, trail, error_class, fingerprint, note, edits, keep_for, memos, lost_by"
)
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


def optional_moment(microseconds: int | None) -> datetime | None:
    """The same for a column that may be empty."""
    return None if microseconds is None else nearest_moment(microseconds)


def optional_us(moment: datetime | None) -> int | None:
    """A moment for a column that may be empty."""
    return None if moment is None else to_us(moment)


def to_row(job: JobRecord, position: int) -> JobColumns:
    """A record as it is sent; `position`: its place in the call."""
    return JobColumns(
        position,
        job.id,
        job.queue,
        job.type,
        job.payload,
        optional_us(job.run_at),
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
    columns = dict(zip(_NAMES, row, strict=False))
    try:
        record = _record(columns)
        check_record(record, shown=True)
    except _NOT_A_RECORD:
        record = _record({name: _readable(name, value) for name, value in columns.items()})
    return record


def _record(columns: dict[str, Any]) -> JobRecord:
    """A record from its columns. An empty one is the default of its field."""
    fields: dict[str, Any] = {"type": "", "payload": b""}
    for name, value in columns.items():
        if value is not None:
            convert = _CONVERT.get(name)
            fields[_FIELDS.get(name, name)] = value if convert is None else convert(value)
    return JobRecord(**fields)


def _span(microseconds: int) -> timedelta:
    return timedelta(microseconds=microseconds)


def _moment(microseconds: int) -> datetime:
    return EPOCH + _span(microseconds)


_FIELDS = {"key": "idempotency_key", "grp": "group", "worker": "ran_on", "memos": "has_memos"}  # columns of other names
_CONVERT: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("run_at", "failed_at", "created_at", "finished_at", "began_at"), _moment),
    **dict.fromkeys(("timeout", "keep_for"), _span),
    "key": bytes.decode,
    "depends_on": tuple,
    "metadata": lambda text: _metadata(text.encode()),
}
_SAMPLE: dict[str, Any] = {"id": "a", "queue": "q", "type": "t"}


def _readable(name: str, value: Any) -> Any:
    """The value of a column; None, which is shown as empty, if no record can have it."""
    try:
        check_record(_record(_SAMPLE | {name: value}))
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
        run_at=None if run_at is None else _moment(run_at),
        timeout=None if timeout is None else _span(timeout),
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
    rare = dict(zip(_RARE_COLUMNS.split(", "), _from_json(row[_RARE]), strict=True))
    for name in ("key", "result", "trail", "note"):
        rare[name] = None if rare[name] is None else bytes.fromhex(rare[name])
    del rare["lost_by"]
    others = dict(zip(_RESERVED_NAMES[:_RARE], row, strict=False))
    return _record(others | rare | {"began_at": began_at, "worker": worker})


def lost_before(row: Sequence[Any]) -> Lost | None:
    """The execution before that of a reserved row, if it was lost. It is the last of the rare columns; what stands
    there may be about an earlier delivery, and what another program damaged is about none."""
    if row[_RARE] is None:
        return None
    try:
        number, worker, began_at, ended_at = _from_json(_from_json(row[_RARE])[-1])
        if number != row[_RESERVED_NAMES.index("deliveries")] - 1:
            return None
        began = None if began_at is None or not 0 <= began_at <= LAST_US else from_us(began_at)
        return Lost(worker or "", began, nearest_moment(ended_at))
    except _NOT_A_RECORD:
        return None


def info_from(row: Sequence[Any], now: int) -> JobInfo:
    """A job as it reads at a moment: the record's columns, then state, wake, worker and what it waits for."""
    state, wake, worker, waiting_for = row[len(_NAMES) : len(_NAMES) + 4]
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
