"""Extending leases, as a program. A statement over several jobs waits for none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from taskharbor.drivers.postgres.lock_retry import JobLocked
from taskharbor.drivers.postgres.records import RefusalCode, base64_of, nearest_moment, to_json
from taskharbor.drivers.postgres.statement import Program, call
from taskharbor.drivers.refusals import lease_refusal
from taskharbor.model.bounds import MAX_NOTE_BYTES, check_bytes
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.times import to_us


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


def refused_notes(leases: Sequence[Lease], notes: Mapping[str, bytes]) -> dict[str, InvalidJob]:
    """By token, why a note cannot be stored; such a lease is not extended."""
    refused = {}
    for lease in leases:
        if lease.token in notes:
            try:
                check_bytes(notes[lease.token], "note", MAX_NOTE_BYTES)
            except InvalidJob as error:
                refused[lease.token] = error
    return refused


def extend(
    schema: str, leases: Sequence[Lease], now: datetime, lease_for: timedelta, notes: Mapping[str, bytes]
) -> Program[list[Lease | TaskHarborError]]:
    """Extend leases of different jobs. `notes`: by token, and checked."""
    given = [{"o": position, "id": lease.job_id, "token": lease.token} for position, lease in enumerate(leases)]
    for row in given if notes else ():
        if row["token"] in notes:
            row["note"] = base64_of(notes[str(row["token"])])
    rows = yield call(
        schema,
        "extend",
        (to_json(given), "text"),
        (to_us(now), "bigint"),
        (to_us(now + lease_for), "bigint"),
        columns="o, code, ends",
    )
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
