"""Records on their way to and from Redis: what a script stores of a job, and a job from what a script returns.

`READ` in lua/lib/90_reserve.lua lists the values of a record in the same order. Reading never fails, whatever another
program wrote into a record: bad bytes in text become replacement characters. A job whose id or type is not UTF-8 is
never granted: the scripts move it to the dead letter queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from taskharbor.drivers.base import DAMAGED_PREFIX
from taskharbor.drivers.redis.scripts import binary
from taskharbor.model.bounds import INT_MAX, INT_MIN, MAX_KEEP_FOR
from taskharbor.model.job import EPOCH, JobInfo, JobRecord, State
from taskharbor.model.lease import Lease, Lost, Reserved
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import MILLISECOND, from_ms, to_ms, to_us

# Positions of the fields in `READ`. A job without STORED is a foreign client's.
PAYLOAD, TYPE, STATE, ATTEMPT, STORED, KIND, GROUP, DUE, CREATED, EXTRA, REAL_MAX, MAX, ERROR, ERROR_AT = range(14)
FAILURES, LAST, OFFSET, LOST, PRIORITY, KEY, FLOW, EDGES, TRAIL, ERROR_CLASS, FINGERPRINT, NOTE = range(14, 26)
EDITS, KEEP, MEMO, OLD_TOKEN, OLD_END, SETTLED, JOINED_AT, SEQ, WORKER, RAN_ON, BEGAN, LOST_AT, END = range(26, 39)
TOKEN, HEIR, REASON, FINISHED, RESULT, UPDATED = range(39, 45)
GRANTED = 29  # values of a job that a reserve returns, and three more of the execution before if that was lost
MAX_PLAIN_VALUES = 8  # that describe a plain job: see lua/lib/45_plain_jobs.lua

MICROSECOND = timedelta(microseconds=1)
MAX_KEEP_DIGITS = 18  # of microseconds
_STATES = {b"blocked": State.BLOCKED, b"completed": State.DONE, b"cancelled": State.CANCELLED, b"failed": State.DLQ}
_UNFINISHED = (b"wait", b"active", b"delayed", b"blocked")
_ENDED_BY_ANY = (b"completed", b"failed")  # by any client of OmniQ
_LAST_MS = to_ms(datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=EPOCH.tzinfo))
_pack = msgspec.msgpack.Encoder().encode
Values = Sequence[Any]


class _Extra(msgspec.Struct, array_like=True):
    timeout: int
    group_limit: int
    metadata: dict[str, str] | None

    def __repr__(self) -> str:
        return shown(self, "timeout", "group_limit")


_unpack = msgspec.msgpack.Decoder(_Extra).decode


def up_to_ms(moment: datetime) -> int:
    """Milliseconds since 1970, rounded up: nothing starts early. (The last one that a datetime can hold stays it.)"""
    return min(-(-(moment - EPOCH) // MILLISECOND), _LAST_MS)


def plain_jobs(jobs: Sequence[JobRecord], now: int) -> list[Any] | None:
    """Jobs as enqueue_plain.lua takes them: one flat array. None unless all are plain, in one queue, each id once."""
    queue, flat = jobs[0].queue, list[Any]()
    for job in jobs:
        if (
            job.queue != queue
            or job.priority
            or job.attempts
            or job.run_at is not None
            or job.idempotency_key is not None
            or job.group is not None
            or job.flow_id is not None
            or job.depends_on
            or job.keep_for is not None
        ):
            return None
        created = now if job.created_at == EPOCH else to_ms(job.created_at)
        flat += (job.id, binary(job.payload), job.type, *limits(job), created)
    if len(jobs) > 1 and len(set(flat[::7])) < len(jobs):
        return None
    return flat


def limits(job: JobRecord) -> tuple[int, int, Any]:
    """The timeout in milliseconds or 0, max_attempts, and the field `th_x` (what only Python reads) or False."""
    timeout = job.timeout
    if timeout is None and not job.group_limit and not job.metadata:
        return 0, job.max_attempts, False
    micros = timeout // MICROSECOND if timeout is not None else 0
    return -(-micros // 1000), job.max_attempts, binary(_pack((micros, job.group_limit, job.metadata or None)))


def stored(job: JobRecord, now: int, edges: str | bool = False, modes: Any = False) -> tuple[Any, ...]:
    """A job as `th.store` takes it. `modes`: on a Cluster what is known of its dependencies."""
    timeout, limit, extra = limits(job)
    keep_for = (str(job.keep_for // MICROSECOND),) if job.keep_for is not None else ()
    return (
        job.id,
        job.queue,
        job.type,
        binary(job.payload),
        up_to_ms(job.run_at) if job.run_at is not None else False,
        timeout,
        job.priority,
        job.attempts,
        limit,
        job.idempotency_key if job.idempotency_key is not None else False,
        job.group if job.group is not None else False,
        job.group_limit,
        edges,
        job.flow_id if job.flow_id is not None else False,
        extra,
        now if job.created_at == EPOCH else to_ms(job.created_at),
        *((modes, *keep_for) if modes or keep_for else ()),
    )


def seen_ms(finished_at: datetime | None) -> int:
    """When a job ended as admin.lua compares it: 0 for None, -1 for a moment that no job of this store can have."""
    if finished_at is None:
        return 0
    if finished_at.utcoffset() is None:
        return -1
    ms, rest = divmod(finished_at - EPOCH, MILLISECOND)
    return ms if ms > 0 and not rest else -1


def can_be_queue(queue: str) -> bool:
    """Whether a queue may have this name: no braces, and no lone surrogate, which UTF-8 cannot hold."""
    if not queue or "{" in queue or "}" in queue:
        return False
    return queue.isascii() or queue.encode("utf-8", "ignore").decode() == queue


def edges_of(text: bytes | None) -> list[tuple[str, str]]:
    """The dependencies of a record: id and queue."""
    if not text:
        return []
    pairs = (line.partition("\t") for line in text.decode(errors="replace").split("\n"))
    return [(id, queue) for id, _, queue in pairs]


def reserved(queue: str, granted: Sequence[Any], end: datetime, began: datetime, worker: str) -> list[Reserved]:
    """Jobs that were just granted: id, token and values of each."""
    found = []
    types: dict[bytes, str] = {}  # values that the jobs of a call share are converted once
    times: dict[Any, datetime | None] = {}
    limits: dict[Any, int] = {}
    for name, token, values in granted:
        id = text_of(name)
        lease = Lease(id, queue, token, end)
        if len(values) > MAX_PLAIN_VALUES:
            job = msgspec.structs.replace(_granted(id, queue, values), began_at=began, ran_on=worker)
            found.append(Reserved(job, lease, _lost_by(values[GRANTED:])))
            continue
        payload, type, created, extra, limit = values[:5]
        if (kind := types.get(type)) is None:
            kind = types[type] = text_of(type)
        if created not in times:
            times[created] = moment_of(created)
        if limit not in limits:
            limits[limit] = _count(whole(limit))
        job = JobRecord(
            id=id,
            type=kind,
            queue=queue,
            payload=payload,
            max_attempts=limits[limit],
            deliveries=1,
            created_at=times[created] or EPOCH,
            began_at=began,
            ran_on=worker,
        )
        if extra or len(values) > 6:
            job = _with_extra(job, values)
        found.append(Reserved(job, lease))
    return found


def _with_extra(job: JobRecord, values: Values) -> JobRecord:
    timeout, limit, metadata = _extra(values[3])
    group, due = values[5:7] if len(values) > 6 else (None, None)
    return msgspec.structs.replace(
        job,
        run_at=moment_of(due) if due else None,
        timeout=timeout,
        group=text_of(group) if group else None,
        group_limit=limit,
        metadata=metadata or {},
    )


def _granted(id: str, queue: str, values: Values) -> JobRecord:
    padded: list[Any] = [*values[:GRANTED], *[None] * (UPDATED + 1 - GRANTED)]
    record = _record(id, queue, padded, moment_of(values[DUE]))
    return msgspec.structs.replace(
        record, attempts=_count(whole(values[FAILURES])), deliveries=_count(whole(values[ATTEMPT]))
    )


def _lost_by(values: Values) -> Lost | None:
    """The previous execution if it was lost, else None: from what lost_before in 90_reserve.lua returns."""
    if len(values) < 3 or (ended := moment_of(values[2])) is None:
        return None
    return Lost(text_of(values[0]), moment_of(values[1]), ended)


def info(id: str, queue: str, open: Sequence[bytes] | None, values: Values, now: int) -> JobInfo:
    """A job as it is at a moment."""
    state, run_at, worker, end = _standing(values, now)
    damaged = state is None
    record = _record(id, queue, values, run_at)
    if damaged:
        record = msgspec.structs.replace(record, reason=f"{DAMAGED_PREFIX}: unknown state")
    waiting: tuple[str, ...] = ()
    if state is State.BLOCKED and open:
        left = {text_of(each) for each in open}
        waiting = tuple(dict.fromkeys(id for id in record.depends_on if id in left))
    return JobInfo(record, state or State.DLQ, worker, end, waiting)


def info_of(reply: Any, now: int) -> JobInfo:
    """A job from what th.whole_record returns."""
    id, queue, open, values = reply
    return info(id.decode(errors="replace"), queue.decode(), open, values, now)


def _standing(values: Values, now: int) -> tuple[State | None, datetime | None, str, datetime | None]:
    state, due = values[STATE], moment_of(values[DUE])
    # Else a foreign client has leased it since.
    is_ours = whole(values[ATTEMPT]) == whole(values[LAST])
    worker = (values[WORKER] or b"").decode(errors="replace") if is_ours else ""
    if state == b"active" or (state == b"wait" and values[OLD_TOKEN]):
        end = whole(values[END] if state == b"active" else values[OLD_END])
        return (State.INFLIGHT, due, worker, moment_of(end)) if end > now else (State.READY, None, "", None)
    if state == b"wait" or state == b"delayed":
        return (State.SCHEDULED if due is not None and to_ms(due) > now else State.READY), due, "", None
    return _STATES.get(state), due, "", None


def _record(id: str, queue: str, values: Values, run_at: datetime | None) -> JobRecord:
    timeout, limit, metadata = _extra(values[EXTRA])
    failures, deliveries = counters(values)
    own = values[STORED] is not None
    finished, reason = values[FINISHED], values[REASON]
    if values[STATE] in _UNFINISHED:  # a foreign client may have revived it
        finished = None
    elif values[STATE] in _ENDED_BY_ANY and whole(values[UPDATED]) > whole(finished):  # a foreign client ended it
        finished = values[UPDATED]
        reason = values[ERROR] if values[STATE] == b"failed" else reason
    type, group, key, flow, heir = values[TYPE], values[GROUP], values[KEY], values[FLOW], values[HEIR]
    return JobRecord(
        id=id,
        type=text_of(type) if type or own else queue,
        queue=queue,
        payload=values[PAYLOAD] or b"",
        run_at=run_at,
        timeout=timeout,
        priority=min(max(whole(values[PRIORITY]), INT_MIN), INT_MAX),
        attempts=_count(failures),
        max_attempts=_count(whole(values[REAL_MAX] if own or values[REAL_MAX] else values[MAX])),
        deliveries=_count(deliveries),
        lost=_count(whole(values[LOST])),
        idempotency_key=text_of(key) if key else None,
        group=text_of(group) if group else None,
        group_limit=limit,
        depends_on=tuple(id for id, _ in edges_of(values[EDGES])),
        flow_id=text_of(flow) if flow else None,
        handed_to=text_of(heir) if heir else None,
        metadata=metadata or {},
        last_error=text_of(values[ERROR]),
        failed_at=moment_of(values[ERROR_AT]),
        reason=text_of(reason),
        created_at=moment_of(values[CREATED]) or EPOCH,
        finished_at=moment_of(finished),
        result=values[RESULT],
        began_at=moment_of(values[BEGAN]),
        ran_on=text_of(values[WORKER] or values[RAN_ON]),
        trail=values[TRAIL] or b"",
        error_class=text_of(values[ERROR_CLASS]),
        fingerprint=text_of(values[FINGERPRINT]),
        note=values[NOTE] or b"",
        edits=_count(whole(values[EDITS])),
        keep_for=_keep_for(values[KEEP]),
        has_memos=values[MEMO] == b"1",
    )


def counters(values: Values) -> tuple[int, int]:
    """Failures and deliveries: th.counters, in Python. `abroad`: a foreign client has it under a lease now."""
    attempt, last, offset, failures = (whole(values[name]) for name in (ATTEMPT, LAST, OFFSET, FAILURES))
    abroad = values[STATE] == b"active" and attempt != last
    if attempt < last:
        return max(0, attempt - abroad), attempt + offset + last
    return failures + max(0, attempt - last - abroad), attempt + offset


def _extra(data: bytes | None) -> tuple[timedelta | None, int, dict[str, str] | None]:
    if not data:
        return None, 0, None
    try:
        found = _unpack(data)
    except msgspec.MsgspecError:
        return None, 0, None
    return (timedelta(microseconds=found.timeout) if found.timeout else None), found.group_limit, found.metadata


def _keep_for(value: bytes | None) -> timedelta | None:
    """How long a job is kept after its end; None for anything else, as th.kept_until judges it."""
    if not value or not value.isdigit() or len(value) > MAX_KEEP_DIGITS:
        return None
    found = timedelta(microseconds=int(value))
    return found if found <= MAX_KEEP_FOR else None


def name_of(data: bytes) -> str | None:
    """The name of a queue; None if it is not UTF-8: no call of ours could name it."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def text_of(value: bytes | None) -> str:
    return value.decode(errors="replace") if value else ""


def whole(value: Any) -> int:
    """A number, or 0 for anything else.

    >>> whole(b"7"), whole(None), whole(b"many")
    (7, 0, 0)
    """
    try:
        return int(value or 0)
    except ValueError:
        return 0


def _count(number: int) -> int:
    """A number within the bounds of a record, whatever another program wrote."""
    return min(max(number, 0), INT_MAX)


def moment_of(value: Any) -> datetime | None:
    """A moment from its milliseconds; None for anything else.

    >>> moment_of(b"0"), moment_of(b""), moment_of(b"many")
    (datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), None, None)
    """
    try:
        number = -1 if value is None else int(value)
    except ValueError:
        return None
    return from_ms(number) if 0 <= number <= _LAST_MS else None


# Moments in sorted sets and rows: microseconds since 1970 in 18 digits, so that text is in the order of time


MOMENT_DIGITS = 18  # enough up to the year 9999
LAST_US = to_us(datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=EPOCH.tzinfo))


def digits_of(at: datetime) -> bytes:
    """A moment as it is stored.

    >>> digits_of(EPOCH)
    b'000000000000000000'
    """
    return b"%0*d" % (MOMENT_DIGITS, to_us(at))
