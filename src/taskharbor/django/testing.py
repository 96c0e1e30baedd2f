"""For tests of a Django project: find the jobs that the code under test has enqueued, and run them.

    class OrderTest(TestCase):
        def test_it_is_confirmed(self):
            self.client.post("/orders", {"email": "ada@example.com"})
            [job] = enqueued(confirm)
            drain()

In a `TestCase` jobs live in the test's transaction, which is never committed: they run on the test's own connection,
and so do the queries of their handlers. No test runner and no setting is needed. Jobs that wait for a commit, because
their store is elsewhere, are there when `captureOnCommitCallbacks(execute=True)` has run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from taskharbor.django import registry
from taskharbor.django.address import is_in_memory
from taskharbor.django.api import Task as DjangoTask
from taskharbor.django.connections import in_use, lend
from taskharbor.django.harbors import DjangoHarbor, harbor_of, our_aliases
from taskharbor.django.results import result_of
from taskharbor.django.setup import discover
from taskharbor.django.store import driver_on
from taskharbor.model.clock import Clock
from taskharbor.tasks.task import Task
from taskharbor.testing.drain import adrain as adrain_harbor
from taskharbor.testing.drain import includes, refuse_unknown

__all__ = ["adrain", "aenqueued", "drain", "enqueued"]


def drain(backend: str = "default", *, clock: Clock | None = None) -> int:
    """Run all jobs that are due, and those that they enqueue; return the number of executions.

    The real worker runs them, one after the other. What is scheduled for later, or waits for a retry, stays: give a
    `ManualClock(timezone.now())`, move it, and drain by it again.
    """
    discover()
    harbor = harbor_of(backend)
    ended: list[Callable[[], object]] = []
    with _in_this_test(harbor, ended), harbor._store.by_clock(clock):
        executions: int = async_to_sync(adrain_harbor)(harbor)
    for send in ended:
        send()
    return executions


async def adrain(backend: str = "default", *, clock: Clock | None = None) -> int:
    """`drain` for asynchronous tests."""
    executions: int = await sync_to_async(drain, thread_sensitive=True)(backend, clock=clock)
    return executions


def enqueued(task: Any, /, **arguments: Any) -> list[Any]:
    """The jobs of a task, in any state, whose arguments include these; the oldest first.

    Those of a task of Django's are `TaskResult`s, those of a task of `harbor.task` are `JobRecord`s.
    """
    if isinstance(task, Task):
        refuse_unknown(task, arguments)
        harbor = next((each for each in map(harbor_of, our_aliases()) if task.name in each.tasks), None)
        if harbor is None:
            raise ValueError(f"enqueued: no harbor of TASKS declares {task.name!r}; use taskharbor.testing.enqueued")
        return [info.job for info in harbor.jobs(type=task.name) if includes(task, info.job, arguments)]
    if not isinstance(task, DjangoTask):
        raise TypeError(f"enqueued: expected a task, got {type(task).__name__}")
    declared = registry.declared(task)
    names, _, more = declared.layout
    unknown = arguments.keys() - declared.parameters
    if unknown and more is None:
        raise TypeError(f"{declared.type} has no parameter {', '.join(sorted(unknown))}: nothing could ever match")
    harbor = harbor_of(task.backend)
    found = [result_of(info, declared, task.backend) for info in harbor.jobs(type=declared.type)]
    return [
        each
        for each in found
        if arguments.items() <= {**dict(zip(names, each.args, strict=False)), **each.kwargs}.items()
    ]


async def aenqueued(task: Any, /, **arguments: Any) -> list[Any]:
    """`enqueued` for asynchronous tests."""
    found: list[Any] = await sync_to_async(enqueued, thread_sensitive=True)(task, **arguments)
    return found


def _is_lent(connection: Any, database: str | None) -> bool:
    """Whether handlers use this connection: no other shows what the test has written. One that the test does not use is
    left alone; it may not even be allowed to."""
    is_open = connection.connection is not None
    return is_open and (connection.alias == database or connection.in_atomic_block or is_in_memory(connection))


@contextmanager
def _in_this_test(harbor: DjangoHarbor, ended: list[Callable[[], object]]) -> Iterator[None]:
    """Run jobs on the connections of this thread, and note what to send when they have ended."""
    database = harbor.backend.database
    if database is not None:
        connections[database].ensure_connection()
    mine = {alias: connections[alias] for alias in connections if _is_lent(connections[alias], database)}
    deliver, harbor.signals.deliver = harbor.signals.deliver, ended.append
    try:
        with ExitStack() as stack:
            stack.enter_context(lend(mine))
            if database is not None and harbor._store.joins_transactions:
                driver = driver_on(harbor.backend, lambda: mine[database], in_use)
                stack.enter_context(harbor.use_driver(driver))
            yield
    finally:
        harbor.signals.deliver = deliver
