"""Losses: which of the executions that ended without an outcome count as crashes, and which jobs run alone for them.

A lease ends without an outcome if its worker died, and if the worker lived on but could not reach the store to renew
it. Only the first says something about the job. A worker names the executions that it lost in the second way in its
heartbeats (`WorkerInfo.cut_off`): they were cut off, and are no crashes. A ceiling stays: a job whose leases end again
and again is dead at last, whatever the reason.

One lost lease is an accident: a machine that stopped, a neighbour that crashed the process. After the second one a job
is a suspect: it runs alone, so that only the job that crashes is blamed. Whatever `max_lost` is, a job runs alone the
last time it may run: no job is dead for what a neighbour did.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from taskharbor.model.executions import AttemptKind, read_trail
from taskharbor.model.job import JobRecord, WorkerInfo
from taskharbor.policy.retry import DEFAULT_MAX_LOST

LOSSES_PER_CRASH = 10  # the ceiling, as a multiple of `max_lost`


def most_losses(max_lost: int) -> int:
    """How often the leases of a job may end in a row, crashes or not, before it is dead.

    >>> most_losses(3)
    30
    """
    return LOSSES_PER_CRASH * max_lost


def cut_off_deliveries(job_id: str, workers: Iterable[WorkerInfo]) -> set[int]:
    """The deliveries of a job of which workers say that they were cut off from the store."""
    return {delivery for worker in workers for id, delivery in worker.cut_off if id == job_id}


def crashes(job: JobRecord, cut_off: Set[int], max_lost: int) -> int:
    """How many of the losses that a reserved job counts are crashes; at the ceiling all of them.

    Its losses are the last deliveries of which the trail tells no other end: between two of them it was given back at
    most, because every recorded outcome sets `lost` back to 0.

    >>> job = JobRecord(id="a", type="t", lost=3, deliveries=4)
    >>> crashes(job, set(), 3), crashes(job, {1, 2}, 3)
    (3, 1)
    """
    if job.lost >= most_losses(max_lost) or not job.lost or not cut_off:
        return job.lost
    ended = {each.number for each in read_trail(job.trail) if each.kind is not AttemptKind.LOST}
    losses = [number for number in range(1, job.deliveries) if number not in ended][-job.lost :]
    return job.lost - len(cut_off & set(losses))


MAX_ACCIDENTS = 1  # lost leases that do not make a job a suspect


def is_suspect(job: JobRecord, max_lost: int = DEFAULT_MAX_LOST) -> bool:
    """Whether a job is to run alone.

    >>> [is_suspect(JobRecord(id="a", type="t", lost=lost)) for lost in (0, 1, 2)]
    [False, False, True]
    """
    return job.lost >= alone_from(max_lost)


def alone_from(max_lost: int) -> int:
    """The number of lost leases from which on a job runs alone.

    >>> [alone_from(max_lost) for max_lost in (1, 2, 3, 9)]
    [1, 1, 2, 2]
    """
    return max(1, min(MAX_ACCIDENTS + 1, max_lost - 1))
