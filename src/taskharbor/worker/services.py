"""The services of a worker from one start to one stop: wired together, started and stopped in order.

    fetcher ─► executor ─► outcome queue ─► settler      beside them: heart, interrupts, upkeep, operations,
                                                          scheduler, and a relay where there is an outbox

    start: heart ► settler ► interrupts ► upkeep ► operations ► scheduler ► fetcher
    stop:  executor (grace, then give back), while a last reserve may be under way ► fetcher ► operations ► scheduler
           ► settler ► upkeep ► heart

`parts` has what they share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from taskharbor.model.errors import TaskHarborError
from taskharbor.model.events import WorkerStarted, WorkerStopped, WorkerStopping
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.executor import Executor
from taskharbor.worker.fetcher import Fetcher
from taskharbor.worker.heart import LoopHeart, LoopWatch, ThreadHeart
from taskharbor.worker.losses import Losses
from taskharbor.worker.operations import Operations
from taskharbor.worker.outage import RenewalGate
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.scheduler import Scheduler
from taskharbor.worker.service import Service
from taskharbor.worker.settler import Settler
from taskharbor.worker.upkeep import Upkeep
from taskharbor.worker.waiting import StopBudget, first_of

if TYPE_CHECKING:
    from taskharbor.worker.outgoing import OutboxRelay
    from taskharbor.worker.supervisor.child_channel import ChildChannel


class Services(Part):
    """Everything that runs jobs. Made on the loop it runs on, for one start and one stop."""

    def __init__(
        self,
        parts: WorkerParts,
        *,
        until_empty: bool,
        channel: ChildChannel | None,
        declares: bool,
        on_declared: Callable[[], None],
    ) -> None:
        super().__init__(parts)
        self._loop = asyncio.get_running_loop()
        losses = Losses(parts)
        self.executor = Executor(parts, losses, knows_leases=channel is None)
        self.capacity = self.executor.capacity
        self._operations = Operations(parts)
        # A process that runs one suspect has to end with it.
        fires = parts.settings.schedules and (channel is None or channel.suspect is None)
        self.scheduler = Scheduler(parts, fires=fires, declares=declares, on_declared=on_declared)
        self._renewals = RenewalGate(parts.settings.name, self._on_renewals)
        self.fetcher = Fetcher(
            parts,
            self.executor,
            reserve=losses.reserve if channel is None else channel.hand_over(parts, losses),
            room=self._room,
            until_empty=until_empty,
            before_end=self._before_end,
        )
        self._settler = Settler(parts, self.executor.decider, self.fetcher.expect)
        self._upkeep = Upkeep(parts, self.capacity, losses, self.executor.check)
        self._services: tuple[Service, ...] = (
            self._settler,
            self.executor.interrupts,
            self._upkeep,
            self._operations,
            self.scheduler,
            self.fetcher,
        )
        self._outgoing: OutboxRelay | None = None
        if parts.outbox is not None:
            from taskharbor.worker.outgoing import OutboxRelay

            self._outgoing = OutboxRelay(parts, parts.outbox)
            self._services = (*self._services, self._outgoing)
        self.watch = LoopWatch(parts)
        self._heart = self._make_heart(parts, channel)

    def _room(self) -> int:
        """How many jobs the fetcher may take: none while too many outcomes wait to be written, nor without renewals."""
        return 0 if self._outcomes.is_full or not self._renewals.is_open else self.executor.room()

    def _on_renewals(self) -> None:  # called in the heart's thread, or in that of the channel
        try:
            self._loop.call_soon_threadsafe(self.capacity.changed.set)
        except RuntimeError:
            pass  # the worker's loop is closed

    async def _before_end(self) -> bool:
        """Whether something was done that may have brought jobs, for a worker that ends when there are none."""
        ran = await self._operations.run_one()
        moved = self._outgoing is not None and await self._outgoing.run_one()
        return await self.scheduler.run_one() or ran or moved

    async def start(self) -> None:
        """Start serving."""
        await self._heart.start()
        for service in self._services:
            service.start()
        self._observers.emit(WorkerStarted(self._worker, self._settings.queues))

    async def until(self, stop: asyncio.Event, retire: asyncio.Event) -> None:
        """Wait for `stop`, for `retire` until nothing is held, or for the fetcher to end by itself.

        Raises what a service has raised.
        """
        ends = [service.task for service in self._services]
        while not (stop.is_set() or retire.is_set() or any(end.done() for end in ends)):
            await first_of(stop.wait(), retire.wait(), *ends)  # a handler may have cancelled what waits for these
        await _raise(ends)
        if retire.is_set() and not stop.is_set():
            self.fetcher.ask_to_stop()
            await first_of(self.fetcher.task, stop.wait())
            ends.remove(self.fetcher.task)
            while self._held and not stop.is_set() and not any(end.done() for end in ends):
                self.capacity.changed.clear()
                await first_of(self.capacity.changed.wait(), stop.wait(), *ends)
            await _raise(ends)

    async def stop(self, hurry: asyncio.Event, budget: StopBudget) -> None:
        """Take no more jobs, finish or give back what is held, and end. Only this order loses nothing.

        Handlers see the stop at once, even while a reserve is under way: the store may take long to answer it.
        """
        self.executor.close()
        self._observers.emit(WorkerStopping(self._worker, len(self.capacity.running)))
        self.fetcher.ask_to_stop()
        self._upkeep.ask_to_stop()
        self._operations.ask_to_stop()
        self.scheduler.ask_to_stop()
        if self._outgoing is not None:
            self._outgoing.ask_to_stop()
        steps: tuple[Callable[[], Awaitable[object]], ...] = (
            partial(self.executor.stop, hurry),
            partial(self.fetcher.end, budget, 0.5),  # not all of the time: the settler needs the rest
            partial(self._operations.end, budget, 0.5),
            partial(self.scheduler.end, budget, 0.5),
            *(() if self._outgoing is None else (partial(self._outgoing.end, budget, 0.5),)),
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
        self._observers.emit(WorkerStopped(self._worker))
        if problems:
            raise problems[0]

    def _make_heart(self, parts: WorkerParts, channel: ChildChannel | None) -> LoopHeart | ThreadHeart:
        gate = self._renewals
        loop, lose = self._loop, self.executor.interrupts.lose

        def on_lost(delivery: Delivery, error: TaskHarborError) -> None:  # called in the heart's thread
            loop.call_soon_threadsafe(lose, delivery, error)

        if channel is not None:
            return channel.heart(parts, gate, on_lost, self.watch)
        if parts.settings.heart == "thread":
            return ThreadHeart(parts, gate, on_lost, self.watch)
        return LoopHeart(parts, gate, on_lost)


async def _raise(ends: Iterable[asyncio.Task[None]]) -> None:
    for end in ends:
        if end.done():
            await end


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
