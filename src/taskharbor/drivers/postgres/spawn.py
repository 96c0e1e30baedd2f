"""Outcomes that spawn jobs or hand over: each in a transaction of its own.

Such an outcome settles its job, stores the new jobs and, with a handover, puts one of them in its place. The runner
of `settle_spawning` rolls back if it returns an error, so all of it happens or nothing. It waits for no lock while it
holds one: it returns `JobLocked` instead.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from taskharbor.drivers.postgres.enqueue import enqueue
from taskharbor.drivers.postgres.records import RefusalCode
from taskharbor.drivers.postgres.settle import check_lease, refusal, settle_plain
from taskharbor.drivers.postgres.statement import Program, Statement, array, call, quoted
from taskharbor.drivers.postgres.tries import JobLocked
from taskharbor.drivers.refusals import not_spawned, own_heir
from taskharbor.model.bounds import check_job, check_spawn
from taskharbor.model.errors import InvalidJob, TaskHarborError
from taskharbor.model.lease import Enqueued
from taskharbor.model.outcome import Ack, Fail
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import to_us


def spawn_alone(schema: str, outcome: Ack, now: datetime, max_payload: int) -> Program[TaskHarborError | None]:
    """Settle one outcome that spawns in a handler's transaction, and wait for whatever is locked.

    It waits after a rollback to a savepoint, so that it holds no lock meanwhile: two calls that waited for each other's
    jobs would deadlock.
    """
    while True:
        yield Statement("savepoint taskharbor_ack")
        result = yield from settle_spawning(schema, outcome, now, max_payload)
        if not isinstance(result, JobLocked):
            return result
        yield Statement("rollback to savepoint taskharbor_ack")
        mode = "update" if result.is_own else "key share"
        yield Statement(f"select 1 from {quoted(schema)}.jobs where id = ? for {mode}", (result.id,))
        yield Statement("rollback to savepoint taskharbor_ack")


def settle_spawning(
    schema: str, outcome: Ack | Fail, now: datetime, max_payload: int
) -> Program[TaskHarborError | None]:
    """Settle one outcome that spawns. The caller rolls back if the result is an error."""
    own = outcome.lease.job_id
    rows = yield Statement(f"select 1 from {quoted(schema)}.jobs where id = ? for update skip locked", (own,))
    if not rows:
        return (yield from _why_not_locked(schema, outcome, now))
    handover = outcome.handover if isinstance(outcome, Ack) else None
    prepared = yield from _prepare(schema, outcome, max_payload, handover is not None)
    if prepared.locked is not None:
        return JobLocked.job(own, prepared.locked)
    plain = replace(outcome, spawn=(), handover=None) if isinstance(outcome, Ack) else replace(outcome, spawn=())
    (result,), before = yield from settle_plain(schema, [plain], now, release=handover is None)
    if result is not None or before:
        return result
    try:
        check_spawn(outcome.spawn)
        stored = yield from enqueue(schema, outcome.spawn, now, max_payload)
        if isinstance(outcome, Ack) and handover is not None:
            return (yield from _hand_over(schema, outcome, handover, stored, prepared.dependents, now))
    except InvalidJob as error:
        return error
    return None


class _Prepared(NamedTuple):
    """See settle/prepare_spawn.sql."""

    locked: str | None
    dependents: str | None

    def __repr__(self) -> str:
        return shown(self)


def _prepare(schema: str, outcome: Ack | Fail, max_payload: int, handover: bool) -> Program[_Prepared]:
    """Lock what storing the spawned jobs will need."""
    spawned = {job.id for job in outcome.spawn}
    try:
        check_spawn(outcome.spawn)
        for job in outcome.spawn:
            check_job(job, max_payload)
        flows = sorted({job.flow_id for job in outcome.spawn if job.flow_id is not None})
        dependencies = sorted({id for job in outcome.spawn for id in job.depends_on} - spawned)
    except InvalidJob:
        flows, dependencies = [], []  # the names may be no text for a store; they are refused later, behind the fence
    rows = yield call(
        schema,
        "prepare_spawn(text, text, text, boolean)",
        outcome.lease.job_id,
        array(flows) if flows else None,
        array(dependencies) if dependencies else None,
        handover,
        columns="locked, dependents",
    )
    return _Prepared(*rows[0])


def _hand_over(
    schema: str, ack: Ack, handover: str, stored: list[Enqueued], dependents: str | None, now: datetime
) -> Program[TaskHarborError | None]:
    """Put the spawned job `handover`, or the job that it is known as, in the place of the acked one."""
    own = ack.lease.job_id
    by_id = {job.id: result for job, result in zip(ack.spawn, stored, strict=True)}
    if handover not in by_id or by_id[handover].id == own:
        return not_spawned(handover)
    heir = by_id[handover].id
    if by_id[handover].existed:
        last = yield from _last_of(schema, own, heir)
        if isinstance(last, JobLocked):
            return last
        if last == own:
            return own_heir(handover, own)
        heir = last
    rows = yield call(schema, "hand_over(text, text, text, bigint)", own, heir, dependents, to_us(now))
    return InvalidJob(rows[0][0]) if rows[0][0] is not None else None


def _last_of(schema: str, own: str, id: str) -> Program[str | JobLocked]:
    """The job that now stands for a stored one: follow its handovers, as far as the successors are still stored. It is
    locked, so that it cannot be settled until we commit; a locked record is not waited for."""
    last, name = id, quoted(schema)
    while True:
        if (yield Statement(f"select 1 from {name}.jobs where id = ? for key share skip locked", (id,))):
            return id
        rows = yield Statement(f"select handed_to from {name}.history where id = ? for key share skip locked", (id,))
        if not rows:  # locked, or it has moved from one table to the other between the two reads; or it is gone
            there = yield Statement(f"select 1 from {name}.records where id = ?", (id,))
            return JobLocked.job(own, id) if there else last
        last = id
        if rows[0][0] is None:
            return last
        id = rows[0][0]


def _why_not_locked(schema: str, outcome: Ack | Fail, now: datetime) -> Program[TaskHarborError | None]:
    """What to return for an outcome whose job could not be locked: it is gone, or another call has it."""
    code, ends = yield from check_lease(schema, outcome, now)
    if code == RefusalCode.ALREADY_APPLIED:
        return None
    id = outcome.lease.job_id
    return JobLocked.job(id) if code == RefusalCode.HOLDS else refusal(code, id, ends)
