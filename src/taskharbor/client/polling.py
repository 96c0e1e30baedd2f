"""Waiting for the end of a job by polling the store.

It waits in real time, whatever clock the jobs use: a test's clock that stands still must not hang the test that asks
for a result. The pauses grow from 2 ms to half a second. Polling costs a store little, and needs nothing of it that a
listing does not need.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from taskharbor.client.access import StoreAccess
from taskharbor.client.budget import RESOLUTION_S, Budget
from taskharbor.model.errors import BackendUnavailable, BlockingCall
from taskharbor.model.job import JobInfo, State
from taskharbor.model.times import Duration, duration

if TYPE_CHECKING:
    from taskharbor.client.client import Client

FIRST_PAUSE_S = 0.002
PAUSE_GROWTH = 1.5
LONGEST_PAUSE_S = 0.5
ADVICE_TIMEOUT_S = 1.0  # for finding out why a job has not ended, when the caller's own time is over


class Late(Exception):
    """The time is over. Carries the job as it was read last; its text is how long the caller waited."""

    def __init__(self, info: JobInfo, seconds: float) -> None:
        super().__init__(f"{seconds:g} seconds")
        self.info = info


class PollPauses:
    """The pauses between polls, which grow, and the end of the caller's time.

    In a handler, waiting for a job that has not ended needs a timeout: the handler keeps its slot meanwhile, and when
    all slots are kept by handlers that wait, the jobs that they wait for never run. `method` is what the caller called,
    `what` the job or flow that it waits for.
    """

    def __init__(self, timeout: Duration | None, method: str, what: str, *, in_handler: bool) -> None:
        self._seconds = None if timeout is None else duration(timeout, "timeout").total_seconds()
        self._deadline: float | None = None
        self._method = method
        self._what = what
        self._in_handler = in_handler
        self._pause = FIRST_PAUSE_S

    def start(self, access: StoreAccess) -> None:
        """Begin a series of polls. The caller's time runs from the first one on."""
        self._pause = FIRST_PAUSE_S
        if self._seconds is not None and self._deadline is None:
            self._deadline = access.time() + self._seconds

    async def pause(self, access: StoreAccess, info: JobInfo) -> None:
        """Wait until the next poll; Late, with the job as it was read last, when the time is over."""
        if self._deadline is None and self._in_handler:
            raise BlockingCall(
                f"{self._method}() in a handler would wait for {self._what} and keep its slot meanwhile: when all "
                "slots wait, nothing runs; let a workflow hand the result on (return chain(…), or enqueue it), or give "
                f"{self._method}(timeout=…)"
            )
        left = self._pause if self._deadline is None else self._deadline - access.time()
        if left < RESOLUTION_S:
            assert self._seconds is not None
            raise Late(info, self._seconds)
        await access.sleep(min(self._pause, left))
        if access.is_closed():
            raise BackendUnavailable(f"{self._method}: the client was closed while it waited for {self._what}")
        self._pause = min(self._pause * PAUSE_GROWTH, LONGEST_PAUSE_S)


async def until_ended(access: StoreAccess, read: Callable[[], Awaitable[JobInfo]], waiting: PollPauses) -> JobInfo:
    """Call `read` again and again until it returns a job that has ended; Late when the time is over."""
    waiting.start(access)
    while True:
        info = await read()
        if info.state.terminal:
            return info
        await waiting.pause(access, info)


async def why_not_ended(client: Client, access: StoreAccess, info: JobInfo) -> str:
    """Advice for a caller whose job has not ended: that no worker will run it, if the store knows, or to be patient."""
    if info.state is State.READY:
        queue = info.job.queue
        budget = Budget(access, ADVICE_TIMEOUT_S, "workers")
        try:
            if not await access.within(budget, client.lookup.is_served, queue, budget):
                return (
                    f"no worker has served its queue {queue!r} in the last minute; start one "
                    "(harbor.worker().run(), or `taskharbor worker run`), and ask again"
                )
        except Exception:  # a store that does not reply: then nothing is known
            pass
    return "it goes on, ask again later"
