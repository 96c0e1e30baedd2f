"""One job as its row in taskharbor_jobs, the state codes of that table, and the record that a worker gets.

    BLOCKED    open dependencies                    DONE, DLQ, CANCELLED   terminal
    WAITING    ready, or scheduled while `moment` (its run_at) lies ahead
    LEASED     inflight, or ready again once `moment` (the end of its lease) is over

Times are whole microseconds since 1970, exact for any datetime. transitions.py explains `lined`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from taskharbor.drivers.sqlite.statements import COLUMNS
from taskharbor.model.bounds import INT_MAX, INT_MIN, MAX_KEEP_FOR
from taskharbor.model.job import EPOCH, JobRecord, State
from taskharbor.model.lease import Lost
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import MICROSECOND, from_us, to_us

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

LAST_MICROSECOND = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
MIN_TIMEOUT_US, MAX_TIMEOUT_US = 1000, INT_MAX * 1000
MAX_KEEP_FOR_US = MAX_KEEP_FOR // MICROSECOND
_decode = msgspec.json.Decoder(dict[str, str]).decode
_decode_ids = msgspec.json.Decoder(list[str]).decode
_encode = msgspec.json.Encoder().encode


def maybe_us(moment: datetime | None) -> int | None:
    return None if moment is None else to_us(moment)


def ids_json(ids: Iterable[str]) -> str:
    """Ids as one text parameter for `json_each`."""
    return json.dumps(list(ids), ensure_ascii=False)


def dependencies_of(depends_on: str | None) -> list[str]:
    """The ids in the column `depends_on`, each once, in their order."""
    try:
        return list(dict.fromkeys(_decode_ids(depends_on))) if depends_on else []
    except (msgspec.MsgspecError, TypeError):  # another program damaged it; the table of edges still knows
        return []


class JobRow(msgspec.Struct, gc=False):
    """A row of taskharbor_jobs, in the order of its columns. Mutable: `WriteSession.save` writes it back.

    A field is typed Any where a row that another program damaged may hold anything, and we look before we trust it.
    """

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
    began_at: Any
    lost_at: Any
    trail: bytes | None
    error_class: str | None
    fingerprint: str | None
    note: bytes | None
    edits: int | None
    keep_for: int | None

    def __repr__(self) -> str:
        return shown(self, "id", "queue", "state", "type", "worker")

    @property
    def dependencies(self) -> list[str]:
        """The ids that it depends on, each once, in their order."""
        return dependencies_of(self.depends_on)

    @property
    def finished(self) -> bool:
        """Done or cancelled. A job in the dead letter queue is not: it may be requeued."""
        return self.state in FINISHED


assert JobRow.__struct_fields__ == tuple(COLUMNS.split(", "))


def state_at(state: Any, moment: int | None, now: int) -> State:
    """The contract's state at `now`. An unknown code reads as dead."""
    if state == LEASED:
        return State.INFLIGHT if moment is not None and moment > now else State.READY
    if state == WAITING:
        return State.SCHEDULED if moment is not None and moment > now else State.READY
    return STATES.get(state, State.DLQ)


_last_created: tuple[Any, datetime] = (0, EPOCH)  # the last created_at: the jobs of one enqueue share it


def plain_record(row: Sequence[Any], queue: str, now: datetime, worker: str) -> JobRecord | None:
    """The record of a row of ready.sql as it reads under its lease. None: load and check the whole row."""
    global _last_created
    _, id, kind, payload, attempts, max_attempts, created, priority, state, plain = row
    if not (
        plain
        and type(kind) is str
        and kind
        and type(payload) is bytes
        and type(attempts) is type(max_attempts) is type(priority) is int
        and not (attempts | max_attempts) >> 31
        and INT_MIN <= priority <= INT_MAX
        and is_moment(created)
        and state == WAITING
    ):
        return None
    known, created_at = _last_created
    if known != created:
        created_at = from_us(created)
        _last_created = (created, created_at)
    return JobRecord(
        id=id,
        type=kind,
        queue=queue,
        payload=payload,
        priority=priority,
        attempts=attempts,
        max_attempts=max_attempts,
        deliveries=1,
        created_at=created_at,
        began_at=now,
        ran_on=worker,
    )


def record_of(job: JobRow, *, reserved: tuple[datetime, str] | None = None) -> JobRecord:
    """The record of a sound row; `reserved`: as it reads when a worker has reserved it at that moment."""
    began_at, worker = reserved or (_maybe_moment(job.began_at), job.worker)
    taken_over = reserved is not None and job.state == LEASED  # after its lease has ended without an outcome
    return JobRecord(
        id=job.id,
        type=job.type,
        queue=job.queue,
        payload=job.payload,
        run_at=None if taken_over else _maybe_moment(job.run_at),
        timeout=_maybe_span(job.timeout),
        priority=job.priority,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        deliveries=job.deliveries + (reserved is not None),
        lost=job.lost + taken_over,
        idempotency_key=None if job.idempotency_key is None else job.idempotency_key.decode(),
        group=job.grp,
        group_limit=job.group_limit,
        depends_on=() if job.depends_on is None else tuple(_decode_ids(job.depends_on)),
        flow_id=job.flow_id,
        handed_to=job.handed_to,
        metadata={} if job.metadata is None else _decode(job.metadata),
        last_error=job.last_error,
        failed_at=_maybe_moment(job.failed_at),
        reason=job.reason,
        created_at=from_us(job.created_at),
        finished_at=_maybe_moment(job.finished_at),
        result=job.result,
        began_at=began_at,
        ran_on=worker,
        trail=job.trail or b"",
        error_class=job.error_class or "",
        fingerprint=job.fingerprint or "",
        note=job.note or b"",
        edits=job.edits or 0,
        keep_for=_maybe_span(job.keep_for),
    )


def lost_by(job: JobRow) -> Lost | None:
    """The execution before, if it ended without an outcome: a lease that is over, or was given back by `release`."""
    ended: Any = job.moment if job.state == LEASED else job.lost_at
    if not is_moment(ended):
        return None
    worker = job.worker if type(job.worker) is str and "\0" not in job.worker else ""
    return Lost(worker, from_us(job.began_at) if is_moment(job.began_at) else None, from_us(ended))


def _maybe_moment(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(0, 0, value)


def _maybe_span(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(0, 0, value)


def is_sound(job: JobRow) -> bool:
    """Whether a job that is to run is undamaged. damage.py says what is wrong with one that is not; this decides the
    same in one go, since every job with more than a type and a payload comes through here. Columns with a format of
    their own (dependencies, metadata, keys) are checked when the record is built."""
    return (
        type(job.type) is str
        and job.type != ""
        and type(job.payload) is bytes
        and type(job.priority) is type(job.attempts) is type(job.max_attempts) is int
        and type(job.deliveries) is type(job.lost) is type(job.group_limit) is int
        and not (job.attempts | job.max_attempts | job.deliveries | job.lost | job.group_limit) >> 31
        and INT_MIN <= job.priority <= INT_MAX
        and (job.run_at is None or is_moment(job.run_at))
        and (job.timeout is None or (type(job.timeout) is int and MIN_TIMEOUT_US <= job.timeout <= MAX_TIMEOUT_US))
        and (job.grp is None or (type(job.grp) is str and job.grp != ""))
        and (job.flow_id is None or (type(job.flow_id) is str and job.flow_id != ""))
        and (
            job.handed_to is None or (type(job.handed_to) is str and job.handed_to != "" and "\0" not in job.handed_to)
        )
        and type(job.last_error) is type(job.reason) is str
        and (job.failed_at is None or is_moment(job.failed_at))
        and is_moment(job.created_at)
        and (job.finished_at is None or is_moment(job.finished_at))
        and (job.result is None or type(job.result) is bytes)
        and (job.trail is None or type(job.trail) is bytes)
        and (job.error_class is None or type(job.error_class) is str)
        and (job.fingerprint is None or type(job.fingerprint) is str)
        and (job.note is None or type(job.note) is bytes)
        and (job.edits is None or (type(job.edits) is int and 0 <= job.edits <= INT_MAX))
        and (job.keep_for is None or (type(job.keep_for) is int and 0 <= job.keep_for <= MAX_KEEP_FOR_US))
        and (job.state == WAITING or job.state == LEASED)
    )


def is_moment(value: Any) -> bool:
    """Whether it is a time as we store them."""
    return type(value) is int and 0 <= value <= LAST_MICROSECOND


def metadata_json(metadata: dict[str, str]) -> str | None:
    return _encode(metadata).decode() if metadata else None
