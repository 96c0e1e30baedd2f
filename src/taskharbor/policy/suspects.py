"""Suspects: jobs that may crash their worker.

One lost lease is an accident: a machine that stopped, a neighbour that crashed the process. After the second one a job
is a suspect: it runs alone, so that only the job that crashes is blamed. Whatever `max_lost` is, a job runs alone the
last time it may run: no job is dead for what a neighbour did.
"""

from __future__ import annotations

from taskharbor.model.job import JobRecord
from taskharbor.policy.retry import DEFAULT_MAX_LOST

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
