"""A simulated process: the tasks that belong to it, and the clocks of the machine it runs on.

    running ──freeze──► frozen ──thaw──► running          any ──kill──► dead (for good; a restart is another process)

Its time of day may be wrong, drift and be stepped; its monotonic clock drifts with it and is never stepped.
"""

import asyncio
import contextvars
from collections.abc import Coroutine
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from taskharbor.model import clock as clock_module
from taskharbor.model import ids as ids_module
from taskharbor.model.times import truncate
from taskharbor.worker import settings as settings_module
from tests.simulation.loop import OWNER, VirtualLoop

START = datetime(2030, 1, 1, tzinfo=UTC)


class Process:
    """One process. Its troubles are noted, because they explain what follows."""

    def __init__(self, name: str, loop: VirtualLoop, *, offset: float = 0.0, drift: float = 0.0) -> None:
        self.name = name
        self.loop = loop
        self.offset = offset
        self.drift = drift
        self.dead = False
        self.frozen = False
        self.stopping = False
        self.parked: list[asyncio.Handle] = []
        self.died = asyncio.Event()
        self.killed_by = ""
        self.died_at: datetime | None = None  # by its own clock, or the store's
        self.killer: Any = None  # the delivery of the poison that took it down
        self.stored = 0  # how many jobs it has stored
        self.own_clock = False  # whether it follows its machine's clock, not the store's
        self.types: tuple[str, ...] = ()  # the job types a worker knows
        self.troubles: list[tuple[float, str]] = []  # when, what
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)

    def __repr__(self) -> str:
        return self.name

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine in this process."""
        return self.loop.create_task(coroutine, name=name, context=self.context)

    def note(self, trouble: str) -> None:
        self.troubles.append((self.loop.time(), trouble))

    def suffered(self, *kinds: str, since: float) -> int:
        """The number of these troubles since a moment."""
        return sum(1 for when, kind in self.troubles if when >= since and kind in kinds)

    def kill(self, cause: str) -> None:
        """From now on nothing of it runs. The callback that is running now goes on to its next await."""
        if not self.dead:
            self.dead = True
            self.killed_by = cause
            self.died_at = now_of(self)
            self.note(f"killed by {cause}")
            self.parked.clear()
            self.died.set()

    def freeze(self, seconds: float) -> None:
        """Stop it as SIGSTOP does, and let it go on later."""
        if not self.dead and not self.frozen:
            self.frozen = True
            self.note("frozen")
            self.loop.call_later(seconds, self._thaw, context=contextvars.Context())

    def _thaw(self) -> None:
        if not self.dead and self.frozen:
            self.note("thawed")
            self.loop.thaw(self)

    def step_clock(self, seconds: float) -> None:
        """Set its time of day, as an administrator or a bad time server does."""
        self.offset += seconds
        self.note("clock stepped")

    def wall(self) -> float:
        """Its time of day, as seconds after START."""
        return self.loop.time() * (1 + self.drift) + self.offset

    def monotonic(self) -> float:
        return 1000.0 + self.loop.time() * (1 + self.drift)


def now_of(process: Process) -> datetime:
    """The present as a process sees it: by its own clock, or by the store's."""
    return START + timedelta(seconds=process.wall() if process.own_clock else process.loop.time())


class OwnClock:
    """A clock that follows its machine, for a user who passes a clock instead of following the store's."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> datetime:
        return truncate(START + timedelta(seconds=self._process.wall()))

    def monotonic(self) -> float:
        return self._process.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class _MachineTime:
    """Stands in for the module `time` where core reads it: the clock of the machine that the caller runs on."""

    def time(self) -> float:
        process: Process | None = OWNER.get()
        return START.timestamp() + (process.wall() if process is not None else asyncio.get_running_loop().time())

    def monotonic(self) -> float:
        process: Process | None = OWNER.get()
        return process.monotonic() if process is not None else asyncio.get_running_loop().time()


class _Random:
    """Stands in for `secrets` and `os.urandom`: derived from the seed, so that a run can be repeated exactly."""

    def __init__(self, rng: Any) -> None:
        self._rng = rng

    def randbits(self, bits: int) -> int:
        return int(self._rng.getrandbits(bits))

    def token_hex(self, number: int) -> str:
        return bytes(self._rng.randbytes(number)).hex()

    def urandom(self, number: int) -> bytes:
        return bytes(self._rng.randbytes(number))


class _Os:
    """Stands in for `os` where core reads random bytes or the process id."""

    def __init__(self, rng: Any) -> None:
        self._random = _Random(rng)
        self.urandom = self._random.urandom

    def getpid(self) -> int:
        return 1


@contextmanager
def machines(rng: Any) -> Any:
    """For the time of a block core reads the simulation's clock and random source."""
    source = ids_module.IdSource.__new__(ids_module.IdSource)
    source._begin()
    with ExitStack() as stack:
        stack.enter_context(patch.object(clock_module, "time", _MachineTime()))
        stack.enter_context(patch.object(ids_module, "_SOURCE", source))
        stack.enter_context(patch.object(ids_module, "secrets", _Random(rng)))
        stack.enter_context(patch.object(ids_module, "os", _Os(rng)))
        stack.enter_context(patch.object(settings_module, "secrets", _Random(rng)))
        stack.enter_context(patch.object(settings_module, "os", _Os(rng)))
        yield
