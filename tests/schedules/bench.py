"""A memory store with a manual clock, a harbor on it, and runners that fire what is due when a test says so."""

from collections.abc import Collection
from typing import Any, cast

from taskharbor import Harbor, JobInfo
from taskharbor.drivers import StoredSchedule, open_driver
from taskharbor.drivers.base import Driver
from taskharbor.events import Event
from taskharbor.model.events import Observers
from taskharbor.schedules.body import Schedule, read_body
from taskharbor.schedules.declare import declare
from taskharbor.schedules.firing import Round, ScheduleRunner
from taskharbor.testing import ManualClock


class Bench:
    """One store, a harbor with two tasks, and the events that runners emitted."""

    def __init__(self, driver: Any = None) -> None:
        self.clock = ManualClock()
        self.driver = cast(Driver, open_driver("memory://") if driver is None else driver)
        self.harbor = Harbor(self.driver, clock=self.clock)
        self.events: list[Event] = []

        @self.harbor.task(name="ping")
        def ping(host: str = "a") -> str:
            return host

        @self.harbor.task(name="add", queue="sums")
        def add(a: int, b: int = 1) -> int:
            return a + b

        self.ping, self.add = ping, add

    def runner(
        self, *, queues: Collection[str] = ("default", "sums"), driver: Any = None, harbor: Harbor | None = None
    ) -> ScheduleRunner:
        """What a worker of this harbor's code fires with."""
        return ScheduleRunner(
            driver or self.driver,
            self.clock,
            Observers((self.events.append,)),
            worker="w",
            queues=queues,
            declared=(harbor or self.harbor).handlers.schedules,
        )

    async def declare(self, harbor: Harbor | None = None) -> None:
        """What a start of this harbor's workers stores."""
        declared = (harbor or self.harbor).handlers.schedules
        await declare(self.driver, declared, self.clock, Observers((self.events.append,)), "w")

    async def fire(self, **options: Any) -> Round:
        """One look of a new worker."""
        return await self.runner(**options).fire_due()

    async def fired_after(self, seconds: float) -> int:
        """How many jobs a new worker makes when this much time has passed."""
        self.clock.advance(seconds)
        return (await self.fire()).fired

    async def jobs(self) -> list[JobInfo]:
        """Every job, in the order of ids."""
        return [info async for info in self.harbor.jobs()]

    async def slots(self) -> list[float]:
        """The seconds since the start of the clock that jobs stand for."""
        return [self.second(info.job.metadata["taskharbor.slot"]) for info in await self.jobs()]

    def second(self, slot: str) -> float:
        from datetime import datetime

        from taskharbor.testing.clock import START

        return (datetime.fromisoformat(slot) - START).total_seconds()

    async def row(self, name: str) -> StoredSchedule:
        (row,) = (await self.driver.schedules(names=[name])).items
        return row

    async def schedule(self, name: str) -> Schedule:
        return read_body((await self.row(name)).body)

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]
