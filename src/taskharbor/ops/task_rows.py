"""The tasks that an application declares, as rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from taskharbor.harbor import Harbor


@dataclass(frozen=True)
class TaskRow:
    """One task: the type of its jobs, and the options that they are enqueued with unless a call says otherwise."""

    name: str
    queue: str
    max_attempts: int
    timeout: timedelta | None
    priority: int
    process: bool


def tasks_of(harbor: Harbor) -> list[TaskRow]:
    """The tasks in the order of their names."""
    rows = []
    for name, task in sorted(harbor.tasks.items()):
        options = task._options
        rows.append(
            TaskRow(
                name,
                task.queue or harbor._store.default_queue,
                options.max_attempts,
                options.timeout,
                options.priority,
                task.handler.process,
            )
        )
    return rows
