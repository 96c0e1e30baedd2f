"""Django's tasks API: `django.tasks` from Django 6.0 on, before that the backport `django_tasks`.

The backport differs in two names only: its exceptions end in "Error".
"""

from __future__ import annotations

from typing import Any

import django

HAS_TASKS = django.VERSION >= (6, 0)

try:
    if HAS_TASKS:
        from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, signals, task_backends
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
        from django.utils.json import normalize_json
    else:
        from django_tasks import DEFAULT_TASK_BACKEND_ALIAS, signals, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
        from django_tasks.utils import normalize_json
except ModuleNotFoundError as error:
    if error.name != "django_tasks":
        raise
    raise ModuleNotFoundError(
        f"Django {django.get_version()} has no tasks of its own: pip install django-tasks, or use Django 6.0 or later",
        name=error.name,
    ) from None

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "HAS_TASKS",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "normalize_json",
    "signals",
    "task_backends",
]

task_finished: Any = signals.task_finished
task_enqueued: Any = signals.task_enqueued
task_started: Any = signals.task_started
