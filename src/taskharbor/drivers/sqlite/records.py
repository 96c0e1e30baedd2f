"""One job as its row in taskharbor_jobs, the state codes of that table, and the record that a worker gets.

    BLOCKED    open dependencies                    DONE, DLQ, CANCELLED   terminal
    WAITING    ready, or scheduled while `moment` (its run_at) lies ahead
    LEASED     inflight, or ready again once `moment` (the end of its lease) is over

Times are whole microseconds since 1970, exact for any datetime. transitions.py explains `lined`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

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
UNREADABLE: Any = object()  # in a record: a column that does not decode
Count = Annotated[int, Meta(ge=0, le=INT_MAX)]
Moment = Annotated[int, Meta(ge=0, le=LAST_MICROSECOND)]
Name = Annotated[str, Meta(min_length=1)]
_decode = msgspec.json.Decoder(dict[str, str]).decode
_decode_ids = msgspec.json.Decoder(tuple[str, ...]).decode
_encode = msgspec.json.Encoder().encode


def maybe_us(moment: datetime | None) -> int | None:
    return None if moment is None else to_us(moment)


def ids_json(ids: Iterable[str]) -> str:
    """Ids as one text parameter for `json_each`."""
    return json.dumps(list(ids), ensure_ascii=False)


def dependencies_of(depends_on: str | None) -> list[str]:
    """The ids in the column `depends_on`, each once, in their order."""
    ids = _decoded(_decode_ids, depends_on) if depends_on else ()
    return [] if ids is UNREADABLE else list(dict.fromkeys(ids))  # if it is, the table of edges still knows


def _decoded(decode: Callable[[Any], Any], value: Any) -> Any:
    try:
        return decode(value)
    except (msgspec.MsgspecError, TypeError, UnicodeError):
        return UNREADABLE


class JobRow(msgspec.Struct, array_like=True, gc=False):
    """A row of taskharbor_jobs, in the order of its columns. Mutable: `WriteSession.save` writes it back.

    The types say what a sound job that is to run has in each column, and `sound_row` checks them. Any other row
    may hold anything there, if another program damaged it.
    """

    num: Any
    id: Any
    queue: Any
    state: Annotated[int, Meta(ge=WAITING, le=LEASED)]
    lined: Any
    rank: Any
    time: Any
    arrival: Any
    moment: Any
    token: Any
    worker: Any
    settled: Any
    settled_as: Any
    priority: Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
    holds: Any
    type: Name
    payload: bytes
    run_at: Moment | None
    timeout: Annotated[int, Meta(ge=1000, le=INT_MAX * 1000)] | None
    attempts: Count
    max_attempts: Count
    deliveries: Count
    lost: Count
    idempotency_key: Any  # here and below: it has a format of its own, and is checked when the record is built
    grp: Name | None
    group_limit: Count
    depends_on: Any
    flow_id: Name | None
    handed_to: Name | None
    metadata: Any
    last_error: str
    failed_at: Moment | None
    reason: str
    created_at: Moment
    finished_at: Moment | None
    result: bytes | None
    began_at: Any
    lost_at: Any
    trail: bytes | None
    error_class: str | None
    fingerprint: str | None
    note: bytes | None
    edits: Count | None
    keep_for: Annotated[int, Meta(ge=0, le=MAX_KEEP_FOR // MICROSECOND)] | None
    memos: Any

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


COLUMNS = ", ".join(JobRow.__struct_fields__)


def sound_row(row: Sequence[Any]) -> JobRow | None:
    """The row of a job that is to run, if it is undamaged. damage.py says what is wrong with one that is not; this
    decides the same in one go, since every job with more than a type and a payload comes through here."""
    try:
        return msgspec.convert(row, JobRow, builtin_types=(bytes,))  # or text would be taken for bytes in base64
    except msgspec.ValidationError:
        return None


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
    """The record of a row; `reserved`: of a sound row, as it reads when a worker has reserved it at that moment.

    What another program damaged stands there as a value of the wrong kind, or UNREADABLE.
    """
    began_at, worker = reserved or (_moment(job.began_at), job.worker)
    taken_over = reserved is not None and job.state == LEASED  # after its lease has ended without an outcome
    return JobRecord(
        id=job.id,
        type=job.type,
        queue=job.queue,
        payload=job.payload,
        run_at=None if taken_over else _moment(job.run_at),
        timeout=_span(job.timeout),
        priority=job.priority,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        deliveries=job.deliveries if reserved is None else job.deliveries + 1,
        lost=job.lost + 1 if taken_over else job.lost,
        idempotency_key=None if job.idempotency_key is None else _decoded(bytes.decode, job.idempotency_key),
        group=job.grp,
        group_limit=job.group_limit,
        depends_on=() if job.depends_on is None else _decoded(_decode_ids, job.depends_on),
        flow_id=job.flow_id,
        handed_to=job.handed_to,
        metadata={} if job.metadata is None else _decoded(_decode, job.metadata),
        last_error=job.last_error,
        failed_at=_moment(job.failed_at),
        reason=job.reason,
        created_at=_moment(job.created_at),
        finished_at=_moment(job.finished_at),
        result=job.result,
        began_at=began_at,
        ran_on=worker,
        trail=job.trail or b"",
        error_class=job.error_class or "",
        fingerprint=job.fingerprint or "",
        note=job.note or b"",
        edits=job.edits or 0,
        keep_for=_span(job.keep_for),
        has_memos=job.memos == 1,
    )


def lost_by(job: JobRow) -> Lost | None:
    """The execution before, if it ended without an outcome: a lease that is over, or was given back by `release`."""
    ended: Any = job.moment if job.state == LEASED else job.lost_at
    if not is_moment(ended):
        return None
    worker = job.worker if type(job.worker) is str else ""
    return Lost(worker, from_us(job.began_at) if is_moment(job.began_at) else None, from_us(ended))


def _moment(value: Any) -> Any:
    # As `is_moment` says, which would cost as much again: a record has several.
    return EPOCH + timedelta(0, 0, value) if type(value) is int and 0 <= value <= LAST_MICROSECOND else value


def _span(value: Any) -> Any:
    return timedelta(0, 0, value) if type(value) is int else value


def is_moment(value: Any) -> bool:
    """Whether it is a time as we store them."""
    return type(value) is int and 0 <= value <= LAST_MICROSECOND


def metadata_json(metadata: dict[str, str]) -> str | None:
    return _encode(metadata).decode() if metadata else None
