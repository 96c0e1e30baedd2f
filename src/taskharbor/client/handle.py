"""Handles: one enqueued job, seen from the code that enqueued it.

If a workflow took the place of the job, the handle follows it to the job that stands for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from taskharbor.client import polling
from taskharbor.model.current_job import is_in_handler
from taskharbor.model.errors import JobCancelled, JobDead, JobNotFound
from taskharbor.model.job import JobInfo, JobRecord, State
from taskharbor.model.times import Duration
from taskharbor.tasks.migration_hints import OF_HANDLES, missing

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from taskharbor.client.access import StoreAccess
    from taskharbor.client.budget import Budget
    from taskharbor.client.client import Client

R_co = TypeVar("R_co", covariant=True)


def dead(job: JobRecord) -> JobDead:
    """The error for a dead job, without the values of its payload."""
    from taskharbor.policy.mask import without_payload  # loaded only when there is a dead job

    return JobDead(job.id, *without_payload(job, job.reason, job.last_error))


class JobHandle(Generic[R_co]):
    """A job by its id. `existed`: its idempotency key or id was known, and this is the job that was already there."""

    __slots__ = ("_client", "_returns", "existed", "id")

    def __init__(self, client: Client, id: str, existed: bool = False, returns: Any = Any) -> None:
        self._client = client
        self._returns = returns
        self.id = id
        self.existed = existed

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r}, existed={self.existed})"

    if not TYPE_CHECKING:  # with it, a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise missing("a handle", name, OF_HANDLES, "handle")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id and other._client is self._client

    def __hash__(self) -> int:
        return hash(self.id)

    def status(self, *, call_timeout: Duration | None = None) -> State:
        """The job's state now. Blocks for one read of the store."""
        return self._client.blocking(lambda access: self._status(access, call_timeout), "handle.status", call_timeout)

    async def astatus(self, *, call_timeout: Duration | None = None) -> State:
        """The job's state now."""
        return await self._status(self._client.awaited, call_timeout)

    def result(self, timeout: Duration | None = None, *, call_timeout: Duration | None = None) -> R_co:
        """Wait for the job's end and return what its handler returned.

        Raises TimeoutError (the job goes on), JobDead, JobCancelled, or JobNotFound if its record is gone. In a handler
        it needs a timeout, unless the job has ended. `timeout` is for the job; each read of the store on the way may
        take `call_timeout`, then it is BackendUnavailable.
        """
        here = is_in_handler()
        return self._client.blocking(
            lambda access: self._result(access, timeout, call_timeout, here), "handle.result", polls=True
        )

    async def aresult(self, timeout: Duration | None = None, *, call_timeout: Duration | None = None) -> R_co:
        """The same, awaited."""
        return await self._result(self._client.awaited, timeout, call_timeout, is_in_handler())

    def cancel(self, *, call_timeout: Duration | None = None) -> None:
        """Cancel the job unless it has ended (WrongState). A running handler receives it with its next heartbeat."""
        self._client.blocking(lambda access: self._cancel(access, call_timeout), "handle.cancel", call_timeout)

    async def acancel(self, *, call_timeout: Duration | None = None) -> None:
        """The same, awaited."""
        await self._cancel(self._client.awaited, call_timeout)

    async def _status(self, access: StoreAccess, call_timeout: Duration | None) -> State:
        return (await self._read(self._client.budget(access, call_timeout, "status"))).state

    async def _cancel(self, access: StoreAccess, call_timeout: Duration | None) -> None:
        await self._client.lookup.cancel_job(self.id, self._client.budget(access, call_timeout, "cancel"))

    async def _result(
        self, access: StoreAccess, timeout: Duration | None, call_timeout: Duration | None, in_handler: bool
    ) -> R_co:
        def read() -> Awaitable[JobInfo]:
            return self._read(self._client.budget(access, call_timeout, "result"))

        try:
            info = await polling.until_ended(access, read, timeout, f"job {self.id}", in_handler=in_handler)
        except polling.Late as late:
            advice = await polling.why_not_ended(self._client, access, late.info)
            raise TimeoutError(f"job {late.info.job.id} is {late.info.state} after {late}; {advice}") from None
        return await self._outcome(info, self._client.budget(access, call_timeout, "result"))

    async def _read(self, budget: Budget) -> JobInfo:
        try:
            return await self._client.lookup.job(self.id, budget)
        except JobNotFound:
            raise JobNotFound(
                f"job {self.id} has no record: it was deleted, its transaction was rolled back, or it ended longer ago "
                "than the store keeps finished jobs (24 hours unless the DSN says retention=…)"
            ) from None

    async def _outcome(self, info: JobInfo, budget: Budget) -> R_co:
        job = info.job
        if info.state is State.DLQ:
            raise dead(job)
        if info.state is State.CANCELLED:
            raise JobCancelled(job.id, job.reason)
        # The job that took this one's place returns what its own task says, which is not known here.
        value: R_co = await self._client.lookup.result(job, self._returns if job.id == self.id else Any, budget)
        return value
