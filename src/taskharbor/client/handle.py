"""Handles: one enqueued job, seen from the code that enqueued it or that mends it.

How it stands and what it returned is followed: if a workflow took the place of the job, `status`, `result`, `wait`,
`watch`, `cancel` and `requeue` are about the job that stands for it. What the record holds is the job's own
(`JobRecordCalls`).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from taskharbor.client import polling
from taskharbor.client.portal import refuse_on_loop
from taskharbor.client.record_calls import JobRecordCalls, no_record
from taskharbor.client.requeue import Again, checked_again
from taskharbor.model.current_job import is_in_handler
from taskharbor.model.errors import JobCancelled, JobDead, JobNotFound
from taskharbor.model.job import JobInfo, JobRecord, State
from taskharbor.model.times import Duration
from taskharbor.tasks.migration_hints import OF_HANDLES, missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator

    from taskharbor.client.access import StoreAccess
    from taskharbor.client.budget import Budget
    from taskharbor.client.client import Client
    from taskharbor.client.watching import Watch
    from taskharbor.tasks.signature import Signature

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


def dead(job: JobRecord) -> JobDead:
    """The error for a dead job, without the values of its payload."""
    from taskharbor.policy.mask import without_payload  # loaded only when there is a dead job

    reason, last_error = without_payload(job, job.reason, job.last_error)
    return JobDead(job.id, reason, last_error, job.error_class)


class JobHandle(JobRecordCalls, Generic[R_co]):
    """A job by its id. `existed`: its idempotency key or id was known, and this is the job that was already there.

    >>> from taskharbor import Harbor
    >>> with Harbor("memory://") as harbor:
    ...     @harbor.task(name="add")
    ...     def add(a: int, b: int) -> int:
    ...         return a + b
    ...     job = add.options(priority=2).enqueue(1, 2)
    ...     job.amend(payload={"b": 40})
    ...     harbor.worker().run(until_empty=True)
    ...     print(job.result(), job.wait(), job.info().job.priority, len(job.attempts()))
    41 done 2 1
    """

    __slots__ = ("_returns", "existed")

    def __init__(
        self,
        client: Client,
        id: str,
        existed: bool = False,
        returns: Any = Any,
        type: str | None = None,
        signature: Signature | None = None,
    ) -> None:
        self._client = client  # here, and not by super(): this is part of every enqueue
        self._returns = returns
        self._type = type
        self._signature = signature
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
        """The same, awaited."""
        return await self._status(self._client.awaited, call_timeout)

    def result(self, timeout: Duration | None = None, *, call_timeout: Duration | None = None) -> R_co:
        """Wait for the job's end and return what its handler returned.

        Raises TimeoutError (the job goes on), JobDead, JobCancelled, or JobNotFound if its record is gone. In a handler
        it needs a timeout, unless the job has ended. `timeout` is for the job; each read of the store on the way may
        take `call_timeout`, then it is BackendUnavailable.
        """
        waiting = self._waiting(timeout, "result")
        return self._client.blocking(
            lambda access: self._result(access, waiting, call_timeout), "handle.result", polls=True
        )

    async def aresult(self, timeout: Duration | None = None, *, call_timeout: Duration | None = None) -> R_co:
        """The same, awaited."""
        return await self._result(self._client.awaited, self._waiting(timeout, "aresult"), call_timeout)

    def wait(self, timeout: Duration | None = None, *, call_timeout: Duration | None = None) -> State:
        """Wait for the job's end and return how it ended: done, dlq or cancelled.

        Raises TimeoutError after `timeout` (the job goes on), or JobNotFound if its record is gone. In a handler it
        needs a timeout, unless the job has ended.
        """
        waiting = self._waiting(timeout, "wait")
        return self._client.blocking(
            lambda access: self._wait(access, waiting, call_timeout),
            "handle.wait",
            polls=True,
            instead="await handle.await_(...)",
        )

    async def await_(self, timeout: Duration | None = None, *, call_timeout: Duration | None = None) -> State:
        """The same, awaited. (`await` alone is a keyword of Python.)"""
        return await self._wait(self._client.awaited, self._waiting(timeout, "await_"), call_timeout)

    def watch(self, timeout: Duration | None = None, *, call_timeout: Duration | None = None) -> Iterator[JobInfo]:
        """The job now, and again on every change of its state or progress; ends with the job when it has ended.

        `timeout` is for all of it: then TimeoutError. A job that runs and fails between two polls (half a second apart
        at most) is shown once, after both. In a handler it needs a timeout.
        """
        refuse_on_loop("handle.watch", "async for info in handle.awatch()")
        return self._changes(self._watched(timeout, call_timeout, "watch"))

    async def awatch(
        self, timeout: Duration | None = None, *, call_timeout: Duration | None = None
    ) -> AsyncIterator[JobInfo]:
        """The same for `async for`."""
        watch = self._watched(timeout, call_timeout, "awatch")
        while (info := await self._in_time(watch.next, self._client.awaited)) is not None:
            yield info

    def cancel(self, *, by: str | None = None, call_timeout: Duration | None = None) -> None:
        """Cancel the job unless it has ended (WrongState). A running handler receives it with its next heartbeat.

        With `by`, a name, it is in the audit: programs also cancel jobs as a part of their own work.
        """
        self._client.blocking(lambda access: self._cancel(access, by, call_timeout), "handle.cancel", call_timeout)

    async def acancel(self, *, by: str | None = None, call_timeout: Duration | None = None) -> None:
        """The same, awaited."""
        await self._cancel(self._client.awaited, by, call_timeout)

    def requeue(
        self,
        *,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        reset_attempts: bool = True,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> None:
        """Bring the job back if it is dead or cancelled (WrongState), to run now, at `run_at` or after `delay`.

        It has all its attempts again; with `reset_attempts=False` those that it had left. If a workflow took its place
        and failed, the dead jobs of that workflow come back, and it goes on where it failed. `by`: who does it, for
        the audit; else the user of this process.
        """
        again = checked_again(run_at, delay, reset_attempts)
        self._client.blocking(
            lambda access: self._requeue(access, again, by, call_timeout), "handle.requeue", call_timeout
        )

    async def arequeue(
        self,
        *,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        reset_attempts: bool = True,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> None:
        """The same, awaited."""
        again = checked_again(run_at, delay, reset_attempts)
        await self._requeue(self._client.awaited, again, by, call_timeout)

    async def _status(self, access: StoreAccess, call_timeout: Duration | None) -> State:
        return (await self._read(self._client.budget(access, call_timeout, "status"))).state

    async def _cancel(self, access: StoreAccess, by: str | None, call_timeout: Duration | None) -> None:
        budget = self._client.budget(access, call_timeout, "cancel")
        if by is None:
            await self._client.lookup.cancel_job(self.id, budget)
        else:
            await self._audited("cancel", by, budget, lambda: self._client.lookup.cancel_job(self.id, budget))

    async def _requeue(self, access: StoreAccess, again: Again, by: str | None, call_timeout: Duration | None) -> None:
        budget = self._client.budget(access, call_timeout, "requeue")
        await self._audited("requeue", by, budget, lambda: self._client.lookup.requeue_job(self.id, again, budget))

    # Waiting -------------------------------------------------------------------------------------------------

    def _waiting(self, timeout: Duration | None, method: str) -> polling.PollPauses:
        return polling.PollPauses(timeout, method, f"job {self.id}", in_handler=is_in_handler())

    async def _ended(
        self, access: StoreAccess, waiting: polling.PollPauses, call_timeout: Duration | None, what: str
    ) -> JobInfo:
        def read() -> Awaitable[JobInfo]:
            return self._read(self._client.budget(access, call_timeout, what))

        return await self._in_time(polling.until_ended, access, read, waiting)

    async def _in_time(self, call: Callable[..., Awaitable[T]], access: StoreAccess, *args: Any) -> T:
        """Await a call that polls; TimeoutError with advice when the caller's time is over."""
        try:
            return await call(access, *args)
        except polling.Late as late:
            advice = await polling.why_not_ended(self._client, access, late.info)
            raise TimeoutError(f"job {late.info.job.id} is {late.info.state} after {late}; {advice}") from None

    async def _wait(self, access: StoreAccess, waiting: polling.PollPauses, call_timeout: Duration | None) -> State:
        return (await self._ended(access, waiting, call_timeout, "wait")).state

    async def _result(self, access: StoreAccess, waiting: polling.PollPauses, call_timeout: Duration | None) -> R_co:
        info = await self._ended(access, waiting, call_timeout, "result")
        return await self._outcome(info, self._client.budget(access, call_timeout, "result"))

    def _watched(self, timeout: Duration | None, call_timeout: Duration | None, method: str) -> Watch:
        from taskharbor.client.watching import Watch

        def read(access: StoreAccess) -> Awaitable[JobInfo]:
            return self._read(self._client.budget(access, call_timeout, "watch"))

        return Watch(read, self._waiting(timeout, method))

    def _changes(self, watch: Watch) -> Iterator[JobInfo]:
        def step(access: StoreAccess) -> Coroutine[Any, Any, JobInfo | None]:
            return self._in_time(watch.next, access)

        while (info := self._client.blocking(step, "handle.watch", polls=True)) is not None:
            yield info

    async def _read(self, budget: Budget) -> JobInfo:
        try:
            return await self._client.lookup.job(self.id, budget)
        except JobNotFound:
            raise no_record(self.id) from None

    async def _outcome(self, info: JobInfo, budget: Budget) -> R_co:
        job = info.job
        if info.state is State.DLQ:
            raise dead(job)
        if info.state is State.CANCELLED:
            raise JobCancelled(job.id, job.reason)
        # The job that took this one's place returns what its own task says, which is not known here.
        value: R_co = await self._client.lookup.result(job, self._returns if job.id == self.id else Any, budget)
        return value
