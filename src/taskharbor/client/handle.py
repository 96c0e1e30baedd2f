"""Handles: one enqueued job, seen from the code that asked for it.

Waiting is polling with growing intervals (2 ms to half a second): it costs a store little, and needs nothing of it
that a listing does not need. A job that a workflow took the place of is followed to the job that stands for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from taskharbor.client import waiting
from taskharbor.model.errors import JobCancelled, JobDead, JobNotFound
from taskharbor.model.job import JobInfo, JobRecord, State
from taskharbor.model.times import Duration, duration
from taskharbor.tasks.hints import OF_HANDLES, missing

if TYPE_CHECKING:
    from taskharbor.client.client import Client

R_co = TypeVar("R_co", covariant=True)

FIRST_LOOK = 0.002
GROWTH = 1.5
LONGEST_LOOK = 0.5


def dead(job: JobRecord) -> JobDead:
    """The error for a job that is dead, without what its payload held."""
    from taskharbor.policy.mask import without_payload  # only who meets a dead job pays for it

    return JobDead(job.id, *without_payload(job, job.reason, job.last_error))


class JobHandle(Generic[R_co]):
    """A job by its id. `existed`: the enqueue met a known idempotency key or id, and this is the job that was there."""

    __slots__ = ("_client", "_returns", "existed", "id")

    def __init__(self, client: Client, id: str, existed: bool = False, returns: Any = Any) -> None:
        self._client = client
        self._returns = returns
        self.id = id
        self.existed = existed

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r}, existed={self.existed})"

    if not TYPE_CHECKING:  # a checker would believe that everything is there

        def __getattr__(self, name: str) -> Any:
            raise missing("a handle", name, OF_HANDLES, "handle")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id and other._client is self._client

    def __hash__(self) -> int:
        return hash(self.id)

    def status(self) -> State:
        """Where the job stands now. Blocks for one look at the store."""
        return self._client.portal.call(self.astatus, "handle.status")

    async def astatus(self) -> State:
        """Where the job stands now."""
        return (await self._look()).state

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job's end and answer what its handler returned.

        Raises TimeoutError (the job goes on), JobDead, JobCancelled, or JobNotFound if its record is gone.
        """
        return self._client.portal.call(lambda: self.aresult(timeout), "handle.result")

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """The same, awaited."""
        seconds = None if timeout is None else duration(timeout, "timeout").total_seconds()
        until = None if seconds is None else waiting.time() + seconds
        pause = FIRST_LOOK
        while True:
            info = await self._look()
            if info.state.terminal:
                return await self._outcome(info)
            left = pause if until is None else until - waiting.time()
            if left < 0.001:  # the resolution of every clock here: a remainder of rounding is no time to wait for
                raise TimeoutError(
                    f"job {info.job.id} is {info.state} after {seconds:g} seconds; it goes on, ask again later"
                )
            await waiting.sleep(min(pause, left))
            pause = min(pause * GROWTH, LONGEST_LOOK)

    def cancel(self) -> None:
        """Cancel the job unless it has ended (WrongState). A handler that runs learns it at its next heartbeat."""
        self._client.portal.call(self.acancel, "handle.cancel")

    async def acancel(self) -> None:
        """The same, awaited."""
        await self._client.cancel_job(self.id)

    async def _look(self) -> JobInfo:
        try:
            return await self._client.look(self.id)
        except JobNotFound:
            raise JobNotFound(
                f"job {self.id} has no record: it was deleted, its transaction was rolled back, or it ended longer ago "
                "than the store keeps finished jobs (24 hours unless the DSN says retention=…)"
            ) from None

    async def _outcome(self, info: JobInfo) -> R_co:
        job = info.job
        if info.state is State.DLQ:
            raise dead(job)
        if info.state is State.CANCELLED:
            raise JobCancelled(job.id, job.reason)
        # The job that took this one's place returns what its own task says, which is not known here.
        value: R_co = await self._client.read(job, self._returns if job.id == self.id else Any)
        return value
