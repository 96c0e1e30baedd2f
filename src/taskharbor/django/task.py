"""Tasks of Django's kind with our own options.

    @task(max_attempts=5, timeout=30)            Django 6.1, or the backport
    @task
    @harbor_options(max_attempts=5, timeout=30)  every version
    send.using(idempotency_key="w:42").enqueue(…)

Options of a call go before those of the declaration; `@task(…)` goes before `@harbor_options(…)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from taskharbor.django.api import Task
from taskharbor.model.validation import did_you_mean
from taskharbor.policy.retry import RetryPolicy

F = TypeVar("F", bound=Callable[..., Any])

ATTRIBUTE = "__taskharbor_options__"
_OF_DJANGO = {
    "queue": "queue_name",
    "run_at": "run_after (with .using)",
    "delay": "run_after (with .using)",
    "priority": "priority of @task",
}


def harbor_options(**options: Any) -> Callable[[F], F]:
    """Options of TaskHarbor's for a task: a decorator below `@task`.

    They are: group, group_limit, idempotency_key, max_attempts, metadata, process, retry, timeout, unrecoverable.
    """
    refuse_unknown(options, "harbor_options")

    def decorate(function: F) -> F:
        if isinstance(function, Task):
            raise TypeError("harbor_options: expected a function, got a task; put it below @task")
        setattr(function, ATTRIBUTE, {**getattr(function, ATTRIBUTE, {}), **options})
        return function

    return decorate


def refuse_unknown(options: Mapping[str, Any], who: str) -> None:
    """TypeError for an option that is not ours."""
    for name in options:
        if name in OWN:
            continue
        if name in _OF_DJANGO:
            raise TypeError(f"{who}: {name!r} has a name of its own in Django: {_OF_DJANGO[name]}")
        hint = did_you_mean(name, OWN)
        raise TypeError(f"{who}: unknown option {name!r}; {hint}expected one of: {', '.join(OWN)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask(Task):  # type: ignore[misc]  # Django has no types
    """A task of Django's with the options of TaskHarbor. None: not given."""

    max_attempts: int | None = None
    timeout: float | timedelta | None = None
    retry: RetryPolicy | None = None
    unrecoverable: Any = None
    group: str | None = None
    group_limit: int | None = None
    idempotency_key: str | None = field(default=None, repr=False)  # as in our own tasks: it may name a person
    metadata: Mapping[str, str] | None = field(default=None, repr=False)
    process: bool | None = None

    def __post_init__(self) -> None:
        Task.__post_init__(self)
        register = getattr(self.get_backend(), "register", None)
        if register is not None:
            register(self)

    @property
    def function(self) -> Callable[..., Any]:
        """What a worker calls: a child process finds it here."""
        called: Callable[..., Any] = self.get_backend().register(self).call
        return called

    def using(self, **changes: Any) -> Any:
        """A task with other defaults: priority, queue_name, run_after, backend, and the options of TaskHarbor."""
        own = {name: changes.pop(name) for name in OWN if name in changes}
        changed = Task.using(self, **changes)
        return replace(changed, **own) if own else changed


OWN = tuple(sorted(HarborTask.__annotations__))
"""The names of our options."""


def options_of(task: Any) -> dict[str, Any]:
    """The options of ours that a task has, from its declaration and from its function. A task of another class, made
    while another backend was set, has only the latter."""
    found = dict(getattr(task.func, ATTRIBUTE, {}))
    for name in OWN:
        value = getattr(task, name, None)
        if value is not None:
            found[name] = value
    return found
