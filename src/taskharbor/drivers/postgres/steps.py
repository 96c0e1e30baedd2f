"""Memos of steps as programs: stored under a lease that holds, read by job."""

from __future__ import annotations

from datetime import datetime

from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.records import RefusalCode, base64_of, nearest_moment
from taskharbor.drivers.postgres.settle import is_plain, refusal, settle_alone, spawn_alone
from taskharbor.drivers.postgres.statement import Program, Statement, call, quoted
from taskharbor.model.bounds import check_memo
from taskharbor.model.errors import DriverError, JobNotFound, TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.memo import Memo, SaveStep, memo_place
from taskharbor.model.outcome import Ack
from taskharbor.model.times import to_us


def save(schema: str, lease: Lease, name: str, value: bytes, now: datetime) -> Program[DriverError | None]:
    """Store a memo, or return why its lease does not hold."""
    check_memo(name, value)
    given = (lease.job_id, lease.token, name, base64_of(value), to_us(now))
    rows = yield call(schema, "save_step(text, text, text, text, bigint)", *given, columns="code, ends")
    if not rows:
        return None
    ((code, ends),) = rows
    return refusal(RefusalCode.IS_LOCKED if code == RefusalCode.HOLDS else code, lease.job_id, ends)


def steps(schema: str, id: str) -> Program[list[Memo]]:
    """The memos of a job, if it has any."""
    rows = yield Statement(
        f"select s.name, s.value, s.at, s.execution from {quoted(schema)}.steps s "
        f"where s.id = ? and exists (select from {quoted(schema)}.records r where r.id = s.id and r.memos)",
        (id,),
    )
    found = [Memo(name, bytes(value), nearest_moment(at), execution) for name, value, at, execution in rows]
    return sorted(found, key=memo_place)


def last_of(
    options: PostgresOptions, lease: Lease, ack: Ack | SaveStep, now: datetime
) -> Program[TaskHarborError | None]:
    """What a handler's transaction does last: settle its job, or store a step of it."""
    if ack.lease.job_id != lease.job_id:
        return JobNotFound(f"this transaction belongs to job {lease.job_id}, not to {ack.lease.job_id}")
    # The handler may have set time limits for its own statements.
    limit = str(round(options.statement_timeout * 1000))
    yield Statement("select set_config('statement_timeout', ?, true), set_config('lock_timeout', '0', true)", (limit,))
    if isinstance(ack, SaveStep):
        return (yield from save(options.schema, ack.lease, ack.name, ack.value, now))
    if is_plain(ack):
        return (yield from settle_alone(options.schema, ack, now))
    return (yield from spawn_alone(options.schema, ack, now, options.max_payload))
