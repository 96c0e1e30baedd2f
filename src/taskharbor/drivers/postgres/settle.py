"""Outcomes as programs: plain ones in batches of one statement. Those that spawn are in spawn.py.

A statement over several jobs waits for none of them. A job that another transaction has locked at that moment (one
that depends on it, an extend on its way) stays as it is and comes back as `JobLocked`, for the runner to send again. In
a transaction that a single job owns no other job is held up, and the lock is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from taskharbor.drivers.postgres.records import (
    ACK,
    CANCEL,
    FAIL,
    RETRY,
    RefusalCode,
    base64_of,
    nearest_moment,
    to_json,
)
from taskharbor.drivers.postgres.statement import Program, Statement, call, quoted
from taskharbor.drivers.postgres.tries import JobLocked
from taskharbor.drivers.refusals import lease_refusal
from taskharbor.model.bounds import check_outcome, clean_error
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import to_us

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


def outcome_batches(outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    """The outcomes in order, in batches that can be sent together: each job once, an outcome that spawns alone."""
    batch: list[Outcome] = []
    seen: set[str] = set()
    for outcome in outcomes:
        alone = not is_plain(outcome)
        if batch and (alone or outcome.lease.job_id in seen):
            yield batch
            batch, seen = [], set()
        if alone:
            yield [outcome]
        else:
            batch.append(outcome)
            seen.add(outcome.lease.job_id)
    if batch:
        yield batch


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


def check_lease(schema: str, outcome: Ack | Fail, now: datetime) -> Program[tuple[int, int | None]]:
    """The code that an outcome would get, and the end of the lease; nothing is applied."""
    lease = outcome.lease
    row = OutcomeRow(0, lease.job_id, lease.token, _KINDS[type(outcome)])
    rows = yield _settle_statement(schema, [row], now, release=True)
    return rows[0][1], rows[0][2]


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
        row.failed_at = None if outcome.failed_at is None else to_us(outcome.failed_at)
        row.error_class = outcome.error_class or None
        row.fingerprint = outcome.fingerprint or None
    if isinstance(outcome, Retry):
        row.run_at = None if outcome.run_at is None else to_us(outcome.run_at)
    if isinstance(outcome, Fail | Cancelled):
        row.reason = clean_error(outcome.reason) or None
    return row


# Extending leases. A statement over several jobs waits for none of them.


def lease_batches(leases: Sequence[Lease]) -> Iterator[list[Lease]]:
    """The leases in order, in lease_batches in which each job occurs once.

    >>> [len(batch) for batch in lease_batches([])]
    []
    """
    batch: dict[str, Lease] = {}
    for lease in leases:
        if lease.job_id in batch:
            yield list(batch.values())
            batch = {}
        batch[lease.job_id] = lease
    if batch:
        yield list(batch.values())


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
    return lease_refusal(code, id, nearest_moment(ends) if ends is not None else None)
