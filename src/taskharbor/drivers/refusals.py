"""Why a driver refuses a lease, a note, an edge, a requeue, a cancel, a delete or an amend: the same on every store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Literal

from taskharbor.model.bounds import MAX_NOTE_BYTES, check_bytes
from taskharbor.model.errors import (
    DriverError,
    InvalidJob,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseMismatch,
    WrongState,
)
from taskharbor.model.job import Seen
from taskharbor.model.lease import Lease


class LeaseCode(IntEnum):
    """Why a lease may not be extended or settled, in the order in which the contract checks. Stores return these."""

    NOT_FOUND = 1
    NOT_INFLIGHT = 2
    MISMATCH = 3
    EXPIRED = 4


def lease_refusal(code: int, job_id: str, ended_at: datetime | None = None) -> DriverError:
    """The error for a code. `ended_at`: when the lease ended, if it has."""
    if code == LeaseCode.NOT_FOUND:
        return no_job(job_id)
    if code == LeaseCode.NOT_INFLIGHT:
        return JobNotInflight(f"job {job_id} is not inflight")
    if code == LeaseCode.MISMATCH:
        return LeaseMismatch(f"job {job_id} was reserved again: another lease holds it")
    if code == LeaseCode.EXPIRED:
        return LeaseExpired(f"the lease on job {job_id} ended at {ended_at or 'an unknown time'}")
    raise ValueError(f"code: expected 1 to 4, got {code!r}")


def check_lease(
    lease: Lease, now: datetime, *, stored: bool, inflight: bool, token: str | None, ends_at: datetime | None
) -> DriverError | None:
    """Why `lease` may not be extended or settled at `now`; None if it may.

    `stored`: whether its job exists. `inflight`: whether a lease was granted on it that nothing has ended since, be it
    over or not. `token` and `ends_at` are that lease's.

    >>> from taskharbor.model.times import from_us
    >>> lease = Lease("01J", "mail", "token", from_us(5))
    >>> check_lease(lease, from_us(4), stored=True, inflight=True, token="token", ends_at=from_us(5))
    >>> check_lease(lease, from_us(4), stored=True, inflight=True, token="other", ends_at=from_us(9))
    LeaseMismatch('job 01J was reserved again: another lease holds it')
    """
    if not stored:
        return lease_refusal(LeaseCode.NOT_FOUND, lease.job_id)
    if not inflight:
        return lease_refusal(LeaseCode.NOT_INFLIGHT, lease.job_id)
    if token != lease.token:
        return lease_refusal(LeaseCode.MISMATCH, lease.job_id)
    if ends_at is None or ends_at <= now:
        return lease_refusal(LeaseCode.EXPIRED, lease.job_id, ends_at)
    return None


def no_job(id: str) -> JobNotFound:
    """No job has this id.

    >>> no_job("01J")
    JobNotFound('no job 01J')
    """
    return JobNotFound(f"no job {id}")


def no_flow(flow_id: str) -> JobNotFound:
    """No job belongs to a flow of this id.

    >>> no_flow("f1")
    JobNotFound('no flow f1')
    """
    return JobNotFound(f"no flow {flow_id}")


def unknown_dependency(id: str, dependency: str) -> InvalidJob:
    """A job depends on one that is not stored."""
    return InvalidJob(
        f"depends_on: {id} depends on {dependency}, which is not stored; enqueue it before or in the same call"
    )


def not_spawned(handover: str) -> InvalidJob:
    """A handover to a job that is not in the spawn of its outcome, or to the acked job."""
    return InvalidJob(f"handover: expected the id of a spawned job, got {handover!r}; spawn it in the same outcome")


def own_heir(handover: str, acked: str) -> InvalidJob:
    """A handover to a job whose place the acked one has."""
    return InvalidJob(f"handover: {acked} has the place of {handover}, and cannot hand over to it")


_TAKES = {"requeue": "requeue takes dlq and cancelled", "cancel": "cancel takes what is not terminal"}


def wrong_state(id: str, state: str, verb: Literal["requeue", "cancel"]) -> WrongState:
    """A job is in a state that `verb` does not take.

    >>> wrong_state("01J", "ready", "requeue")
    WrongState('job 01J is ready; requeue takes dlq and cancelled')
    """
    return WrongState(f"job {id} is {state}; {_TAKES[verb]}")


def still_needed(id: str, dependents: int) -> WrongState:
    """A job cannot be deleted while unfinished jobs depend on it.

    >>> still_needed("01J", 2)
    WrongState('job 01J is needed: 2 unfinished job(s) depend on it')
    """
    return WrongState(f"job {id} is needed: {dependents} unfinished job(s) depend on it")


def not_amendable(id: str, state: str) -> WrongState:
    """A job is done, or under a lease: it may be running, or what ran it may be lost and not yet replaced.

    >>> not_amendable("01J", "done")
    WrongState('job 01J is done; amend takes what is neither done nor under a lease')
    """
    return WrongState(f"job {id} is {state}; amend takes what is neither done nor under a lease")


def amended_since(id: str) -> WrongState:
    """A job is not as the editor saw it.

    >>> amended_since("01J")
    WrongState('job 01J was reserved or amended since; read it again')
    """
    return WrongState(f"job {id} was reserved or amended since; read it again")


def changed_since(id: str) -> WrongState:
    """A job that is to be requeued, cancelled or deleted is not as it was read.

    >>> changed_since("01J")
    WrongState('job 01J changed since it was read; read it again')
    """
    return WrongState(f"job {id} changed since it was read; read it again")


def paired(ids: Sequence[str], seen: Sequence[Seen] | None) -> list[tuple[str, Seen | None]]:
    """Each id with what the caller saw of its job; ValueError if there is not one for each.

    >>> paired(["01J"], None)
    [('01J', None)]
    """
    if seen is None:
        return [(id, None) for id in ids]
    if len(seen) != len(ids):
        raise ValueError(f"seen: expected one for each of {len(ids)} ids, got {len(seen)}")
    return list(zip(ids, seen, strict=True))


def bad_notes(leases: Sequence[Lease], notes: Mapping[str, bytes]) -> dict[int, InvalidJob]:
    """Why the note of a lease cannot be stored, by the place of the lease in the call; empty if all can.

    >>> bad_notes([], {})
    {}
    """
    bad: dict[int, InvalidJob] = {}
    for place, lease in enumerate(leases):
        if lease.token in notes:
            try:
                check_bytes(notes[lease.token], "note", MAX_NOTE_BYTES)
            except InvalidJob as invalid:
                bad[place] = invalid
    return bad
