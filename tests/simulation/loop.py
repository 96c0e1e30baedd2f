"""An event loop on virtual time with a seeded schedule. No selector, no threads, no real clock.

When nothing is ready, time jumps to the next timer; nothing ready and no timer is a `Deadlock`, too many steps a
`Livelock`. Callbacks belong to simulated processes by a context variable that tasks inherit: what belongs to a dead
process never runs again, and what belongs to a frozen one waits until it thaws.

What code may rely on, and what the seed therefore leaves alone: within a process `call_soon` is first in, first out
(asyncio documents it). Between processes there is no order, so a turn's callbacks are interleaved at random. With
`shuffle` the steps of different *tasks* of one process are interleaved, too: no program may depend on which of two
tasks that are ready runs first, and a loop with real I/O gives them any order.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, Protocol


class Belongs(Protocol):
    """What the loop needs of a simulated process."""

    dead: bool
    frozen: bool
    parked: list[asyncio.Handle]


OWNER: ContextVar[Any] = ContextVar("owner", default=None)
"""The simulated process that the running code belongs to; None: the world itself."""


class Stuck(Exception):
    """The simulation cannot go on."""


class Deadlock(Stuck):
    """Nothing is ready and no timer is set, so nothing will ever happen again."""


class Livelock(Stuck):
    """The step budget is used up: something repeats without end."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`time()` is virtual and starts at 0."""

    def __init__(self, rng: random.Random, *, shuffle: bool, steps: int) -> None:
        super().__init__()
        self._rng = rng
        self._shuffle = shuffle
        self._limit = steps
        self._elapsed = 0.0
        self.steps = 0
        self.tasks: list[tuple[asyncio.Task[Any], Any]] = []  # with the process that each belongs to

    def time(self) -> float:
        return self._elapsed

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        # Kept: a task of a dead process must not be collected, for its `finally` blocks would run.
        context = options.get("context")
        task = super().create_task(coro, **options)
        self.tasks.append((task, OWNER.get() if context is None else context.get(OWNER)))
        return task

    def _write_to_self(self) -> None:
        """call_soon_threadsafe needs no wake-up: there is one thread."""

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]  # private to asyncio
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # private to asyncio
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise Deadlock(f"nothing can happen any more\n{self.describe()}")
            self._elapsed = max(self._elapsed, timers[0].when())
        while timers and timers[0].when() <= self._elapsed:
            ready.append(heapq.heappop(timers))
        turn = list(ready)
        ready.clear()
        if len(turn) > 1:
            turn = self._interleave(turn)
        self.steps += len(turn)
        if self.steps > self._limit:
            raise Livelock(f"{self._limit} steps, and no end\n{self.describe()}")
        for handle in turn:
            if handle.cancelled():
                continue
            owner: Belongs | None = _owner(handle)
            if owner is not None:
                if owner.dead:
                    continue
                if owner.frozen:
                    owner.parked.append(handle)
                    continue
            handle._run()

    def _interleave(self, turn: list[asyncio.Handle]) -> list[asyncio.Handle]:
        """The turn in another order: that of each process's callbacks (or of each task's steps) stays as it is."""
        lanes: dict[Any, deque[asyncio.Handle]] = {}
        order: list[Any] = []
        for handle in turn:
            lane = _owner(handle)
            if self._shuffle:
                stepping = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # private to asyncio
                lane = stepping if isinstance(stepping, asyncio.Task) else lane
            lanes.setdefault(lane, deque()).append(handle)
            order.append(lane)
        if len(lanes) == 1:
            return turn
        self._rng.shuffle(order)
        return [lanes[lane].popleft() for lane in order]

    def thaw(self, process: Belongs) -> None:
        """Let a frozen process go on: whatever it missed runs now."""
        parked, process.parked, process.frozen = process.parked, [], False
        self._ready.extend(parked)  # type: ignore[attr-defined]  # private to asyncio

    def describe(self) -> str:
        """What waits for what, for the report of a run that is stuck."""
        lines = [f"at {self._elapsed:.3f} s, after {self.steps} steps, these tasks wait:"]
        for task, owner in self.tasks:
            if not task.done() and (owner is None or not owner.dead):
                lines.append(f"  {owner or 'world'}: {task.get_name()} in {_where(task.get_coro())}")
        return "\n".join(lines[:60])

    def dispose(self) -> None:
        """End what is left without letting it run: close every coroutine, however often it catches that."""
        for task, _ in self.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # private to asyncio
                _close(task.get_coro())
        self.tasks.clear()
        self.close()


def _owner(handle: asyncio.Handle) -> Any:
    return handle._context.get(OWNER)  # type: ignore[attr-defined]  # private to asyncio


def _close(coroutine: Any) -> None:
    for _ in range(50):
        try:
            coroutine.close()
            return
        except BaseException:  # it awaited again, or its `finally` failed on a loop that does not run
            continue


def _where(coroutine: Coroutine[Any, Any, Any] | Any) -> str:
    """The line at which a chain of coroutines is suspended."""
    frames = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None:
            frames.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None)
    return " > ".join(frames) or "?"
