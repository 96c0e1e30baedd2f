"""What a page costs the store: calls and rows under a written ceiling, whatever the store holds; nothing unseen.

In `make full` the store holds a million ready jobs, as many done ones and a hundred thousand dead ones, on every kind
of store; and what the store itself does for a page is counted, too: steps of SQLite's machine, pages that PostgreSQL
touches, commands that Redis runs. No time is asserted: pages get all the time they need.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from taskharbor.dashboard.sampler import Sampler
from taskharbor.drivers import Driver, JobRecord, WrappedDriver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.ops import operator
from tests import lanes
from tests.dashboard.crowd import fill, fill_widely
from tests.dashboard.site import NOW, Site, visit
from tests.dashboard.store_work import STORES, StoreWork, opened

VERBS = (
    "inspect", "list", "counts", "queues", "is_paused", "workers", "flow", "flows", "figures", "audit", "results",
    "server_time", "schedules", "due_schedules", "upcoming",
)  # fmt: skip

# Calls and rows of each page, with the scene's seven queues, three workers and kinds of dead jobs, and three queues of
# the crowd. A row is a job, a flow, an entry, a schedule, a name, a count, or a minute of figures.
CEILINGS = {
    "/": (45, 2_500),
    "/?span=72h": (45, 9_000),
    "/queues": (30, 250),
    "/queues/mail": (25, 350),
    "/jobs": (30, 200),
    "/jobs?state=dlq": (10, 200),
    "/jobs?state=dlq&error=none": (15, 200),
    "/jobs/{dead}": (20, 60),
    "/jobs/{ready}": (20, 300),
    "/dead": (20, 10_150),
    "/flows": (10, 120),
    "/flows/{flow}": (10, 60),
    "/schedules": (3, 110),
    "/schedules/nightly": (3, 5),
    "/workers": (5, 220),
    "/operations": (25, 200),
    "/operations/new?state=dlq": (30, 10_150),
    "/about": (40, 600),
}
ROUND = (8, 100)  # of the sampler

# The same beside a thousand queues, ten thousand groups and ten thousand schedules: names and counts of all queues are
# read, and more for those that have a row.
WIDE_CEILINGS = {
    "/": (130, 16_000),
    "/?span=72h": (130, 16_000),
    "/queues": (220, 13_000),
    "/queues?cursor=wide-0500": (220, 13_000),
    "/queues/wide-0001": (25, 12_000),
    "/jobs": (45, 5_000),
    "/jobs?queue=grouped": (45, 5_000),
    "/schedules": (3, 110),
    "/schedules?cursor={cursor}": (3, 110),
    "/schedules/wide-00001": (3, 5),
    "/workers": (5, 220),
    "/about": (80, 5_000),
}
WIDE_ROUND = (8, 8_000)

# What the store does for one page: hundreds of steps of SQLite's machine, pages of PostgreSQL, commands of Redis. Some
# pages look at ten thousand dead jobs. A search that finds nothing looks at a hundred thousand, if it is not stopped.
WORK = {
    "sqlite": {"usual": 12_000, "ten thousand": 20_000, "search": 60_000},
    "postgres": {"usual": 8_000, "ten thousand": 80_000, "search": 20_000},
    "redis": {"usual": 3_000, "ten thousand": 15_000, "search": 120_000},
}
KINDS = {"/dead": "ten thousand", "/operations/new?state=dlq": "ten thousand", "/jobs?state=dlq&error=none": "search"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page may take as long as it likes: the machine may be busy, and what is counted is not time."""
    read_as = operator.read_as
    monkeypatch.setattr(operator, "read_as", lambda harbor, access, read, timeout: read_as(harbor, access, read, 600.0))
    monkeypatch.setattr("taskharbor.store.pages.FILL_S", 600.0)


class Counted(WrappedDriver):
    """Any driver, with its reading calls counted."""

    def __init__(self, inner: Driver) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        self.rows = 0

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        if verb not in VERBS:
            return await call()
        self.calls[verb] += 1
        result = await call()
        self.rows += rows_of(result)
        return result

    def take(self) -> tuple[int, int]:
        """What was counted since the last time."""
        calls, rows = sum(self.calls.values()) - self.calls["server_time"], self.rows
        self.calls.clear()
        self.rows = 0
        return calls, rows


def rows_of(result: Any) -> int:
    """How many things a call returned."""
    if hasattr(result, "cursor"):
        return len(result.items)
    if isinstance(result, dict):
        return sum(len(each) if isinstance(each, dict) else 1 for each in result.values())
    return len(result) if isinstance(result, list | tuple) else 1


async def check(site: Site, counted: Counted, ceilings: dict[str, tuple[int, int]], **names: str) -> None:
    """Each page, read once."""
    for path, allowed in ceilings.items():
        counted.take()
        reply = await site.get(path.format(**vars(site.scene), **names))
        assert reply.status_code == 200, (path, reply.text[-300:])
        check_one(path, counted.take(), allowed)


def check_one(what: str, found: tuple[int, int], allowed: tuple[int, int]) -> None:
    print(f"{what:32} {found[0]} calls of {allowed[0]}, {found[1]} rows of {allowed[1]}")
    assert found[0] <= allowed[0], f"{what}: {found[0]} calls, allowed are {allowed[0]}"
    assert found[1] <= allowed[1], f"{what}: {found[1]} rows, allowed are {allowed[1]}"


async def check_round(site: Site, counted: Counted, allowed: tuple[int, int]) -> None:
    """One look of the sampler."""
    sampler = Sampler(site.harbor)
    counted.take()
    await sampler._round()
    assert not sampler._problem
    check_one("a round of the sampler", counted.take(), allowed)


def test_every_page_stays_under_its_ceiling():
    counted = Counted(MemoryDriver())

    async def look(site: Site) -> None:
        many = [JobRecord(id=f"many-{number:05}", type="t", queue="bulk") for number in range(2_000)]
        await site.driver.enqueue(many, NOW)
        await check(site, counted, CEILINGS)
        await check_round(site, counted, ROUND)

    visit(look, driver=counted)


@asynccontextmanager
async def crowded(work: StoreWork, million: int) -> AsyncIterator[None]:
    """The scene beside a crowd, in a store that is measured."""
    site = Site(work.driver())
    await site.open()
    work.scene = site.scene
    await fill(site.driver, million, work.place)
    await site.harbor.aclose()
    yield


@pytest.mark.left_to("full")
@pytest.mark.timeout(3600)  # to fill a Redis through its driver takes minutes, on a busy machine many
@pytest.mark.parametrize("kind", STORES)
def test_every_page_stays_under_its_ceiling_with_millions_of_jobs(tmp_path: Path, kind: str):
    million = lanes.figure(test=20_000, full=1_000_000)

    async def look() -> None:
        async with opened(kind, tmp_path) as work, crowded(work, million):
            for path, allowed in CEILINGS.items():
                async with work.visit(Counted) as (site, counted):
                    counted.take()
                    reply = await site.get(path.format(**vars(site.scene)))
                    assert reply.status_code == 200, (path, reply.text[-300:])
                    check_one(path, counted.take(), allowed)
                done = await work.done()
                print(f"{path:32} {kind}: {done}")
                if kind in WORK:
                    most = WORK[kind][KINDS.get(path, "usual")]
                    assert done <= most, f"{path}: {done} on {kind}, allowed are {most}"
            async with work.visit(Counted) as (site, counted):
                await check_round(site, counted, ROUND)
            done = await work.done()
            print(f"{'a round of the sampler':32} {kind}: {done}")
            assert kind not in WORK or done <= WORK[kind]["usual"]

    asyncio.run(look())


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "memory" else pytest.mark.left_to("full")) for kind in STORES]
)
def test_every_page_stays_under_its_ceiling_beside_a_thousand_queues(tmp_path: Path, kind: str):
    queues = lanes.figure(test=300, full=1_000)
    many = lanes.figure(test=500, full=10_000)

    async def look() -> None:
        async with opened(kind, tmp_path) as work:
            counted = Counted(work.driver())
            site = Site(counted)
            await site.open()
            await fill_widely(site.harbor, queues=queues, groups=many, schedules=many)
            cursor = (await site.json("/schedules"))["cursor"]
            await check(site, counted, WIDE_CEILINGS, cursor=cursor)
            await check_round(site, counted, WIDE_ROUND)
            page = (await site.get("/")).text
            assert "All " in page
            assert "busiest queues" in (await site.get("/?span=72h")).text
            await site.harbor.aclose()

    asyncio.run(look())


def test_without_a_viewer_there_is_no_call():
    counted = Counted(MemoryDriver())

    async def wait(site: Site) -> None:
        await site.get("/")
        counted.take()
        for _ in range(60):
            site.clock.advance(1)
            await asyncio.sleep(0)
        assert counted.take() == (0, 0)

    visit(wait, driver=counted)
