"""A checker for handlers: end one at every point in turn, run it again as a worker would, and compare what came of it.

    run it whole ──► what is expected, and its points
    for each point: begin ──► run it, and end the worker there ──► its lease ends, another worker runs the job
                          ──► compare what is observed with what is expected

The job runs on real workers, in a store of its own, on a clock that moves when nothing else does.
"""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from taskharbor.drivers.registry import open_driver
from taskharbor.model.ids import new_id
from taskharbor.model.job import State
from taskharbor.model.times import to_ms
from taskharbor.tasks.task import Step, Task
from taskharbor.testing.clock import START, ManualClock
from taskharbor.testing.crash_tracing import CrashPlan, CrashPoint, EndingDriver

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor
    from taskharbor.worker.middleware import CallMiddleware

LEASE_S = 30
MAX_RUNS = 100  # of one job: it may sleep, snooze and fail
MAX_SHOWN_CHARS = 120


class CrashFault(msgspec.Struct, frozen=True):
    """A point after which something else came of the job than without it."""

    point: CrashPoint  # where it ended
    differences: tuple[str, ...]  # one sentence for each thing that was observed

    def __str__(self) -> str:
        return f"it ended {self.point}: {'; '.join(self.differences)}"


class CrashReport(msgspec.Struct, frozen=True):
    """What `crash_points` found. Its text is for a person; it is true if nothing was found."""

    task: str  # the task whose handler was ended
    tried: int  # at how many points
    left_out: int  # points beyond the limit, and those of lines that were reached again and again
    faults: tuple[CrashFault, ...]  # the points after which something else came of the job

    def __bool__(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        more = f" ({self.left_out} more were left out)" if self.left_out else ""
        head = f"{self.task}: ended at {self.tried} points{more}, "
        if not self.faults:
            return f"{head}and the outcome was the same each time"
        lines = [f"  {Path(fault.point.file).name}: {fault}" for fault in self.faults]
        return "\n".join([f"{head}{len(self.faults)} of them with another outcome:", *lines])


def crash_points(
    task: Task[..., Any] | Step[Any],
    *,
    harbor: Harbor,
    observe: Callable[[], Mapping[str, Any]],
    begin: Callable[[], object] = lambda: None,
    limit: int = 200,
    repeats: int = 2,
    process: bool = False,
) -> CrashReport:
    """End the handler of a task at every point in turn, run it again as a worker would, and compare what you observe.

    `task`: the task, or a step with its arguments: `charge.s("ada", 500)`. `harbor`: the one that declares it.
    `observe` returns what came of it, by name: rows, calls that a stand-in has recorded, the text of files. Lists are
    compared without regard to order. `begin` puts all of that back, before each run. What the job ends as, and what it
    enqueues, is compared as well.

    Points are before each line of your code below the handler's folder, around each call to the store (a step, an
    enqueue), and between the handler's end and the record of it. Each line counts at its first `repeats` visits; of
    more than `limit` points some are tried, evenly spread. `process=True` ends a process, so that no `finally` runs;
    then nothing that `observe` looks at may be in memory.

    >>> from taskharbor import Harbor
    >>> harbor, charged = Harbor("memory://"), list[str]()
    >>> @harbor.task(name="charge")
    ... def charge(who: str) -> None:
    ...     charged.append(who)
    >>> report = crash_points(
    ...     charge.s("ada"), harbor=harbor, observe=lambda: {"charged": charged}, begin=charged.clear
    ... )
    >>> print(report.faults[0].differences)
    ("charged: 'ada' 2 times instead of once",)
    """
    if limit < 1 or repeats < 1:
        raise ValueError(f"limit and repeats: expected 1 or more, got {limit} and {repeats}")
    checked = _Checker(harbor, task.s() if isinstance(task, Task) else task, observe, begin, repeats, process)
    expected, plan = checked.run(None)
    again, _ = checked.run(None)
    if differences := _differences(expected, again):
        raise ValueError(
            f"{checked.name}: run twice from the same beginning, it gave different outcomes, so nothing can be "
            f"compared: {'; '.join(differences)}; does begin put everything back?"
        )
    number = len(plan.points)
    chosen = range(number) if number <= limit else [index * number // limit for index in range(limit)]
    faults = []
    for index in chosen:
        found, _ = checked.run(index)
        if differences := _differences(expected, found):
            faults.append(CrashFault(plan.points[index], differences))
    return CrashReport(checked.name, len(chosen), number - len(chosen) + plan.left_out, tuple(faults))


class _Checker:
    def __init__(
        self,
        harbor: Harbor,
        step: Step[Any],
        observe: Callable[[], Mapping[str, Any]],
        begin: Callable[[], object],
        repeats: int,
        process: bool,
    ) -> None:
        self._harbor = harbor
        self._observe, self._begin = observe, begin
        self._repeats, self._process = repeats, process
        # The same id in each run, because keys follow from it.
        self._call = msgspec.structs.replace(step._call(), id=new_id(to_ms(START)))
        self.name = self._call.type
        handler = harbor.handlers.get(self.name)
        if handler is None:
            raise ValueError(f"{self.name}: expected a task of this harbor")
        self._code = handler.function.__code__

    def run(self, at: int | None) -> tuple[dict[str, Any], CrashPlan]:
        """What is observed after a run that ended at a point, and the plan, which knows the points."""
        self._begin()
        plans, clock = list[CrashPlan](), ManualClock()
        with ExitStack() as block:
            folder = block.enter_context(tempfile.TemporaryDirectory())
            store, dsn = self._harbor._store, f"sqlite:///{folder}/jobs.db"
            before = store.isolate(EndingDriver(open_driver(dsn), plans), clock)
            block.callback(lambda: store.close_isolated(store.restore(before)))
            (job,) = self._harbor.client._enqueue_calls([self._call], "crash_points")
            plan = CrashPlan(self._code, job.id, at, repeats=self._repeats, exits=self._process)
            plans.append(plan)
            if self._process and at is not None:
                self._in_child(plan)
            else:
                self._work(plan)
            plans.clear()
            self._until_ended(job, clock)
            # A copy: a stand-in may return the list that it goes on filling.
            return {**copy.deepcopy(dict(self._observe())), **self._outcome(job.id)}, plan

    def _until_ended(self, job: Any, clock: ManualClock) -> None:
        """Run the job again until it has ended: when its lease is over, or what it waits for has come."""
        for _ in range(MAX_RUNS):
            info = job.info()
            if info.state.terminal:
                return
            due = info.lease_expires_at if info.state is State.INFLIGHT else info.job.run_at
            clock.advance(max((due or clock.now()) - clock.now(), timedelta()) + timedelta(milliseconds=1))
            self._work(None)

    def _work(self, plan: CrashPlan | None) -> None:
        layers: list[CallMiddleware] = [*self._harbor.call_middleware]
        if plan is not None:
            layers.append(plan)
        worker = self._harbor.worker(
            concurrency=1,
            heart="loop",
            lease=LEASE_S,
            schedules=False,
            call_middleware=layers,
            child_processes=False,
            observers=(),
        )
        asyncio.run(worker.arun(until_empty=True))

    def _in_child(self, plan: CrashPlan) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child opens everything anew
            child = os.fork()
        if not child:
            try:
                self._work(plan)
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    def _outcome(self, id: str) -> dict[str, Any]:
        found = {info.job.id: info for info in self._harbor.jobs()}
        own = found.pop(id)
        ended = own.state.value if own.state is State.DONE else f"{own.state} ({own.job.reason or own.job.last_error})"
        return {"the job": ended, "jobs that it enqueued": [f"{i.job.type} {i.job.payload!r}" for i in found.values()]}


def _differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    differences = list[str]()
    for name in {**expected, **found}:
        before, after = expected.get(name), found.get(name)
        if isinstance(before, list | tuple) and isinstance(after, list | tuple):
            differences += [f"{name}: {each}" for each in _of_lists(before, after)]
        elif before != after:
            differences.append(f"{name}: {_shown(after)} instead of {_shown(before)}")
    return tuple(differences)


def _of_lists(expected: Iterable[Any], found: Iterable[Any]) -> list[str]:
    before, after = Counter(map(repr, expected)), Counter(map(repr, found))
    return [
        f"{item[:MAX_SHOWN_CHARS]} {_times(after[item])} instead of {_times(before[item])}"
        for item in {**before, **after}
        if before[item] != after[item]
    ]


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"{number} times")


def _shown(value: Any) -> str:
    return repr(value)[:MAX_SHOWN_CHARS]
