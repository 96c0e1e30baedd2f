"""Waiting for the end of a job, or for its next change, by polling the store.

It waits in real time, whatever clock the jobs use: a test's clock that stands still must not hang the test that asks
for a result. The pauses grow from 2 ms to half a second. Polling costs a store little, and needs nothing of it that a
listing does not need.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from taskharbor.model.errors import BackendUnavailable, BlockingCall
from taskharbor.model.job import JobInfo, State
from taskharbor.model.times import Duration, duration
from taskharbor.store import jobs
from taskharbor.store.access import RESOLUTION_S, StoreAccess, StoreCall

if TYPE_CHECKING:
    from taskharbor.store.session import Store

T = TypeVar("T")

FIRST_PAUSE_S = 0.002
PAUSE_GROWTH = 1.5
LONGEST_PAUSE_S = 0.5
ADVICE_TIMEOUT_S = 1.0  # for finding out why a job has not ended, when the caller's own time is over


class WaitTimedOut(Exception):
    """The time is over. Carries what was read last; its text is how long the caller waited."""

    def __init__(self, info: Any, seconds: float) -> None:
        super().__init__(f"{seconds:g} seconds")
        self.info = info


class PollPauses:
    """The pauses between polls, which grow, and the end of the caller's time.

    In a handler, waiting for a job that has not ended needs a timeout: the handler keeps its slot meanwhile, and when
    all slots are kept by handlers that wait, the jobs that they wait for never run. `method` is what the caller called,
    `what` the job or flow that it waits for.
    """

    def __init__(
        self, timeout: Duration | None, method: str, what: str, *, in_handler: bool, first_s: float = FIRST_PAUSE_S
    ) -> None:
        self._seconds = None if timeout is None else duration(timeout, "timeout").total_seconds()
        self._deadline: float | None = None
        self._method = method
        self._what = what
        self._in_handler = in_handler
        self._first = self._pause = first_s

    def start(self, access: StoreAccess) -> None:
        """Begin a series of polls. The caller's time runs from the first one on."""
        self._pause = self._first
        if self._seconds is not None and self._deadline is None:
            self._deadline = access.time() + self._seconds

    async def pause(self, access: StoreAccess, info: Any) -> None:
        """Wait until the next poll; WaitTimedOut, with what was read last, when the time is over."""
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


@dataclass(repr=False)
class Watch(Generic[T]):
    """The changes of one job or flow, one call after another, until it has ended. `waiting` has the limit of all of
    them. `read` reads it; `seen`: what a caller is shown again if it has changed; `has_ended`: whether it has.

    A change that is undone between two polls is not seen.
    """

    read: Callable[[StoreCall], Awaitable[T]]
    seen: Callable[[T], object]
    has_ended: Callable[[T], bool]
    waiting: PollPauses
    last: T | None = None

    async def next(self, call: StoreCall) -> T | None:
        """What is watched when it has changed since the last call, the first time at once; None when it had ended.
        WaitTimedOut when the time is over."""
        last = self.last
        if last is not None and self.has_ended(last):
            return None
        self.waiting.start(call.access)
        while True:
            info = await self.read(call.again())
            if last is None or self.seen(info) != self.seen(last):
                self.last = info
                return info
            await self.waiting.pause(call.access, info)


@dataclass(repr=False)
class Watched(Generic[T]):
    """The iteration over a watch, blocking and awaited. `advice`: for the error when the caller's time is over."""

    store: Store
    watch: Watch[T]
    advice: Callable[[StoreCall, WaitTimedOut], Awaitable[str]]

    def __iter__(self) -> Iterator[T]:
        while (found := self.store.blocking(self._next, "watch", "handle.watch", polls=True)) is not None:
            yield found

    async def __aiter__(self) -> AsyncIterator[T]:
        while (found := await self._next(self.store.call("watch"))) is not None:
            yield found

    async def _next(self, call: StoreCall) -> T | None:
        try:
            return await self.watch.next(call)
        except WaitTimedOut as late:
            raise TimeoutError(await self.advice(call, late)) from None
