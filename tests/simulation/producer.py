"""Producers: each enqueues one batch of the plan, and tries again after an error, as a caller would."""

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from taskharbor.client import Client, JobRequest
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord
from taskharbor.model.times import round_up, to_ms
from tests.simulation.machine import OwnClock, Process
from tests.simulation.network import RemoteDriver
from tests.simulation.plan import Spec, stream

if TYPE_CHECKING:
    from tests.simulation.world import World


async def produce(world: "World", batch: tuple[Spec, ...]) -> None:
    """Enqueue a batch at its time, until it is acknowledged or given up."""
    await asyncio.sleep(batch[0].at)
    rng = stream(world.plan.seed, f"producer {batch[0].n}")
    records: list[JobRecord] = []
    while True:
        process = world.process(f"producer{batch[0].n}")
        task = process.spawn(enqueue(world, process, batch, records), name="enqueue")
        world.calls.append(task)
        died = asyncio.ensure_future(process.died.wait())
        await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        world.processes.remove(process)
        world.journal.demand(process.stored <= len(batch), f"{process} asked once, and stored {process.stored} jobs")
        if task.done() and not task.cancelled() and task.exception() is None:
            return
        if task.done() and not task.cancelled() and not isinstance(task.exception(), BackendUnavailable):
            world.journal.wrong(f"enqueue raised {task.exception()!r}")
            return
        if rng.random() < 0.3 and world.faulty:
            world.journal.count("enqueue given up")
            return  # not acknowledged: it may be there, or not
        await asyncio.sleep(rng.uniform(0.1, 1.0))


async def enqueue(world: "World", process: Process, batch: tuple[Spec, ...], records: list[JobRecord]) -> None:
    driver = RemoteDriver(world, process)
    if len(batch) == 1:
        handle = await Client(driver, clock=world.clock(process)).aenqueue(request(batch[0]))
        if batch[0].key is None and handle.existed:
            world.journal.wrong(f"j{batch[0].n} has no key, and the client says it existed")
        world.journal.acknowledge(process, [handle.id])
        return
    clock = world.clock(process) or OwnClock(Process("store", world.loop))
    if not records:  # the same ids each time: sent again, they are the same jobs
        records.extend(as_records(batch, clock.now()))
    answers = await driver.enqueue(records, clock.now())
    world.journal.acknowledge(process, [answer.id for answer in answers])


def request(spec: Spec) -> JobRequest:
    """A job of the plan as a request to the client."""
    return JobRequest(
        type=spec.type,
        payload={"n": spec.n, "name": f"j{spec.n}"},
        queue=spec.queue,
        delay=spec.delay,
        timeout=spec.timeout,
        max_attempts=spec.max_attempts,
        idempotency_key=spec.key,
        group=spec.group,
        group_limit=spec.group_limit,
        priority=spec.priority,
    )


def as_records(batch: tuple[Spec, ...], now: datetime) -> list[JobRecord]:
    """Jobs of the plan with edges between them."""
    ids = {spec.n: new_id(to_ms(now)) for spec in batch}
    return [
        JobRecord(
            id=ids[spec.n],
            type=spec.type,
            queue=spec.queue,
            payload=f'{{"n":{spec.n},"name":"j{spec.n}"}}'.encode(),
            run_at=None if spec.delay is None else round_up(now + timedelta(seconds=spec.delay)),
            timeout=None if spec.timeout is None else timedelta(seconds=spec.timeout),
            max_attempts=spec.max_attempts,
            priority=spec.priority,
            group=spec.group,
            group_limit=spec.group_limit,
            depends_on=tuple(ids[n] for n in spec.after),
            created_at=now,
        )
        for spec in batch
    ]
