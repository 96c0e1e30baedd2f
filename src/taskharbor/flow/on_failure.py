"""The step of `on_failure=`, encoded for the jobs that may have to release it.

The job that dies releases it. A job that was dead before the flow was enqueued, and that a step was found to be by its
key, cannot: then the enqueue of the flow does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord, State, replace
from taskharbor.model.times import to_ms
from taskharbor.tasks.failure_step import ON_FAILURE_KEY, FailureStep, failure_steps
from taskharbor.tasks.task import Step

if TYPE_CHECKING:
    from taskharbor.client.budget import Budget
    from taskharbor.client.client import Client


def failure_step(step: Step[Any], now: datetime, queue: str) -> FailureStep:
    """The job that a failure releases. Its id is made here, so that it is never stored twice."""
    task, signature = step.task, step.task.handler.signature
    options, lacking = task._options, step.lacking()
    return FailureStep(
        id=new_id(to_ms(now)),
        type=task.name,
        queue=queue if options.queue is None else options.queue,
        payload=signature.encode(step.arguments, partial=bool(lacking)),
        into=lacking[0] if lacking else None,
        delay=options.delay,
        run_at=options.run_at,
        timeout=options.timeout,
        priority=options.priority,
        max_attempts=options.max_attempts,
        idempotency_key=options.idempotency_key,
        group=options.group,
        group_limit=options.group_limit,
        metadata=options.metadata,
    )


def carries_steps(known: Mapping[str, JobRecord]) -> bool:
    """Whether one of these steps, each by the id of the job that it was found to be, carries a failure step."""
    return any(ON_FAILURE_KEY in step.metadata for step in known.values())


async def released_at_once(client: Client, known: Mapping[str, JobRecord], budget: Budget) -> list[JobRecord]:
    """The failure steps of a flow that failed before it began, because a step of it is a job that is already dead."""
    records: dict[str, JobRecord] = {}
    for id, step in known.items():
        if ON_FAILURE_KEY not in step.metadata:
            continue
        for info in await client.lookup.failed_externals([id], budget):
            if info.state is State.DLQ:
                dead = replace(step, id=info.job.id, type=info.job.type)
                steps = failure_steps(dead, info.job.reason, client.codec, client.clock.now())
                records.update((record.id, record) for record in steps)
    return list(records.values())
