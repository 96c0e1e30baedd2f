"""Which jobs may take their worker down with them.

One lost lease is an accident: a machine that stopped, a neighbour that took the process down. After the second one a
job is a suspect: it runs alone, so that only the one that kills is blamed. Whatever `max_lost` is, a job is alone the
last time it may run: nobody is called dead for what a neighbour did.
"""

from __future__ import annotations

from taskharbor.model.job import JobRecord
from taskharbor.policy.retry import DEFAULT_MAX_LOST

ACCIDENTS = 1  # losses that any job may have


def is_suspect(job: JobRecord, max_lost: int = DEFAULT_MAX_LOST) -> bool:
    """Whether a job is to run alone.

    >>> [is_suspect(JobRecord(id="a", type="t", lost=lost)) for lost in (0, 1, 2)]
    [False, False, True]
    """
    return job.lost >= alone_from(max_lost)


def alone_from(max_lost: int) -> int:
    """The number of losses from which on a job runs alone, if it is run at all.

    >>> [alone_from(max_lost) for max_lost in (1, 2, 3, 9)]
    [1, 1, 2, 2]
    """
    return max(1, min(ACCIDENTS + 1, max_lost - 1))
