"""What a call costs the server: the commands it runs, also inside scripts, its processor time, and its longest script.

A row names a call and what else the store holds. It is measured with little else and with much. The
rows are in the `rows_*.py` of this folder, each with a list `ROWS`; `test_cost_redis.py` finds them.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from taskharbor.drivers import JobRecord, Lease, Reserved
from taskharbor.drivers.redis import RedisDriver
from taskharbor.model.times import from_ms
from tests import lanes
from tests.servers.redis import Server

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "driver-redis.md"
START = 1_800_000_000_000
LEASE = timedelta(seconds=30)
OWN = ("info", "config", "ping", "hello", "client", "select", "subscribe")  # of the meter, of connections
SEARCHING = {"linsert", "lpos", "keys", "scan", "sort"}  # each of them reads a whole key, so their number says little
MANY = lanes.figure(test=20_000, full=200_000)


@dataclass
class Cost:
    """What the server did."""

    commands: int = 0
    micros: float = 0.0
    """Of its main thread's processor time."""
    scripts: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """The same of each script, by its name and by about how many commands it ran."""
    names: dict[str, int] = field(default_factory=dict)
    most: int = 0
    """The commands of the script that ran most."""

    @property
    def longest(self) -> float:
        """The same of the longest script. Those of one name with about as many commands do the same work, so their
        median counts: on a busy machine one of hundreds takes three times as long. `most` holds what one may do. (The
        slow log would count the time as well in which the server waits for a core.)"""
        return max((statistics.median(found) for found in self.scripts.values()), default=0.0)

    def of_one_script(self) -> Cost:
        """The same for one of its scripts, on average."""
        scripts = max(1, self.names.get("evalsha", 0) + self.names.get("eval", 0))
        return Cost(-(-self.commands // scripts), self.micros / scripts, self.scripts, self.names, self.most)


class Store:
    """An empty server, a driver on it, and a clock that only `later` moves."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = server.client()
        self.driver = RedisDriver(f"{server.url}?checks=0")
        self.ms = START
        self.made = 0
        self.leases: list[Lease] = []  # for the calls of a row

    @property
    def now(self) -> datetime:
        return from_ms(self.ms)

    def later(self, ms: int = 1) -> datetime:
        self.ms += ms
        return self.now

    def jobs(self, count: int, **fields: Any) -> list[JobRecord]:
        self.made += count
        return [
            JobRecord(id=f"j{number:09}", type="t", **fields) for number in range(self.made - count + 1, self.made + 1)
        ]

    async def put(self, count: int, now: datetime | None = None, **fields: Any) -> list[JobRecord]:
        """Store `count` jobs, some at a time."""
        stored = []
        for first in range(0, count, 1000):
            jobs = self.jobs(min(1000, count - first), **fields)
            await self.driver.enqueue(jobs, now or self.now)
            stored += jobs
        return stored

    async def take(self, limit: int, queues: Sequence[str] = ("default",), lease: timedelta = LEASE) -> list[Reserved]:
        return await self.driver.reserve(list(queues), self.now, lease, limit)

    @contextmanager
    def metered(self) -> Iterator[Cost]:
        """The cost of a block, in which scripts run one after the other."""
        cost, one_at_a_time = Cost(), asyncio.Lock()
        endpoint: Any = self.driver.store.endpoint
        run = endpoint.run

        async def measured_run(args: Any, **how: Any) -> Any:
            async with one_at_a_time:
                micros, commands = self._spent()
                reply = await run(args, **how)
                micros_then, commands_then = self._spent()
            cost.most = max(cost.most, commands_then - commands)
            work = args.script, (commands_then - commands).bit_length()
            cost.scripts.setdefault(work, []).append(micros_then - micros)
            return reply

        self.client.config_resetstat()
        endpoint.run = measured_run
        before, _ = self._spent()
        try:
            yield cost
        finally:
            del endpoint.run
        cost.micros = self._spent()[0] - before
        for name, numbers in self.client.info("commandstats").items():
            word = name.removeprefix("cmdstat_")
            if not word.startswith(OWN):
                cost.names[word] = numbers["calls"]
        cost.commands = sum(cost.names.values())

    def _spent(self) -> tuple[float, int]:
        """Microseconds of the main thread's processor time so far, and commands, also those inside scripts."""
        said = self.client.info("cpu", "stats")
        micros = 1e6 * (said["used_cpu_user_main_thread"] + said["used_cpu_sys_main_thread"])
        return micros, said["total_commands_processed"]


Fill = Callable[[Store, int], Awaitable[object]]
Call = Callable[[Store], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """One line of the table in docs/driver-redis.md, which has the same name and gives the bound."""

    name: str
    fill: Fill
    """Stores what else is there, of the given size."""
    call: Call
    """What is measured, `times` times in a row."""
    small: int = 100
    large: int = MANY
    times: int = 5
    warm: Call | None = None
    """Called once before, not measured. Without one it is `call`."""
    searches: bool = False
    """It may run commands that search a key, and then takes longer with much, within its bound. Say why."""
    sliced: bool = False
    """It may run more scripts with much. Then the cost of one script is compared."""


def rows() -> list[Row]:
    """All of them."""
    names = sorted(path.stem for path in HERE.glob("rows_*.py"))
    return [row for name in names for row in importlib.import_module(f"tests.cost.{name}").ROWS]


def bounds() -> dict[str, float]:
    """The table: name of a row → milliseconds."""
    text = PAGE.read_text(encoding="utf-8").partition("## What a call costs")[2].partition("\n## ")[0]
    return {name.strip(): float(number) for name, number in re.findall(r"^\| (.+?) \|.*\| ([\d.]+) \|$", text, re.M)}


async def measured(server: Server, row: Row, size: int) -> list[Cost]:
    """The cost of each call of the row in a store of this size."""
    server.empty()
    store = Store(server)
    await store.driver.open()
    keeper: Any = store.driver.opened.housekeeper
    keeper.serve = lambda *_: None  # what a worker does beside its reserves has tests of its own
    costs = []
    try:
        await row.fill(store, size)
        await (row.warm or row.call)(store)
        for _ in range(row.times):
            with store.metered() as cost:
                await row.call(store)
            costs.append(cost)
    finally:
        await store.driver.close()
        store.client.close()
    return costs
