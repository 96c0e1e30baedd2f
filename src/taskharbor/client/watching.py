"""Watching one job: its info again each time that its state or its progress has changed, until it has ended.

The store is polled as for a result. A change that is undone between two polls is not seen, except that an execution
always is: it counts up the deliveries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from taskharbor.client.access import StoreAccess
from taskharbor.client.polling import PollPauses
from taskharbor.model.job import JobInfo

ReadJob = Callable[[StoreAccess], Awaitable[JobInfo]]


class Watch:
    """The changes of one job, one call after another. `waiting` has the limit of all of them together."""

    def __init__(self, read: ReadJob, waiting: PollPauses) -> None:
        self._read = read
        self._waiting = waiting
        self._last: JobInfo | None = None

    async def next(self, access: StoreAccess) -> JobInfo | None:
        """The job when it has changed since the last call, the first time at once; None when it had ended. Late when
        the time is over."""
        last = self._last
        if last is not None and last.state.terminal:
            return None
        self._waiting.start(access)
        while True:
            info = await self._read(access)
            if last is None or _seen(info) != _seen(last):
                self._last = info
                return info
            await self._waiting.pause(access, info)


def _seen(info: JobInfo) -> tuple[object, ...]:
    """What a caller is shown again if it has changed."""
    job = info.job
    return job.id, info.state, job.deliveries, job.attempts, job.edits, job.note
