"""What the simulated jobs do. One function runs them all: the plan decides what each does, and how often.

A handler notes its start with the fence it saw and its end in the journal, works in steps with awaits between them,
and ends as its kind says. What it decides depends on the job and the seed, never on the schedule.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from taskharbor.client import Client, JobRequest
from taskharbor.model.errors import BackendUnavailable, Cancel, HandlerSignal, RetryLater, Snooze, Unrecoverable
from taskharbor.model.job import JobRecord
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.flow_metadata import BIND_KEY, write_bind
from taskharbor.tasks.workflow import Spawned, Workflow
from tests.simulation.machine import Process
from tests.simulation.oracle import Execution, overdue
from tests.simulation.plan import Spec

if TYPE_CHECKING:
    from tests.simulation.world import World


class Broken(Exception):
    """What a simulated handler raises."""


class TwoAndAJoin(Workflow):
    """A workflow that takes a job's place: two jobs, and a join after them."""

    def __init__(self, broken: bool = False) -> None:
        self._broken = broken

    def _compile(self, parent: JobRecord, now: datetime) -> Spawned:
        name = f"{parent.id}.{parent.deliveries}"
        ids = [f"{name}.{part}" for part in ("left", "right", "join")]
        after: list[tuple[str, ...]] = [(parent.id,), (), ("nowhere",) if self._broken else (ids[0], ids[1])]
        jobs = [
            JobRecord(
                id=id,
                type="work",
                queue=parent.queue,
                payload=f'{{"n":-1,"name":"{id[-16:]}"}}'.encode(),
                depends_on=deps,
                metadata={BIND_KEY: write_bind("given", 2)} if len(deps) == 2 else {},
            )
            for id, deps in zip(ids, after, strict=True)
        ]
        return Spawned(tuple(jobs), ids[2])


def make_handler(world: "World", process: Process, client: Client, rng: random.Random) -> Callable[..., Awaitable[Any]]:
    """The handler of one process. `rng` decides how the process suffers while handlers run."""
    journal = world.journal

    async def work(n: int, name: str, ctx: JobContext, given: Any = None) -> Any:
        spec = world.plan.specs.get(n)
        try:
            execution = journal.started(process, ctx.job, ctx.fence)
            if BIND_KEY in ctx.job.metadata:
                returned = [id[-16:] for id in ctx.job.depends_on]
                journal.demand(given == returned, f"{name} was given {given}, but those before it returned {returned}")
                journal.count("results were given to a step")
            if spec is None:
                await asyncio.sleep(0.01)
                value: Any = name
            else:
                value = await _do(world, process, client, spec, ctx)
        except asyncio.CancelledError:
            _end(world, process, execution, ctx, "interrupted")
            raise
        except Snooze:
            _end(world, process, execution, ctx, "snooze")
            raise
        except Cancel:
            _end(world, process, execution, ctx, "cancel")
            raise
        except Unrecoverable:
            _end(world, process, execution, ctx, "unrecoverable")
            raise
        except (Broken, RetryLater, BackendUnavailable):
            _end(world, process, execution, ctx, "failed")
            raise
        except Exception as error:
            journal.wrong(f"the simulation itself failed: {error!r}")
            raise
        _end(world, process, execution, ctx, "returned")
        world.suffer_at_the_end(process, rng)
        return value

    return work


def _end(world: "World", process: Process, execution: Execution, ctx: JobContext, how: str) -> None:
    if process.dead or world.journal.over:
        return
    execution.how, execution.ended = how, world.loop.time()
    late = overdue(world.journal.jobs[ctx.job.id].deliveries[ctx.fence - 1], execution, world.plan)
    world.journal.demand(not late, f"{world.journal.jobs[ctx.job.id]}#{ctx.fence} {late}")
    world.journal.say(process, f"end {world.journal.jobs[ctx.job.id]}#{ctx.fence}: {how}")
    if how == "interrupted":
        world.journal.count(f"interrupted: {ctx.cancelled.reason}")


async def _do(world: "World", process: Process, client: Client, spec: Spec, ctx: JobContext) -> Any:
    kind, tried = spec.kind, ctx.job.attempts
    if kind in ("hang", "stubborn"):
        if tried < spec.times:
            await _too_long(world, kind, spec)
    elif spec.seconds:
        for _ in range(3):
            await asyncio.sleep(spec.seconds / 3)
    if kind == "poison":
        world.journal.count("poison ran")
        process.killer = world.journal.jobs[ctx.job.id].deliveries[ctx.fence - 1]
        process.kill("poison")
        await asyncio.get_running_loop().create_future()
    if kind == "parent":
        handle = await client.aenqueue(
            JobRequest(
                type="work",
                payload={"n": -1, "name": f"j{spec.n}.child"},
                queue=spec.queue,
                idempotency_key=f"child of {spec.n}",
            )
        )
        world.journal.acknowledge(process, [handle.id])
        return handle.id
    return _ending(world, kind, spec, ctx)


def _ending(world: "World", kind: str, spec: Spec, ctx: JobContext) -> Any:
    signal: HandlerSignal | None = None
    if kind == "fail" and ctx.job.attempts < spec.times:
        raise Broken(f"failure {ctx.job.attempts + 1}")
    if kind == "unrecoverable":
        signal = Unrecoverable("no use")
    elif kind == "later" and ctx.job.attempts < spec.times:
        signal = RetryLater(0.5)
    elif kind == "snooze" and world.snoozed(ctx.job.id) < spec.times:
        signal = Snooze(0.3)
    elif kind == "cancel":
        signal = Cancel("not wanted")
    if signal is not None:
        raise signal
    if kind in ("flow", "badflow"):
        return TwoAndAJoin(broken=kind == "badflow")
    return {"n": spec.n}


async def _too_long(world: "World", kind: str, spec: Spec) -> None:
    """Longer than the timeout allows; a stubborn one does not even end when it is cancelled."""
    assert spec.timeout is not None
    try:
        await asyncio.sleep(spec.timeout + 20)
    except asyncio.CancelledError:
        if kind == "stubborn":
            world.journal.count("stubborn handler")
            await asyncio.sleep(1.0 + spec.n % 9)
        raise
