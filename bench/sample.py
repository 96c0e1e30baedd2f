"""One measurement of one subject: the wall time and processor time of a number of jobs."""

from __future__ import annotations

import gc
import time
from types import TracebackType
from typing import Self

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """`wall` and `cpu` are seconds for all jobs together; `latencies` are seconds, one for each job."""

    jobs: int
    wall: float = 0.0
    cpu: float = 0.0
    latencies: tuple[float, ...] = ()


class Stopwatch:
    """Times a block, beginning with a clean slate of the garbage collector, which stays on as users have it.

    >>> with Stopwatch() as watch:
    ...     pass
    >>> watch.sample(1).jobs
    1
    """

    def __enter__(self) -> Self:
        gc.collect()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cpu = time.process_time() - self._cpu
        self._wall = time.perf_counter() - self._wall

    def sample(self, jobs: int) -> Sample:
        """What was measured, for this number of jobs."""
        return Sample(jobs, self._wall, self._cpu)
