"""Calls that find a job locked by another transaction: ask again a few times, then report the job as locked.

Usually that is another call, which ends within milliseconds. It may also be an application's transaction that depends
on the job and stays open for minutes; then only calls for that one job may have to wait. So a call asks again, only for
the jobs that were locked, and finally returns `JobLocked` for them: nothing was changed, and the caller may send it
again.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from taskharbor.model.errors import BackendUnavailable

T = TypeVar("T")
A = TypeVar("A")

BESIDE_OTHERS_S = 0.1  # for which the results of the other jobs of a call are held back
ALONE_S = 0.5  # for a call that has nothing else to return
ADMIN_S = 5.0  # for a call that a person makes
FIRST_PAUSE_S, MAX_PAUSE_S = 0.002, 0.1


class JobLocked(BackendUnavailable):
    """Another transaction has the job locked, or another job that it needs."""

    id = ""
    is_own = True

    @classmethod
    def job(cls, own: str, id: str | None = None) -> JobLocked:
        """For one job; `id`: because of that other one."""
        what = f"job {own}" if id is None else f"job {own} needs job {id}, which"
        made = cls(f"{what} is locked by a transaction that is still open; nothing was changed, send it again later")
        made.id, made.is_own = id or own, id is None
        return made


class Waits(Protocol):
    """Time as a runner has it: the event loop's, or the calling thread's."""

    def time(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


async def ask_again(
    items: Sequence[T],
    results: list[A],
    ask: Callable[[Sequence[T]], Awaitable[Sequence[A]]],
    patience: float,
    waits: Waits,
) -> list[A]:
    """Return `results`; those that are `JobLocked` are asked for again, by themselves, for `patience` seconds."""
    positions = [position for position, result in enumerate(results) if isinstance(result, JobLocked)]
    if positions:
        pause = FIRST_PAUSE_S
        until = waits.time() + patience
        while positions and waits.time() < until:
            await waits.sleep(pause * random.uniform(0.5, 1.5))  # two calls that cross must not meet again and again
            pause = min(pause * 2, MAX_PAUSE_S)
            again = await ask([items[position] for position in positions])
            for position, result in zip(positions, again, strict=True):
                results[position] = result
            positions = [position for position in positions if isinstance(results[position], JobLocked)]
    return results
