"""A context for unit tests: a task that takes one is called as a plain function, without a worker."""

from __future__ import annotations

from datetime import datetime

from taskharbor.model.codec import JsonCodec
from taskharbor.model.errors import FeatureMissing
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord, replace
from taskharbor.model.times import to_ms
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.step_transaction import StepHold
from taskharbor.tasks.steps import Steps
from taskharbor.testing.clock import START


def context(
    job: JobRecord | None = None, *, attempt: int | None = None, deadline: datetime | None = None
) -> JobContext:
    """A `JobContext` to call a task with: `assert report(context(attempt=3), "2030-01") == …`.

    Its `job` is the given record, or one of the type "test". `attempt` counts from 1, and is what the record says
    unless it is given. `deadline`: when its timeout would be over. `ctx.cancelled.set("shutdown")` plays a worker that
    stops; `ctx.progress(…)` is dropped. Steps run, and are kept in memory; a sleep ends at once.

    >>> context(attempt=3).job.attempts
    2
    """
    if attempt is not None and attempt < 1:
        raise ValueError(f"attempt: expected 1 or more, got {attempt}")
    if job is not None and not isinstance(job, JobRecord):
        raise TypeError(f"job: expected a JobRecord, got {type(job).__name__}; a handle reads it with job.info().job")
    record = job or JobRecord(id=new_id(to_ms(START)), type="test", created_at=START)
    failures = record.attempts if attempt is None else attempt - 1
    return JobContext(
        replace(record, attempts=failures, deliveries=max(record.deliveries, failures + 1)),
        worker="test",
        deadline=deadline,
        _open_steps=lambda: Steps(JsonCodec(), (), _InMemory(), sleeps=False),
    )


class _InMemory:
    """The `StepCalls` of a test: what `Steps` keeps is all there is."""

    def check(self) -> None:
        """Nobody takes the job away."""

    def save(self, name: str, value: bytes) -> None:
        """It is kept by the caller."""

    async def asave(self, name: str, value: bytes) -> None:
        """The same."""

    def now(self) -> datetime:
        return START

    def hold(self, *, is_coroutine: bool) -> StepHold:
        raise FeatureMissing("ctx.step_transaction() needs a worker on a SQL store; this context has none")
