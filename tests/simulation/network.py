"""The driver of a simulated process: the memory store behind a network that misbehaves by the seed.

Each call travels (latency), may fail before it arrives, takes effect in one instant in which the journal notes it, and
travels back, when the reply may be lost. The process may die before, after, or in between. A dead process's calls
never arrive, whatever its code still tries.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from taskharbor.drivers import WrappedDriver
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import JobRecord, Seen
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.outcome import Outcome
from taskharbor.model.schedule import ScheduleChange
from taskharbor.model.times import truncate
from tests.simulation.machine import START, Process

if TYPE_CHECKING:
    from tests.simulation.world import World

REPEATABLE = ("enqueue", "settle", "extend", "change_schedules")


class Gone(BaseException):
    """The run is over: nothing reaches the store any more."""


class Network:
    """What may happen to a call, and how often. Off: only latency is left."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.down_until = 0.0
        self.renewals_down_until = 0.0

    def latency(self) -> float:
        return self.rng.expovariate(1.0) * self.world.plan.latency

    def fate(self, verb: str) -> str:
        """One of: ok, fail, lose, duplicate, slow, kill before, kill after."""
        if not self.world.faulty:
            return "ok"
        if self.world.loop.time() < max(self.down_until, self.renewals_down_until if verb == "extend" else 0.0):
            return "fail"
        plan = self.world.plan
        often = 0.04 * plan.trouble
        # Drawn always, so that leaving a fault out changes nothing but that fault.
        dice, which = (
            self.rng.random(),
            self.rng.choice(("fail", "lose", "duplicate", "slow", "kill before", "kill after")),
        )
        if dice > often or which.partition(" ")[0] not in plan.faults:
            return "ok"
        if which == "duplicate" and verb not in REPEATABLE:
            return "ok"
        if which.startswith("kill") and self.rng.random() < 0.5:  # otherwise too much dies for any job to be done
            return "ok"
        return which


class RemoteDriver(WrappedDriver):
    """A driver on the shared store, for one process."""

    def __init__(self, world: "World", process: Process) -> None:
        super().__init__(world.store.sibling())
        self._world = world
        self._process = process

    def sibling(self) -> "RemoteDriver":
        return RemoteDriver(self._world, self._process)

    async def close(self) -> None:
        await self._arrive()

    async def server_time(self) -> datetime:
        async def read() -> datetime:
            return truncate(START + timedelta(seconds=self._world.loop.time()))

        return await self.around("server_time", read)

    # Calls -----------------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        async def do() -> list[Enqueued]:
            answers = await self.inner.enqueue(jobs, now)
            self._world.journal.enqueued(self._process, jobs, answers, now)
            return answers

        return await self.around("enqueue", do)

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        given = []

        async def do() -> list[Reserved]:
            batch = await self.inner.reserve(queues, now, lease_for, limit, worker)
            given.extend(self._world.journal.reserved(self._process, queues, now, limit, batch))
            return batch

        batch = await self.around("reserve", do)
        for delivery in given:
            delivery.heard = True
        return batch

    async def extend(
        self,
        leases: Sequence[Lease],
        now: datetime,
        lease_for: timedelta,
        notes: Mapping[str, bytes] | None = None,
    ) -> Any:
        async def do() -> Any:
            answers = await self.inner.extend(leases, now, lease_for, notes)
            self._world.journal.extended(self._process, leases, answers, now, lease_for)
            return answers

        answers = await self.around("extend", do)
        for lease, answer in zip(leases, answers, strict=True):
            self._world.journal.told(lease, answer)
        return answers

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[Any]:
        async def do() -> list[Any]:
            answers = await self.inner.settle(outcomes, now)
            self._world.journal.settled(self._process, outcomes, answers, now)
            return answers

        return await self.around("settle", do)

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        raise NotImplementedError("the journal does not follow release yet")

    # Admin ---------------------------------------------------------------------------------------------------

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[Any]:
        return await self._admin(
            "requeue",
            ids,
            lambda: self.inner.requeue(ids, now, run_at, reset_attempts, seen),
            run_at=run_at,
            reset_attempts=reset_attempts,
        )

    async def cancel(self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None) -> list[Any]:
        return await self._admin("cancel", ids, lambda: self.inner.cancel(ids, now, seen))

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[Any]:
        return await self._admin("delete", ids, lambda: self.inner.delete(ids, seen))

    async def _admin(self, verb: str, ids: Sequence[str], call: Callable[[], Awaitable[list[Any]]], **how: Any) -> Any:
        async def do() -> list[Any]:
            answers = await call()
            self._world.journal.admin(verb, ids, answers, **how)
            return answers

        return await self.around(verb, do)

    async def pause(self, queue: str) -> None:
        await self._pause(queue, True)

    async def resume(self, queue: str) -> None:
        await self._pause(queue, False)

    async def _pause(self, queue: str, paused: bool) -> None:
        async def do() -> None:
            await (self.inner.pause if paused else self.inner.resume)(queue)
            self._world.journal.paused[queue] = paused
            self._world.journal.say("admin", f"{'pause' if paused else 'resume'} {queue}")
            self._world.journal.count("admin pause")

        await self.around("pause", do)

    # What is noted beside the jobs; calls that only read are passed on ---------------------------------------

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        async def do() -> list[bool]:
            return await self._world.changed_schedules(self._process, self.inner, changes, now)

        return await self.around("change_schedules", do)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        raise NotImplementedError("the journal does not follow cancel_flow yet")

    async def beat(self, info: Any, now: datetime) -> None:
        async def do() -> None:
            await self.inner.beat(info, now)
            self._world.journal.claimed(self._process, info.cut_off)

        await self.around("beat", do)

    async def workers(self, now: datetime) -> Any:
        async def do() -> Any:
            found = await self.inner.workers(now)
            self._world.journal.weighed(self._process, {each for info in found for each in info.cut_off})
            return found

        try:
            return await self.around("workers", do)
        except BackendUnavailable:
            self._world.journal.not_weighed(self._process)
            raise

    # The way there and back ------------------------------------------------------------------------------------

    async def around(self, verb: str, do: Callable[[], Awaitable[Any]], args: tuple[Any, ...] = ()) -> Any:
        await self._arrive()
        network, process = self._world.network, self._process
        fate = network.fate(verb)
        if fate != "ok":
            self._world.journal.count(f"fault: {fate}")
            self._world.journal.say(process, f"fault: {verb}: {fate}")
        await asyncio.sleep(network.latency())
        if fate == "slow":
            process.note("slow")
            await asyncio.sleep(network.rng.uniform(0.3, 1.2) * self._world.plan.lease)
            process.note("slow")
        if fate == "fail":
            process.note(f"{verb} failed")
            raise BackendUnavailable(f"simulated: {verb} did not arrive")
        if fate == "kill before":
            process.kill("a crash before a call")
        await self._arrive()
        try:
            answer = await do()
        except (AssertionError, AttributeError, LookupError, TypeError) as error:
            self._world.journal.wrong(f"the simulation or the driver itself failed: {error!r}")
            raise
        if fate == "duplicate":
            answer = await self._again(verb, do, answer)
        if fate == "kill after":
            process.kill("a crash after a call")
        await self._arrive()
        await asyncio.sleep(network.latency())
        if fate == "lose":
            process.note(f"{verb} failed")
            raise BackendUnavailable(f"simulated: the reply to {verb} was lost")
        return answer

    async def _again(self, verb: str, do: Callable[[], Awaitable[Any]], first: Any) -> Any:
        """The same request arrives a second time: at once, or much later."""
        rng = self._world.network.rng
        if rng.random() < 0.5:
            second = await do()
            return first if verb == "enqueue" else rng.choice((first, second))
        self._world.later(rng.uniform(0.1, 3.0) * self._world.plan.lease, do, f"late {verb}")
        return first

    async def _arrive(self) -> None:
        """A call of a dead process ends here."""
        if self._world.journal.over:
            raise Gone
        if self._process.dead:
            await asyncio.get_running_loop().create_future()
