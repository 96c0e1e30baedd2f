"""Handles: one job, seen from the code that enqueued it or that mends it.

`status`, `result`, `wait`, `watch`, `cancel` and `requeue` follow the job: if a workflow took its place, they are about
the job that stands for it. The other calls are about the job's own record, which stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from taskharbor.client import waiting
from taskharbor.client.twins import both
from taskharbor.model.current_job import is_in_handler
from taskharbor.model.errors import JobCancelled, JobDead
from taskharbor.model.job import JobInfo, JobRecord, State
from taskharbor.model.times import Duration
from taskharbor.store import flows, jobs
from taskharbor.store.access import refuse_on_loop
from taskharbor.store.session import StoreOfHandle
from taskharbor.tasks.migration_hints import OF_HANDLES, missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from taskharbor.model.executions import Attempt
    from taskharbor.model.memo import StepInfo
    from taskharbor.model.progress import Progress
    from taskharbor.store.access import Act, StoreCall
    from taskharbor.store.session import Store
    from taskharbor.tasks.signature import Signature

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


def dead(job: JobRecord) -> JobDead:
    """The error for a dead job, without the values of its payload."""
    from taskharbor.policy.mask import without_payload  # loaded only when there is a dead job

    reason, last_error = without_payload(job, job.reason, job.last_error)
    return JobDead(job.id, reason, last_error, job.error_class)


class StoredHandle(Generic[R_co]):
    """What the handles of jobs and of workflows share: their store, when two are equal, and reading a result."""

    __slots__ = ("_returns", "_stored", "existed", "id")

    _store = StoreOfHandle()
    _stored: tuple[Store, bool]
    _returns: Any
    id: str

    _called = "handle"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.id == self.id and other._stored[0].is_same(self._stored[0])

    def __hash__(self) -> int:
        return hash(self.id)

    async def _value(self, call: StoreCall, info: JobInfo, own: str) -> R_co:
        """The result of a job that has ended; JobDead or JobCancelled without one. `own`: the job that `_returns` is
        about; the one that took its place returns what its own task says, which is not known here."""
        job = info.job
        if info.state is State.DLQ:
            raise dead(job)
        if info.state is State.CANCELLED:
            raise JobCancelled(job.id, job.reason)
        value: R_co = await jobs.result(call.again(), job, self._returns if job.id == own else Any)
        return value


class JobHandle(StoredHandle[R_co]):
    """A job by its id. `existed`: its idempotency key or id was known, and this is the job that was already there.

    >>> from taskharbor import Harbor
    >>> with Harbor("memory://") as harbor:
    ...     @harbor.task(name="add")
    ...     def add(a: int, b: int) -> int:
    ...         return a + b
    ...     job = add.options(priority=2).enqueue(1, 2)
    ...     job.amend(payload={"b": 40})
    ...     harbor.worker().run(until_empty=True)
    ...     print(job.result(), job.wait(), job.info().job.priority, len(job.executions()))
    41 done 2 1
    """

    __slots__ = ("_signature", "_type")

    def __init__(
        self,
        store: Store,
        id: str,
        existed: bool = False,
        returns: Any = Any,
        type: str | None = None,
        signature: Signature | None = None,
    ) -> None:
        self._store = store
        self._returns = returns
        self._type = type  # with `_signature`: those of the task that the handle came from
        self._signature = signature
        self.id = id
        self.existed = existed

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r}, existed={self.existed})"

    if not TYPE_CHECKING:  # with it, a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise missing("a handle", name, OF_HANDLES, "handle")

    # The job, or the one that took its place -------------------------------------------------------------------

    @both
    async def status(self, call: StoreCall) -> State:
        """The job's state now. Blocks for one read of the store."""
        return (await jobs.job(call, self.id)).state

    astatus = status.awaited

    @both(polls=True)
    async def result(self, call: StoreCall, timeout: Duration | None = None) -> R_co:
        """Wait for the job's end and return what its handler returned.

        Raises TimeoutError (the job goes on), JobDead, JobCancelled, or JobNotFound if its record is gone. In a handler
        it needs a timeout, unless the job has ended. `timeout` is for the job; each read of the store on the way has
        the time of any call, then it is BackendUnavailable.
        """
        return await self._value(call, await self._ended(call, timeout), self.id)

    aresult = result.awaited

    @both(polls=True, instead="await handle.await_(...)")
    async def wait(self, call: StoreCall, timeout: Duration | None = None) -> State:
        """Wait for the job's end and return how it ended: done, dlq or cancelled.

        Raises TimeoutError after `timeout` (the job goes on), or JobNotFound if its record is gone. In a handler it
        needs a timeout, unless the job has ended.
        """
        return (await self._ended(call, timeout)).state

    await_ = wait.awaited

    def watch(self, timeout: Duration | None = None) -> Iterator[JobInfo]:
        """The job now, and again on every change of its state or progress; ends with the job when it has ended.

        `timeout` is for all of it: then TimeoutError. A job that runs and fails between two polls (half a second apart
        at most) is shown once, after both. In a handler it needs a timeout.
        """
        refuse_on_loop("handle.watch", "async for info in handle.awatch()")
        return iter(self._watched(timeout, "watch"))

    def awatch(self, timeout: Duration | None = None) -> AsyncIterator[JobInfo]:
        """The same for `async for`."""
        return aiter(self._watched(timeout, "awatch"))

    @both
    async def cancel(self, call: StoreCall, *, by: str | None = None) -> None:
        """Cancel the job unless it has ended (WrongState), and what waits for it in its workflow.

        A running handler receives it with its next heartbeat.
        With `by`, a name, it is in the audit: programs also cancel jobs as a part of their own work.
        """
        act = jobs.cancel(call, self.id)
        if by is None:
            await call.change(act, flows.CANCEL_IN_DOUBT)
        else:
            await self._audited(call, by, act, flows.CANCEL_IN_DOUBT)

    acancel = cancel.awaited

    @both
    async def requeue(
        self,
        call: StoreCall,
        *,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        reset_attempts: bool = True,
        fresh: bool = False,
        by: str | None = None,
    ) -> None:
        """Bring the job back if it is dead or cancelled (WrongState), to run now, at `run_at` or after `delay`.

        It has all its attempts again; with `reset_attempts=False` those that it had left. If a workflow took its place
        and failed, the dead jobs of that workflow come back, and it goes on where it failed. `fresh`: its
        steps, sleeps and checkpoint are forgotten, and done again. `by`: who does it, for the audit; else the user of
        this process.
        """
        again = flows.checked_requeue(run_at, delay, reset_attempts, fresh)
        await self._audited(call, by, jobs.requeue(call, self.id, again), flows.REQUEUE_IN_DOUBT)

    arequeue = requeue.awaited

    # The job's own record -----------------------------------------------------------------------------------------

    @both
    async def info(self, call: StoreCall) -> JobInfo:
        """The job as it is now: its record (`.job`), state, worker, end of the lease, and the jobs it waits for.

        JobNotFound if there is no record. Blocks for one read of the store. The record holds the payload, the result
        and the error text as they are stored; a repr shows none of them.
        """
        return await jobs.record(call, self.id)

    ainfo = info.awaited

    @both
    async def executions(self, call: StoreCall) -> list[Attempt]:
        """Every execution of the job that is known, oldest first; at most 25 that have ended, and the newest.

        Error texts are without the values of the job's payload. A gap in the numbers: an execution was lost with no
        worker left to tell, or it was left out of a long list.
        """
        from taskharbor.model.executions import known_executions
        from taskharbor.policy.mask import without_payload

        info = await jobs.record(call, self.id)
        found = known_executions(info)
        texts = without_payload(info.job, *(attempt.error for attempt in found))
        return [replace(attempt, error=text) for attempt, text in zip(found, texts, strict=True)]

    aexecutions = executions.awaited

    @both
    async def progress(self, call: StoreCall) -> Progress | None:
        """What the handler reported last with `ctx.progress`; None if it reported nothing. Stored with the heartbeat,
        so it may be some seconds old; `at` says when it was reported."""
        from taskharbor.model.progress import read_note

        return read_note((await jobs.record(call, self.id)).job.note)

    aprogress = progress.awaited

    @both
    async def steps(self, call: StoreCall) -> list[StepInfo]:
        """The steps and sleeps of the job that are stored, in the order in which they were, without their values."""
        from taskharbor.model.memo import step_infos

        await jobs.record(call, self.id)
        return step_infos(await call.ask(lambda driver: driver.steps(self.id)))

    asteps = steps.awaited

    @both
    async def amend(
        self,
        call: StoreCall,
        *,
        payload: Mapping[str, Any] | UnsetType = UNSET,
        run_at: datetime | UnsetType | None = UNSET,
        priority: int | UnsetType = UNSET,
        max_attempts: int | UnsetType = UNSET,
        timeout: Duration | UnsetType | None = UNSET,
        metadata: Mapping[str, str | None] | UnsetType = UNSET,
        expect: JobInfo | None = None,
        by: str | None = None,
    ) -> None:
        """Change a job that is neither running nor done (WrongState). What is not given stays as it is.

        `payload`: arguments to replace, by name; the others stay. The handle of a task checks them against its
        signature. `run_at`: another moment; None: at once. `timeout`: another limit; None: no limit. `priority` and
        `max_attempts`: another number. `metadata`: entries to replace, None removes one.
        `expect`: what `info()` returned; WrongState if the job was reserved or amended since. Without it a job that
        changes meanwhile is read again, five times at most. `by`: who does it, for the audit; else the user of this
        process.
        """
        from taskharbor.store.amend import AMEND_IN_DOUBT, Amendment, check_expected, checked_changes

        check_expected(expect, self.id)
        changes = checked_changes(
            payload=payload,
            run_at=run_at,
            priority=priority,
            max_attempts=max_attempts,
            timeout=timeout,
            metadata=metadata,
        )
        amendment = Amendment(call, self.id, changes, expect, self._type, self._signature)
        await self._audited(call, by, amendment.send, AMEND_IN_DOUBT)

    aamend = amend.awaited

    @both
    async def delete(self, call: StoreCall, *, by: str | None = None) -> None:
        """Forget the job, in whatever state it is; WrongState while unfinished jobs depend on it.

        What a running handler returns is then refused. A workflow that took the job's place goes on. `by`: who does
        it, for the audit; else the user of this process.
        """
        await self._audited(call, by, jobs.delete(self.id), jobs.DELETE_IN_DOUBT)

    adelete = delete.awaited

    # Reading and waiting -------------------------------------------------------------------------------------------

    async def _audited(self, call: StoreCall, by: str | None, act: Act[None], doubt: str) -> None:
        from taskharbor.store.audit import audited

        await audited(call, call.what, by, act, doubt, ids=(self.id,))

    async def _ended(self, call: StoreCall, timeout: Duration | None) -> JobInfo:
        pauses = waiting.PollPauses(timeout, call.method, f"job {self.id}", in_handler=call.in_handler)
        try:
            return await waiting.until_ended(call, lambda: jobs.job(call.again(), self.id), pauses)
        except waiting.WaitTimedOut as late:
            raise TimeoutError(await self._late(call, late)) from None

    async def _late(self, call: StoreCall, late: waiting.WaitTimedOut) -> str:
        """The text of the error when the caller's time is over, with advice."""
        advice = await waiting.why_not_ended(call, late.info)
        return f"job {late.info.job.id} is {late.info.state} after {late}; {advice}"

    def _watched(self, timeout: Duration | None, method: str) -> waiting.Watched[JobInfo]:
        pauses = waiting.PollPauses(timeout, method, f"job {self.id}", in_handler=is_in_handler())
        watch = waiting.Watch(lambda call: jobs.job(call, self.id), _seen, lambda info: info.state.terminal, pauses)
        return waiting.Watched(self._store, watch, self._late)


def _seen(info: JobInfo) -> tuple[object, ...]:
    """What a caller is shown again if it has changed: an execution always counts up the deliveries."""
    job = info.job
    return job.id, info.state, job.deliveries, job.attempts, job.edits, job.note
