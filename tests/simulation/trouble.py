"""Trouble: what the seed does to processes and to the store, and what an operator does to jobs."""

import asyncio
import random
from typing import TYPE_CHECKING

from taskharbor.model.errors import BackendUnavailable
from tests.simulation.machine import OwnClock, Process
from tests.simulation.network import RemoteDriver
from tests.simulation.plan import stream

if TYPE_CHECKING:
    from tests.simulation.world import World


async def disturb(world: "World") -> None:
    rng, plan = world.chaos, world.plan
    menu = [name for name in ("kill", "freeze", "clock", "cancel", "stop", "outage", "renewals") if name in plan.faults]
    while menu and world.faulty:
        await asyncio.sleep(rng.expovariate(plan.trouble / 4))
        if not world.faulty:
            return
        what = rng.choice(menu)
        if what == "outage":
            world.network.down_until = world.loop.time() + rng.uniform(0.2, 1.5) * plan.lease
            world.journal.count("outage")
            world.journal.say("world", f"outage until {world.network.down_until:.3f}")
        elif what == "renewals":
            world.network.renewals_down_until = world.loop.time() + rng.uniform(0.8, 2.5) * plan.lease
            world.journal.count("renewals fail")
            world.journal.say("world", f"renewals fail until {world.network.renewals_down_until:.3f}")
        elif what == "cancel":
            cancel(world, rng)
        else:
            hit(world, what, rng)


def hit(world: "World", what: str, rng: random.Random) -> None:
    workers = [process for process in world.processes if process in world.workers and not process.stopping]
    if not workers:
        return
    process = rng.choice(workers)
    world.journal.say("world", f"{what} {process}")
    if what == "kill":
        process.kill("the world")
    elif what == "freeze":
        world.journal.count("frozen")
        process.freeze(rng.uniform(0.2, 3.0) * world.plan.lease)
    elif what == "clock":
        world.journal.count("clock stepped")
        process.step_clock(rng.uniform(-2, 2) * (world.plan.lease if world.plan.own_clock else 3600))
    else:
        world.journal.count("stopped gracefully")
        process.stopping = True
        worker = world.workers[process][0]
        (worker.stop if rng.random() < 0.7 else worker.hurry)()


def cancel(world: "World", rng: random.Random) -> None:
    """A call of a client, or the whole worker as `asyncio.run` would on Ctrl-C."""
    calls = [task for task in world.calls if not task.done()]
    if calls and rng.random() < 0.7:
        world.journal.count("client call cancelled")
        rng.choice(calls).cancel()
        return
    workers = [process for process in world.workers if not process.stopping and not process.dead]
    if workers:
        process = rng.choice(workers)
        process.stopping = True
        world.journal.count("worker cancelled")
        world.journal.say("world", f"cancel {process}")
        world.workers[process][1].cancel()


async def administer(world: "World") -> None:
    rng = stream(world.plan.seed, "admin")
    while "admin" in world.plan.faults and world.faulty:
        await asyncio.sleep(rng.expovariate(0.4))
        process = world.process("admin")
        known = list(world.journal.jobs.values())
        if not known or not world.faulty:
            continue
        task = process.spawn(act(world, process, rng, rng.choice(known).id), name="admin")
        died = asyncio.ensure_future(process.died.wait())
        await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        world.processes.remove(process)
        if task.done() and not isinstance(task.exception(), BackendUnavailable | None):
            world.journal.wrong(f"an admin call raised {task.exception()!r}")


async def act(world: "World", process: Process, rng: random.Random, id: str) -> None:
    driver, now = RemoteDriver(world, process), OwnClock(Process("store", world.loop)).now()
    verb = rng.choice(["cancel", "requeue", "requeue", "delete", "pause", "resume"])
    dead = [known.id for known in world.journal.jobs.values() if known.state in ("dlq", "cancelled")]
    if verb == "requeue" and dead:
        await driver.requeue([rng.choice(dead)], now, reset_attempts=rng.random() < 0.5)
    elif verb == "cancel":
        await driver.cancel([id], now)
    elif verb == "delete":
        await driver.delete([id])
    elif verb in ("pause", "resume"):
        await getattr(driver, verb)(rng.choice(["a", "b"]))
