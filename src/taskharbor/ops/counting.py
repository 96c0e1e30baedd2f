"""Counts for a person, who needs no exact number of a million jobs."""

from __future__ import annotations

CAP_JOBS = 10_000  # counted of a queue in one state, at most
MIN_CAP_JOBS = 10
MAX_COUNTED_JOBS = 200_000  # in one state, over all queues: many queues are counted less far each


def cap_for(queues: int) -> int:
    """How far the jobs of one queue in one state are counted, beside this many queues.

    >>> cap_for(7), cap_for(1_000), cap_for(1_000_000)
    (10000, 200, 10)
    """
    return max(MIN_CAP_JOBS, min(CAP_JOBS, MAX_COUNTED_JOBS // max(queues, 1)))
