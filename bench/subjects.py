"""What is measured, by name, in the order of the report."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import msgspec

from bench import ours
from bench.peers import memory as peers
from bench.sample import Sample

Measure = Callable[[int, int], Sample | Awaitable[Sample]]


class Subject(msgspec.Struct, frozen=True):
    """One line of the report. `measure(jobs, backlog)` runs it once; `peer` names the distribution it needs."""

    title: str
    measure: Measure
    section: str
    peer: str = ""

    def run(self, jobs: int, backlog: int) -> Sample:
        """One sample, in this process."""
        answer = self.measure(jobs, backlog)
        return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer


async def _awaited(answer: Awaitable[Sample]) -> Sample:
    return await answer


WORKER = "A worker on jobs that were enqueued beforehand"
THROUGH = "A job's whole way: enqueued one at a time, then run"
BACKLOG = "A worker beside a backlog"
ENQUEUE = "Enqueueing"
LATENCY = "Pick-up by an idle worker"

SUBJECTS = {
    "bare": Subject("a bare asyncio task for each job (the limit)", ours.bare, WORKER),
    "process": Subject("taskharbor", ours.process, WORKER),
    "process-timeout": Subject("taskharbor, each job with a timeout", ours.process_timeout, WORKER),
    "process-result": Subject("taskharbor, with an argument and a result", ours.process_result, WORKER),
    "huey": Subject("huey", peers.huey, WORKER, "huey"),
    "taskiq": Subject("taskiq", peers.taskiq, WORKER, "taskiq"),
    "through": Subject("taskharbor", ours.through, THROUGH),
    "huey-through": Subject("huey", peers.huey_through, THROUGH, "huey"),
    "taskiq-through": Subject("taskiq", peers.taskiq_through, THROUGH, "taskiq"),
    "alone": Subject("taskharbor, nothing beside", ours.alone, BACKLOG),
    "before-ready": Subject("taskharbor, {backlog} more jobs waiting in its queue", ours.before_ready, BACKLOG),
    "beside-scheduled": Subject("taskharbor, {backlog} jobs scheduled for later", ours.beside_scheduled, BACKLOG),
    "enqueue-one": Subject("taskharbor, one at a time", ours.enqueue_one, ENQUEUE),
    "enqueue-many": Subject("taskharbor, a thousand at a time", ours.enqueue_many, ENQUEUE),
    "latency": Subject("taskharbor, from the call of aenqueue to the handler", ours.latency, LATENCY),
}
