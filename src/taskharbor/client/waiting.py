"""Waiting for the end of a job, or for its next change, by polling the store.

It waits in real time, whatever clock the jobs use: a test's clock that stands still must not hang the test that asks
for a result. The pauses grow from 2 ms to half a second. Polling costs a store little, and needs nothing of it that a
listing does not need.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from taskharbor.model.errors import BackendUnavailable, BlockingCall
from taskharbor.model.job import JobInfo, State
from taskharbor.model.times import Duration, duration
from taskharbor.store import jobs
from taskharbor.store.access import RESOLUTION_S, StoreAccess, StoreCall

FIRST_PAUSE_S = 0.002
PAUSE_GROWTH = 1.5
LONGEST_PAUSE_S = 0.5
ADVICE_TIMEOUT_S = 1.0  # for finding out why a job has not ended, when the caller's own time is over


class WaitTimedOut(Exception):
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
        """Wait until the next poll; WaitTimedOut, with the job as it was read last, when the time is over."""
        if self._deadline is None and self._in_handler:
            raise BlockingCall(
                f"{self._method}() in a handler would wait for {self._what} and keep its slot meanwhile: when all "
                "slots wait, nothing runs; let a workflow hand the result on (return chain(…), or enqueue it), or give "
                f"{self._method}(timeout=…)"
            )
        left = self._pause if self._deadline is None else self._deadline - access.time()
        if left < RESOLUTION_S:
            assert self._seconds is not None
            raise WaitTimedOut(info, self._seconds)
        await access.sleep(min(self._pause, left))
        if access.is_closed():
            raise BackendUnavailable(f"{self._method}: the client was closed while it waited for {self._what}")
        self._pause = min(self._pause * PAUSE_GROWTH, LONGEST_PAUSE_S)


async def until_ended(call: StoreCall, read: Callable[[], Awaitable[JobInfo]], waiting: PollPauses) -> JobInfo:
    """Call `read` again and again until it returns a job that has ended; WaitTimedOut when the time is over."""
    waiting.start(call.access)
    while True:
        info = await read()
        if info.state.terminal:
            return info
        await waiting.pause(call.access, info)


async def why_not_ended(call: StoreCall, info: JobInfo) -> str:
    """Advice for a caller whose job has not ended: that no worker will run it, if the store knows, or to be patient."""
    if info.state is State.READY:
        queue = info.job.queue
        short = call.store.call("workers", call.access, seconds=ADVICE_TIMEOUT_S)
        try:
            if not await jobs.is_served(short, queue):
                from taskharbor.store.diagnose import not_served  # only where a caller gave up waiting

                start = "start one (harbor.worker().run(), or `taskharbor worker run`), and ask again"
                return f"{not_served(queue)}; {start}"
        except Exception:  # a store that does not reply: then nothing is known
            pass
    return "it goes on, ask again later"


class Watch:
    """The changes of one job, one call after another, until it has ended. `waiting` has the limit of all of them.

    A change that is undone between two polls is not seen, except that an execution always is: it counts up the
    deliveries.
    """

    def __init__(self, id: str, waiting: PollPauses) -> None:
        self._id = id
        self._waiting = waiting
        self._last: JobInfo | None = None

    async def next(self, call: StoreCall) -> JobInfo | None:
        """The job when it has changed since the last call, the first time at once; None when it had ended.
        WaitTimedOut when the time is over."""
        last = self._last
        if last is not None and last.state.terminal:
            return None
        self._waiting.start(call.access)
        while True:
            info = await jobs.job(call.again(), self._id)
            if last is None or _seen(info) != _seen(last):
                self._last = info
                return info
            await self._waiting.pause(call.access, info)


def _seen(info: JobInfo) -> tuple[object, ...]:
    """What a caller is shown again if it has changed."""
    job = info.job
    return job.id, info.state, job.deliveries, job.attempts, job.edits, job.note
