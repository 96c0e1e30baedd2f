"""How long a caller waits, and for what: real time, whatever clock the jobs go by.

A test's clock that stands still must not hang the test that asks for a result. Waiting is polling with growing
intervals (2 ms to half a second): it costs a store little, and needs nothing of it that a listing does not need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from taskharbor.model.errors import BlockingCall
from taskharbor.model.job import JobInfo, State
from taskharbor.model.times import Duration, duration

if TYPE_CHECKING:
    from taskharbor.client.client import Client

FIRST_LOOK = 0.002
GROWTH = 1.5
LONGEST_LOOK = 0.5
_PATIENCE = 1.0  # seconds for a look at what holds a job up, when the caller's own time is over


def time() -> float:
    """Seconds of the running loop."""
    return asyncio.get_running_loop().time()


async def sleep(seconds: float) -> None:
    """Return after so many seconds."""
    await asyncio.sleep(seconds)


class Late(Exception):
    """The time is over. What was seen last, and how long that was after the beginning."""

    def __init__(self, info: JobInfo, seconds: float) -> None:
        super().__init__(f"{seconds:g} seconds")
        self.info = info


async def until_ended(
    look: Callable[[], Awaitable[JobInfo]], timeout: Duration | None, what: str, *, in_handler: bool
) -> JobInfo:
    """Look again and again until a look answers a job that has ended; Late when the time is over.

    In a handler, waiting for a job that has not ended needs a timeout: the handler keeps its slot meanwhile, and when
    all slots are kept by handlers that wait, what they wait for never runs.
    """
    seconds = None if timeout is None else duration(timeout, "timeout").total_seconds()
    until = None if seconds is None else time() + seconds
    pause = FIRST_LOOK
    while True:
        info = await look()
        if info.state.terminal:
            return info
        if until is None and in_handler:
            raise BlockingCall(
                f"result() in a handler would wait for {what} and keep its slot meanwhile: when all slots wait, "
                "nothing runs; let a workflow hand the result on (return chain(…), or enqueue it), or give "
                "result(timeout=…)"
            )
        left = pause if until is None else until - time()
        if left < 0.001:  # the resolution of every clock here: a remainder of rounding is no time to wait for
            assert seconds is not None
            raise Late(info, seconds)
        await sleep(min(pause, left))
        pause = min(pause * GROWTH, LONGEST_LOOK)


async def held_up(client: Client, info: JobInfo) -> str:
    """What to tell somebody whose job has not ended: that nobody will run it, if the store knows, or to be patient."""
    if info.state is State.READY:
        queue = info.job.queue
        try:
            async with asyncio.timeout(_PATIENCE):
                if not await client.is_served(queue):
                    return (
                        f"no worker that was heard in the last minute serves its queue {queue!r}; start one "
                        "(harbor.worker().run(), or `taskharbor worker run`), and ask again"
                    )
        except Exception:  # a store that does not say: then nothing is known
            pass
    return "it goes on, ask again later"
