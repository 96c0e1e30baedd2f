"""Finding jobs and flows again: how they stand, what they returned, cancelling and requeueing them.

A job that a workflow took the place of (`handed_to`) is followed to the job that stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taskharbor.client.budget import Budget
from taskharbor.client.external_jobs import failed_externals, read_flow
from taskharbor.client.requeue import Again, requeue_flow
from taskharbor.client.retries import with_retries
from taskharbor.drivers.base import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.codec import Codec, type_name
from taskharbor.model.errors import WrongState
from taskharbor.model.job import FlowInfo, JobInfo, JobRecord, State
from taskharbor.tasks.flow_metadata import JOIN_TYPE
from taskharbor.tasks.payload_errors import describe
from taskharbor.tasks.results import Results, compose

CANCEL_IN_DOUBT = "It may or may not be cancelled; cancel it again: that does no harm"
REQUEUE_IN_DOUBT = "It, or some of its jobs, may be back already; requeue it again: that does no harm"


class JobLookup:
    """Reads and changes of stored jobs, each within a budget and retried while the store cannot be reached."""

    def __init__(self, clock: Clock, codec: Codec) -> None:
        self._clock = clock
        self._codec = codec

    async def job(self, id: str, budget: Budget) -> JobInfo:
        """A job as it is now, or the one that took its place.

        If a workflow took its place and has failed or was cancelled, the job that is to blame: the one whose result
        stands for the whole would be blocked for ever.
        """

        async def read(driver: Driver) -> JobInfo:
            own, last = await self._follow(driver, id)
            if last.state.terminal or not _is_own_flow(own.job, last.job):
                return last
            return await self._failed_in(driver, last.job.flow_id or "") or last

        return await with_retries(read, budget)

    async def job_in_flow(self, id: str, flow_id: str, externals: Sequence[str], budget: Budget) -> JobInfo:
        """A job of a flow as it is now, or the one that took its place; or the one that made the flow fail.

        `externals`: jobs that are not part of the flow, and that it may wait for.
        """

        async def read(driver: Driver) -> JobInfo:
            _, last = await self._follow(driver, id)
            for flow in {flow_id: None, last.job.flow_id: None}:  # they differ if it was known by its key
                if not last.state.terminal and flow is not None:
                    last = await self._failed_in(driver, flow) or last
            if externals and not last.state.terminal:
                last = next(iter(await failed_externals(driver, externals, self._clock.now())), last)
            return last

        return await with_retries(read, budget)

    async def failed_externals(self, ids: Sequence[str], budget: Budget) -> list[JobInfo]:
        """Those of these jobs, and of the jobs that they wait for, that are dead or cancelled; the dead ones first."""
        return await with_retries(lambda driver: failed_externals(driver, ids, self._clock.now()), budget)

    async def flow(self, id: str, budget: Budget) -> FlowInfo:
        """A workflow run by its id."""
        return await with_retries(lambda driver: read_flow(driver, id, self._clock.now()), budget)

    async def result(self, job: JobRecord, returns: Any, budget: Budget) -> Any:
        """What a job that is done returned, as that type; for a join, the list of what its jobs returned."""
        if job.type != JOIN_TYPE:
            return None if job.result is None else self._decode(job.id, job.result, returns)
        results = Results()
        members = results.join(job)
        await with_retries(lambda driver: results.load(driver, members, self._clock.now(), job.flow_id), budget)
        data = compose(self._codec, results.of(job.id))
        try:
            return self._codec.decode(data, returns)
        except ValueError:  # a job among them handed over to one that returns something else
            return self._codec.decode(data)

    async def is_served(self, queue: str, budget: Budget) -> bool:
        """Whether a worker that sent a heartbeat in the last minute serves this queue. One try, without retries."""
        driver = await budget.access.driver(budget.deadline)
        workers = await driver.workers(self._clock.now())
        return any(queue in worker.queues for worker in workers)

    async def cancel_job(self, id: str, budget: Budget) -> None:
        """Cancel a job, or the workflow that took its place, even if it takes it at this moment."""

        async def cancel(driver: Driver) -> None:
            while True:
                own, last = await self._follow(driver, id)
                if _is_own_flow(own.job, last.job):
                    await driver.cancel_flow(last.job.flow_id or "", self._clock.now())
                    return
                error = (await driver.cancel([last.job.id], self._clock.now()))[0]
                if error is None:
                    return
                if (await driver.inspect(last.job.id, self._clock.now())).job.handed_to is None:
                    raise error

        budget.doubt = lambda: CANCEL_IN_DOUBT
        await with_retries(cancel, budget)

    async def cancel_flow(self, id: str, budget: Budget) -> int:
        """Cancel what has not ended in a flow, and what is being spawned into it; returns the number of jobs."""
        budget.doubt = lambda: CANCEL_IN_DOUBT
        return await with_retries(lambda driver: driver.cancel_flow(id, self._clock.now()), budget)

    async def requeue_job(self, id: str, again: Again, budget: Budget) -> None:
        """Bring a dead or cancelled job back; if a workflow took its place and failed, the dead jobs of that one.

        A try whose reply was lost may have brought it back: the next try finds it so, and that is a success.
        """
        was_ended = False

        async def requeue(driver: Driver) -> None:
            nonlocal was_ended
            own, last = await self._follow(driver, id)
            now, is_repeated = self._clock.now(), was_ended
            if _is_own_flow(own.job, last.job):
                flow_id = last.job.flow_id or ""
                was_ended = was_ended or await self._failed_in(driver, flow_id) is not None
                if not await requeue_flow(driver, flow_id, again, now) and not is_repeated:
                    raise WrongState(f"job {id}: no job is dead in the workflow that took its place")
                return
            was_ended = was_ended or last.state in (State.DLQ, State.CANCELLED)
            error = (await driver.requeue([last.job.id], now, again.run_at(now), again.reset_attempts))[0]
            if error is not None and not (is_repeated and isinstance(error, WrongState)):
                raise error

        budget.doubt = lambda: REQUEUE_IN_DOUBT
        await with_retries(requeue, budget)

    async def requeue_flow(self, id: str, budget: Budget) -> int:
        """Bring the dead jobs of a flow back, with all their attempts; returns their number."""
        budget.doubt = lambda: REQUEUE_IN_DOUBT
        return await with_retries(lambda driver: requeue_flow(driver, id, Again(), self._clock.now()), budget)

    async def _follow(self, driver: Driver, id: str) -> tuple[JobInfo, JobInfo]:
        """A job, and the one that stands for it in the end."""
        own = last = await driver.inspect(id, self._clock.now())
        while last.job.handed_to is not None:
            last = await driver.inspect(last.job.handed_to, self._clock.now())
        return own, last

    async def _failed_in(self, driver: Driver, flow_id: str) -> JobInfo | None:
        """A dead or a cancelled job of a flow."""
        for state in (State.DLQ, State.CANCELLED):
            cursor: str | None = None
            while True:
                page = await driver.list(flow_id=flow_id, state=state, cursor=cursor, limit=1, now=self._clock.now())
                if page.items:
                    return page.items[0]
                cursor = page.cursor
                if cursor is None:
                    break
        return None

    def _decode(self, id: str, result: bytes, returns: Any) -> Any:
        try:
            return self._codec.decode(result, returns)
        except ValueError as error:
            raise ValueError(
                f"job {id}: its result cannot be read as {type_name(returns)}: {describe(error, ())}; its function "
                "returned something else than its annotation says; harbor.job(id).result() gives it as it is"
            ) from error


def _is_own_flow(own: JobRecord, last: JobRecord) -> bool:
    """Whether the flow that took a job's place is all its own, not one that the job was a part of."""
    return last.flow_id is not None and last.flow_id != own.flow_id
