"""What a page costs the store: calls and rows under a written ceiling, whatever the number of jobs; none unseen."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import JobRecord
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.sqlite import SqliteDriver
from taskharbor.model.outcome import Ack, Fail, Outcome
from tests import lanes
from tests.dashboard.site import NOW, Site, visit

VERBS = (
    "inspect", "list", "counts", "queues", "is_paused", "workers", "flow", "flows", "figures", "audit", "results",
    "server_time", "schedules", "upcoming",
)  # fmt: skip

BATCH = 1_000

# Calls and rows of each page, with the seven queues, three workers and the kinds of dead jobs of the scene. A row is a
# job, a flow, an entry, or a minute of figures.
CEILINGS = {
    "/": (40, 1_000),
    "/?span=72h": (40, 9_000),
    "/queues": (30, 100),
    "/queues/mail": (25, 250),
    "/jobs": (30, 120),
    "/jobs?state=dlq": (10, 120),
    "/jobs/{dead}": (20, 50),
    "/jobs/{ready}": (20, 250),
    "/dead": (20, 10_100),
    "/flows": (5, 60),
    "/flows/{flow}": (10, 60),
    "/workers": (5, 210),
    "/operations": (25, 200),
    "/operations/new?state=dlq": (30, 10_100),
    "/about": (40, 500),
}


class Counted:
    """Any driver, with its reading calls counted."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in VERBS:
            return found

        async def counted(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            result = await found(*args, **options)
            self.rows += len(getattr(result, "items", None) or ()) if hasattr(result, "cursor") else 1
            if name == "figures":
                self.rows += len(result)
            return result

        return counted

    def take(self) -> tuple[int, int]:
        """What was counted since the last time."""
        calls, rows = sum(self.calls.values()) - self.calls["server_time"], self.rows
        self.calls.clear()
        self.rows = 0
        return calls, rows


async def check_ceilings(site: Site, counted: Counted) -> None:
    for path, (calls, rows) in CEILINGS.items():
        counted.take()
        reply = await site.get(path.format(**vars(site.scene)))
        assert reply.status_code == 200, (path, reply.text[-300:])
        found = counted.take()
        assert found[0] <= calls, f"{path}: {found[0]} calls, allowed are {calls}"
        assert found[1] <= rows, f"{path}: {found[1]} rows, allowed are {rows}"


def test_every_page_stays_under_its_ceiling():
    counted = Counted(MemoryDriver())

    async def look(site: Site) -> None:
        many = [JobRecord(id=f"many-{number:05}", type="t", queue="bulk") for number in range(2_000)]
        await site.driver.enqueue(many, NOW)
        await check_ceilings(site, counted)

    visit(look, driver=counted)


async def fill(driver: Any, ready: int, done: int, dead: int) -> None:
    """Jobs by the million: ready ones, done ones, and dead ones of a few kinds."""
    lease = timedelta(hours=1)
    for start in range(0, ready, BATCH):
        jobs = [JobRecord(id=f"r{number:08}", type="t", queue="bulk") for number in range(start, start + BATCH)]
        await driver.enqueue(jobs, NOW)
    for name, total in (("done", done), ("dead", dead)):
        for start in range(0, total, BATCH):
            jobs = [JobRecord(id=f"{name}{number:08}", type="t", queue=name) for number in range(start, start + BATCH)]
            await driver.enqueue(jobs, NOW)
            reserved = await driver.reserve((name,), NOW, lease, BATCH, "w")
            outcomes: list[Outcome] = [
                Ack(each.lease)
                if name == "done"
                else Fail(each.lease, "x", 1, NOW, "boom", error_class="E", fingerprint=f"f{place % 5}")
                for place, each in enumerate(reserved)
            ]
            await driver.settle(outcomes, NOW)


@pytest.mark.left_to("chaos")
@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_every_page_stays_under_its_ceiling_with_millions_of_jobs(tmp_path: Path, kind: str):
    counted = Counted(SqliteDriver(f"sqlite:///{tmp_path}/jobs.db") if kind == "sqlite" else MemoryDriver())
    million = lanes.figure(test=20_000, chaos=1_000_000)

    async def look(site: Site) -> None:
        await fill(site.driver, million, million, million // 10)
        await check_ceilings(site, counted)

    visit(look, driver=counted)


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
