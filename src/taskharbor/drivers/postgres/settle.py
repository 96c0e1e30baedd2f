"""Outcomes and extended leases as programs: plain outcomes in batches of one statement, those that spawn alone.

A statement over several jobs waits for none of them. A job that another transaction has locked at that moment (one
that depends on it, an extend on its way) stays as it is and comes back as `JobLocked`, for the runner to send again.
Settling one job alone holds up no other, so it waits for the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from taskharbor.drivers.postgres.enqueue import enqueue
from taskharbor.drivers.postgres.records import (
    ACK,
    CANCEL,
    FAIL,
    RETRY,
    RefusalCode,
    base64_of,
    nearest_moment,
    optional_moment,
    optional_us,
    to_json,
)
from taskharbor.drivers.postgres.statement import Program, Statement, array, call, quoted
from taskharbor.drivers.postgres.tries import JobLocked
from taskharbor.drivers.refusals import lease_refusal, not_spawned, own_heir
from taskharbor.model.bounds import check_job, check_outcome, check_spawn, clean_error
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.lease import Enqueued, Lease
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import to_us

B = TypeVar("B")
_KINDS: dict[type, int] = {Ack: ACK, Retry: RETRY, Fail: FAIL, Cancelled: CANCEL}


class OutcomeRow(msgspec.Struct, omit_defaults=True, gc=False):
    """One outcome on its way into the store."""

    o: int  # its position in the call
    id: str
    token: str
    was: int  # the kind of the outcome: if an earlier call has applied one of this kind, it is not refused
    kind: int = 0  # the kind to apply; 0: only check the lease
    result: bytes | None = None
    run_at: int | None = None
    attempts: int | None = None
    last_error: str | None = None
    failed_at: int | None = None
    reason: str | None = None
    error_class: str | None = None
    fingerprint: str | None = None
    trail: bytes | None = None

    def __repr__(self) -> str:
        return shown(self, "id", "kind")


def is_plain(outcome: Outcome) -> bool:
    """Whether it can share a statement with others."""
    return not getattr(outcome, "spawn", ()) and getattr(outcome, "handover", None) is None


def batches(items: Sequence[B], job_of: Callable[[B], str], alone: Callable[[B], bool] | None = None) -> list[list[B]]:
    """The items in order, in batches that can be sent together: each job once, and what is `alone` by itself.

    >>> batches(["a", "b", "a", "c"], str, lambda item: item == "c")
    [['a', 'b'], ['a'], ['c']]
    """
    made: list[list[B]] = []
    seen: set[str] = set()
    was_alone = True
    for item in items:
        job, is_alone = job_of(item), alone is not None and alone(item)
        if is_alone or was_alone or job in seen:
            made.append([])
            seen = set()
        made[-1].append(item)
        seen.add(job)
        was_alone = is_alone
    return made


def settle_alone(schema: str, outcome: Outcome, now: datetime) -> Program[TaskHarborError | None]:
    """Settle one plain outcome in a transaction of its own, waiting for its job."""
    while True:
        (result,), _ = yield from settle_plain(schema, [outcome], now)
        if not isinstance(result, JobLocked):
            return result
        yield Statement(f"select 1 from {quoted(schema)}.jobs where id = ? for update", (outcome.lease.job_id,))


def settle_plain(
    schema: str, outcomes: Sequence[Outcome], now: datetime, *, release: bool = True
) -> Program[tuple[list[TaskHarborError | None], set[int]]]:
    """Settle plain outcomes of different jobs; the results, and the positions of those that an earlier call applied."""
    results: list[TaskHarborError | None] = [None] * len(outcomes)
    left: Sequence[int] = range(len(outcomes))
    acks = _acks(schema, outcomes, now) if release else None
    if acks is not None:
        rows = yield acks
        if rows[0][0] is None:
            return results, set()
        left = [int(position) for position in rows[0][0].split(",")]
    applied_before = yield from _settle(schema, outcomes, left, now, release, results)
    return results, applied_before


def _acks(schema: str, outcomes: Sequence[Outcome], now: datetime) -> Statement | None:
    """The statement for outcomes that are all acks without a trail; None if they are not, or an id or token holds a
    separator."""
    ids, tokens, texts = list[str](), list[str](), list[str]()
    for outcome in outcomes:
        if type(outcome) is not Ack:
            return None
        lease, result = outcome.lease, outcome.result
        if outcome.trail or (result is not None and type(result) is not bytes):
            return None
        ids.append(lease.job_id)
        tokens.append(lease.token)
        texts.append("-" if result is None else " " + base64_of(result))  # the space tells an empty result from none
    joined_ids, joined_tokens = "\n".join(ids), ",".join(tokens)
    if (
        joined_ids.count("\n") + 1 != len(ids)
        or joined_tokens.count(",") + 1 != len(ids)
        or not all(ids)
        or not all(tokens)
    ):
        return None
    joined = ",".join(texts) if any(text != "-" for text in texts) else None
    return call(schema, "ack(text, text, text, bigint)", joined_ids, joined_tokens, joined, to_us(now))


def _settle(
    schema: str,
    outcomes: Sequence[Outcome],
    positions: Sequence[int],
    now: datetime,
    release: bool,
    results: list[TaskHarborError | None],
) -> Program[set[int]]:
    """Settle the outcomes at these positions, of any kind. An invalid one is refused only if its lease holds."""
    invalid: dict[int, InvalidJob] = {}
    rows_in = []
    for position in positions:
        outcome = outcomes[position]
        try:
            check_outcome(outcome)
            rows_in.append(_row(position, outcome))
        except InvalidJob as error:
            invalid[position] = error
            lease = outcome.lease
            rows_in.append(OutcomeRow(position, lease.job_id, lease.token, _KINDS.get(type(outcome), -1)))
    rows = yield _settle_statement(schema, rows_in, now, release)
    applied_before: set[int] = set()
    for position, code, ends in rows:
        id = outcomes[position].lease.job_id
        if code == RefusalCode.ALREADY_APPLIED:
            applied_before.add(position)
        elif code == RefusalCode.HOLDS:
            results[position] = invalid.get(position) or refusal(RefusalCode.NOT_INFLIGHT, id, None)
        else:
            results[position] = refusal(code, id, ends)
    return applied_before


def _settle_statement(schema: str, rows: Sequence[OutcomeRow], now: datetime, release: bool) -> Statement:
    given = (to_json(rows), to_us(now), release, any(row.kind == RETRY for row in rows))
    return call(schema, "settle(text, bigint, boolean, boolean)", *given, columns="o, code, ends")


def _row(position: int, outcome: Outcome) -> OutcomeRow:
    lease = outcome.lease
    kind = _KINDS[type(outcome)]
    row = OutcomeRow(position, lease.job_id, lease.token, kind, kind, trail=outcome.trail or None)
    if isinstance(outcome, Ack):
        row.result = outcome.result
    if isinstance(outcome, Retry | Fail):
        row.attempts = outcome.attempts
        row.last_error = clean_error(outcome.last_error) or None
        row.failed_at = optional_us(outcome.failed_at)
        row.error_class = outcome.error_class or None
        row.fingerprint = outcome.fingerprint or None
    if isinstance(outcome, Retry):
        row.run_at = optional_us(outcome.run_at)
    if isinstance(outcome, Fail | Cancelled):
        row.reason = clean_error(outcome.reason) or None
    return row


# Outcomes that spawn jobs or hand over, each in a transaction of its own. Such an outcome settles its job, stores the
# new jobs and, with a handover, puts one of them in its place. The runner of `settle_spawning` rolls back if it returns
# an error, so all of it happens or nothing. It waits for no lock while it holds one: it returns `JobLocked` instead.


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
    locked, dependents = yield from _prepare(schema, outcome, max_payload, handover is not None)
    if locked is not None:
        return JobLocked.job(own, locked)
    plain = replace(outcome, spawn=(), handover=None) if isinstance(outcome, Ack) else replace(outcome, spawn=())
    (result,), before = yield from settle_plain(schema, [plain], now, release=handover is None)
    if result is not None or before:
        return result
    try:
        check_spawn(outcome.spawn)
        stored = yield from enqueue(schema, outcome.spawn, now, max_payload)
        if isinstance(outcome, Ack) and handover is not None:
            return (yield from _hand_over(schema, outcome, handover, stored, dependents, now))
    except InvalidJob as error:
        return error
    return None


def _prepare(schema: str, outcome: Ack | Fail, max_payload: int, handover: bool) -> Program[Sequence[str | None]]:
    """Lock what storing the spawned jobs will need: see prepare_spawn.sql for the two texts."""
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
    return rows[0]


def _hand_over(
    schema: str, ack: Ack, handover: str, stored: list[Enqueued], dependents: str | None, now: datetime
) -> Program[TaskHarborError | None]:
    """Put the spawned job `handover`, or the job that it is known as, in the place of the acked one."""
    own = ack.lease.job_id
    by_id = {job.id: result.id for job, result in zip(ack.spawn, stored, strict=True)}
    if by_id.get(handover, own) == own:
        return not_spawned(handover)
    given = (own, by_id[handover], dependents, to_us(now))
    rows = yield call(schema, "hand_over(text, text, text, bigint)", *given, columns="heir, locked, refused")
    heir, locked, refused = rows[0]
    if locked is not None:
        return JobLocked.job(own, locked)
    if heir == own:
        return own_heir(handover, own)
    return InvalidJob(refused) if refused is not None else None


def _why_not_locked(schema: str, outcome: Ack | Fail, now: datetime) -> Program[TaskHarborError | None]:
    """What to return for an outcome whose job could not be locked: it is gone, or another call has it."""
    lease = outcome.lease
    row = OutcomeRow(0, lease.job_id, lease.token, _KINDS[type(outcome)])  # of kind 0: nothing is applied
    ((_, code, ends),) = yield _settle_statement(schema, [row], now, release=True)
    if code == RefusalCode.ALREADY_APPLIED:
        return None
    return refusal(RefusalCode.IS_LOCKED if code == RefusalCode.HOLDS else code, lease.job_id, ends)


# Extending leases. A statement over several jobs waits for none of them.


def extend(
    schema: str, leases: Sequence[Lease], now: datetime, lease_for: timedelta, notes: Mapping[str, bytes]
) -> Program[list[Lease | TaskHarborError]]:
    """Extend leases of different jobs. `notes`: by token, and checked."""
    given = [{"o": position, "id": lease.job_id, "token": lease.token} for position, lease in enumerate(leases)]
    for row in given if notes else ():
        if row["token"] in notes:
            row["note"] = base64_of(notes[str(row["token"])])
    moments = to_us(now), to_us(now + lease_for)
    rows = yield call(schema, "extend(text, bigint, bigint)", to_json(given), *moments, columns="o, code, ends")
    results: dict[int, Lease | TaskHarborError] = {}
    for position, code, ends in rows:
        lease = leases[position]
        if code == RefusalCode.HOLDS:
            results[position] = Lease(lease.job_id, lease.queue, lease.token, nearest_moment(ends))
        else:
            results[position] = refusal(code, lease.job_id, ends)
    return [results[position] for position in range(len(leases))]


def refusal(code: int, id: str, ends: int | None) -> DriverError:
    """The error for a code of settle and extend; `ends`: when the lease ended, in microseconds."""
    if code == RefusalCode.IS_LOCKED:
        return JobLocked.job(id)
    return lease_refusal(code, id, optional_moment(ends))
