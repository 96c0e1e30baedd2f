"""A step for `on_failure=`, written down for the jobs that may have to release it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from taskharbor.model.ids import new_id
from taskharbor.model.times import to_ms
from taskharbor.tasks.failure import FailureStep
from taskharbor.tasks.task import Step


def failure_step(step: Step[Any], now: datetime, queue: str) -> FailureStep:
    """The job that a failure releases. Its id is made here, so that there is never a second one."""
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
