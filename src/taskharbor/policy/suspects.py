"""Which jobs may take their worker down with them.

One lost lease is an accident: a machine that stopped, a neighbour that took the process down. After the second one a
job is a suspect: it runs alone, so that only the one that kills is blamed.
"""

from __future__ import annotations

from taskharbor.model.job import JobRecord

ACCIDENTS = 1  # losses that any job may have


def is_suspect(job: JobRecord) -> bool:
    """Whether a job is to run alone.

    >>> [is_suspect(JobRecord(id="a", type="t", lost=lost)) for lost in (0, 1, 2)]
    [False, False, True]
    """
    return job.lost > ACCIDENTS
