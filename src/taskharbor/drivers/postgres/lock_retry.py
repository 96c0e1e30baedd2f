"""Calls over several jobs wait for none of them: what somebody else has locked is sent again by itself, for a while.

A lock is mostly that of another call, gone within milliseconds. It may also be that of an application's transaction
that depends on the job, and stands open for minutes: nobody but that one job may have to wait for it. So a call asks
again a few times, alone for what was locked, and then answers `JobLocked` for that job: nothing was changed, and the
caller may send it again later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from taskharbor.model.errors import BackendUnavailable

T = TypeVar("T")
A = TypeVar("A")

BESIDE_OTHERS = 0.1  # seconds for which the answers to the other jobs of a call are held back
ALONE = 0.5  # seconds for a call that has nothing else to say
ADMIN = 5.0  # seconds for a call of a person's
FIRST, LONGEST = 0.002, 0.1  # seconds between two tries


class JobLocked(BackendUnavailable):
    """Somebody else's transaction has the job locked, or another job that it needs."""

    id = ""
    is_own = True

    @classmethod
    def job(cls, own: str, id: str | None = None) -> JobLocked:
        """Of one job; `id`: because of that other one."""
        what = f"job {own}" if id is None else f"job {own} needs job {id}, which"
        made = cls(f"{what} is locked by a transaction that is still open; nothing was changed, send it again later")
        made.id, made.is_own = id or own, id is None
        return made


async def ask_again(
    items: Sequence[T],
    answers: list[A],
    ask: Callable[[Sequence[T]], Awaitable[Sequence[A]]],
    patience: float,
) -> list[A]:
    """Return the answers; ask again for `patience` seconds, alone, for those that are `JobLocked`."""
    places = [place for place, answer in enumerate(answers) if isinstance(answer, JobLocked)]
    if places:
        loop, pause = asyncio.get_running_loop(), FIRST
        until = loop.time() + patience
        while places and loop.time() < until:
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # two who cross must not meet again and again
            pause = min(pause * 2, LONGEST)
            again = await ask([items[place] for place in places])
            for place, answer in zip(places, again, strict=True):
                answers[place] = answer
            places = [place for place in places if isinstance(answers[place], JobLocked)]
    return answers
