"""The services of a worker from one start to one stop: wired together, started and stopped in order.

    fetcher ─► executor ─► outcome queue ─► settler      beside them: heart, deadlines, upkeep, operations,
                                                          scheduler

    start: heart ► settler ► deadlines ► upkeep ► operations ► scheduler ► fetcher
    stop:  executor (grace, then give back), while a last reserve may be under way ► fetcher ► operations ► scheduler
           ► settler ► upkeep ► heart

`held` has every delivery from its reserve until its outcome is recorded or refused. The heart renews what is in there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from taskharbor.drivers.base import Driver, SqlDriver
from taskharbor.model.clock import Clock
from taskharbor.model.codec import Codec
from taskharbor.model.errors import TaskHarborError
from taskharbor.model.events import Observers, WorkerStarted, WorkerStopped, WorkerStopping
from taskharbor.policy.retry import RetryPolicy
from taskharbor.tasks.flow_metadata import JOIN_TYPE, LAUNCH_TYPE
from taskharbor.tasks.handler import HandlerRegistry
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.executor import Executor
from taskharbor.worker.fetcher import Fetcher
from taskharbor.worker.figures import FigureCounter
from taskharbor.worker.heart import Heart, LoopHeart, LoopWatch, ThreadHeart
from taskharbor.worker.invocation import Surroundings
from taskharbor.worker.losses import CutOff, LossDriver
from taskharbor.worker.operations import Operations
from taskharbor.worker.outage import Outage
from taskharbor.worker.outcome_queue import OutcomeQueue
from taskharbor.worker.progress_notes import ProgressNotes
from taskharbor.worker.renewal_gate import RenewalGate
from taskharbor.worker.result_binder import ResultBinder
from taskharbor.worker.scheduler import Scheduler
from taskharbor.worker.settings import WorkerSettings
from taskharbor.worker.settler import Settler
from taskharbor.worker.stop_budget import StopBudget
from taskharbor.worker.upkeep import Upkeep

if TYPE_CHECKING:
    from taskharbor.worker.supervisor.child_channel import ChildChannel


class Services:
    """Everything that runs jobs. Made on the loop it runs on, for one start and one stop."""

    def __init__(
        self,
        *,
        settings: WorkerSettings,
        driver: Driver,
        handlers: HandlerRegistry,
        around: Surroundings,
        retry: RetryPolicy,
        codec: Codec,
        clock: Clock,
        observers: Observers,
        outage: Outage,
        until_empty: bool,
        channel: ChildChannel | None = None,
        declares: bool = True,
        on_declared: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._observers = observers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._held = held = dict[str, Delivery]()  # every delivery of this worker, by the token of its lease
        self._outcomes = OutcomeQueue(max(64, settings.concurrency * 4))
        self._notes = None if "note" in driver.unkept else ProgressNotes(clock)
        figures = FigureCounter(clock, settings.queues)
        self.executor = Executor(
            settings=settings,
            handlers=handlers,
            around=around,
            retry=retry,
            clock=clock,
            observers=observers,
            held=held,
            outcomes=self._outcomes,
            on_refused=self._on_refused,
            transactions=cast(SqlDriver, driver) if hasattr(driver, "transaction") else None,
            notes=self._notes,
            figures=figures,
            knows_leases=channel is None,
        )
        self.capacity = self.executor.capacity
        self._operations = Operations(settings=settings, driver=driver, clock=clock, outage=outage, observers=observers)
        # A process that runs one suspect has to end with it.
        fires = settings.schedules and (channel is None or channel.suspect is None)
        self.scheduler = Scheduler(
            settings=msgspec.structs.replace(settings, schedules=fires),
            driver=driver,
            clock=clock,
            outage=outage,
            observers=observers,
            handlers=handlers,
            declares=declares,
            on_declared=on_declared,
        )
        self._cut_off = CutOff()
        weighing = LossDriver(driver, clock, outage, settings.max_lost, self._cut_off)
        self._renewals = RenewalGate(settings.name, self._on_renewals)
        self.fetcher = Fetcher(
            settings=settings,
            driver=cast(Driver, weighing)
            if channel is None
            else channel.hand_over(weighing, clock, handlers, settings),
            clock=clock,
            outage=outage,
            held=held,
            room=self._room,
            changed=self.capacity.changed,
            start=self.executor.start,
            binder=ResultBinder(
                driver=driver,
                clock=clock,
                handlers=handlers,
                codec=codec,
                outage=outage,
                max_lost=settings.max_lost,
            ),
            is_known=lambda type: type in handlers or type in (JOIN_TYPE, LAUNCH_TYPE),
            until_empty=until_empty,
            before_end=self._before_end,
        )
        self._settler = Settler(
            worker=settings.name,
            driver=driver,
            clock=clock,
            outage=outage,
            observers=observers,
            held=held,
            outcomes=self._outcomes,
            on_settled=self.executor.on_settled,
            on_refused=self._on_refused,
            on_put_off=self.fetcher.expect,
            refuse=self.executor.decider.refuse,
            figures=figures,
            known_types=handlers.types,
        )
        self._upkeep = Upkeep(
            settings=settings,
            driver=driver,
            clock=clock,
            outage=outage,
            capacity=self.capacity,
            cut_off=self._cut_off,
            figures=figures,
        )
        self._services = (
            self._settler,
            self.executor.interrupts.deadlines,
            self._upkeep,
            self._operations,
            self.scheduler,
            self.fetcher,
        )
        self.watch = LoopWatch(settings.name, held, observers)
        self._heart = self._make_heart(driver, clock, outage, channel)

    def _room(self) -> int:
        """How many jobs the fetcher may take: none while too many outcomes wait to be written, nor without renewals."""
        return 0 if self._outcomes.is_full or not self._renewals.is_open else self.executor.room()

    def _on_renewals(self) -> None:  # called in the heart's thread, or in that of the channel
        try:
            self._loop.call_soon_threadsafe(self.capacity.changed.set)
        except RuntimeError:
            pass  # the worker's loop is closed

    def _on_refused(self, delivery: Delivery) -> None:
        self._cut_off.note(delivery, self._clock.now())

    async def _before_end(self) -> bool:
        """Whether something was done that may have brought jobs, for a worker that ends when there are none."""
        ran = await self._operations.run_one()
        return await self.scheduler.run_one() or ran

    async def start(self) -> None:
        """Start serving."""
        await self._heart.start()
        for service in self._services:
            service.start()
        self._observers.emit(WorkerStarted(self._settings.name, self._settings.queues))

    async def until(self, stop: asyncio.Event, retire: asyncio.Event) -> None:
        """Wait for `stop`, for `retire` until nothing is held, or for the fetcher to end by itself.

        Raises what a service has raised.
        """
        stopping, retiring = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(retire.wait())
        try:
            tasks = (stopping, retiring, *(service.task for service in self._services))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for finished in tasks:
                if finished in done:
                    await finished
            if retire.is_set() and not stop.is_set():
                self.fetcher.ask_to_stop()
                await asyncio.wait((self.fetcher.task, stopping), return_when=asyncio.FIRST_COMPLETED)
                await self._until_nothing_is_held(stopping)
        finally:
            stopping.cancel()
            retiring.cancel()

    async def _until_nothing_is_held(self, stop: asyncio.Future[Any]) -> None:
        ends: list[asyncio.Future[Any]] = [service.task for service in self._services if service is not self.fetcher]
        while self._held and not stop.done() and not any(end.done() for end in ends):
            self.capacity.changed.clear()
            change = asyncio.ensure_future(self.capacity.changed.wait())
            await asyncio.wait((change, stop, *ends), return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
        for end in ends:
            if end.done():
                await end

    async def stop(self, hurry: asyncio.Event, budget: StopBudget) -> None:
        """Take no more jobs, finish or give back what is held, and end. Only this order loses nothing.

        Handlers see the stop at once, even while a reserve is under way: the store may take long to answer it.
        """
        self.executor.close()
        self._observers.emit(WorkerStopping(self._settings.name, len(self.capacity.running)))
        self.fetcher.ask_to_stop()
        self._upkeep.ask_to_stop()
        self._operations.ask_to_stop()
        self.scheduler.ask_to_stop()
        steps: tuple[Callable[[], Awaitable[object]], ...] = (
            partial(self.executor.stop, hurry),
            partial(self.fetcher.end, budget, 0.5),  # not all of the time: the settler needs the rest
            partial(self._operations.end, budget, 0.5),
            partial(self.scheduler.end, budget, 0.5),
            partial(self._settler.end, budget, 0.8),
            partial(self._upkeep.end, budget),
            partial(self._heart.stop, budget),
        )
        problems: list[BaseException] = []
        for step in steps:
            try:  # each step is taken, whatever another raises; above all the last, or the heart would renew for ever
                await step()
            except (Exception, asyncio.CancelledError) as error:
                problems.append(error)
        self._observers.emit(WorkerStopped(self._settings.name))
        if problems:
            raise problems[0]

    def _make_heart(
        self, driver: Driver, clock: Clock, outage: Outage, channel: ChildChannel | None
    ) -> LoopHeart | ThreadHeart:
        settings, held, watch, loop = self._settings, self._held, self.watch, self._loop

        def lose(delivery: Delivery, error: TaskHarborError) -> None:
            if not delivery.decided:
                self._cut_off.note(delivery, clock.now())
                self.executor.interrupts.lose(delivery, error)

        def on_lost(delivery: Delivery, error: TaskHarborError) -> None:  # called in the heart's thread
            loop.call_soon_threadsafe(lose, delivery, error)

        heart = Heart(
            clock=clock,
            outage=outage,
            held=held,
            lease=settings.lease,
            every=settings.heartbeat,
            on_lost=on_lost,
            gate=self._renewals,
            notes=self._notes,
        )
        if channel is not None:
            return channel.heart(settings, heart, driver, clock, watch, held, on_lost)
        if settings.heart == "thread":
            return ThreadHeart(heart, driver, clock, watch)
        return LoopHeart(heart, driver)


async def uninterrupted(stopping: asyncio.Task[None], hurry: asyncio.Event) -> None:
    """Wait for the end of a stop. A cancel of the caller only hurries the stop, and is raised afterwards."""
    cancelled = False
    while not stopping.done():
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            cancelled = True
            hurry.set()
    stopping.result()
    if cancelled:
        raise asyncio.CancelledError
