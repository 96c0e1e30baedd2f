"""Histograms of run times and waiting times, as figures keep them: sixteen buckets that grow fourfold.

Bucket 0 has what took less than 1 ms, bucket k what took less than 4**k ms, the last one the rest (three days and
more). Stores add them up by name, so the histograms of many workers and minutes merge without loss. A percentile is
exact to its bucket, and interpolated inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskharbor.model.job import Figures

BUCKETS = 16
RAN = tuple(f"ran_{number:02}" for number in range(BUCKETS))
WAITED = tuple(f"waited_{number:02}" for number in range(BUCKETS))


def bucket_of(milliseconds: int) -> int:
    """The bucket of a time.

    >>> [bucket_of(ms) for ms in (0, 1, 3, 4, 15, 16, 10**12)]
    [0, 1, 1, 2, 2, 3, 15]
    """
    return min((milliseconds.bit_length() + 1) // 2, BUCKETS - 1)


def merged(rows: Iterable[Figures]) -> dict[str, int]:
    """The numbers of several minutes, queues or both, added up by name."""
    total: dict[str, int] = {}
    for row in rows:
        for name, number in row.counts.items():
            total[name] = total.get(name, 0) + number
    return total


def percentile(counts: Mapping[str, int], names: tuple[str, ...], share: float) -> float | None:
    """The time in milliseconds that this share of executions stayed under; None without any.

    `names`: RAN or WAITED; `share`: 0.5 for the median, 0.95 for p95.

    >>> percentile({"ran_02": 3, "ran_04": 1}, RAN, 0.5)
    12.0
    """
    numbers = [max(0, counts.get(name, 0)) for name in names]
    wanted = sum(numbers) * min(max(share, 0.0), 1.0)
    if not sum(numbers):
        return None
    before = 0
    for bucket, number in enumerate(numbers):
        if number and before + number >= wanted:
            low, high = 0.0 if bucket == 0 else 4.0 ** (bucket - 1), 4.0**bucket
            return low + (high - low) * (wanted - before) / number
        before += number
    raise AssertionError("some bucket holds the share")
