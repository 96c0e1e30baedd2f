"""What waits, on the pages: in the order in which workers take it, and never hidden when the store cannot tell."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import Driver, JobRecord, Page, QueueHead
from taskharbor.drivers.memory import MemoryDriver
from tests.dashboard.site import NOW, Site, visit


def shown_ids(page: str) -> list[str]:
    """The jobs that a page links to, in their order."""
    return list(dict.fromkeys(re.findall(r'href="/jobs/(line-\d+)"', page)))


def test_next_in_line_is_what_a_worker_takes():
    async def look(site: Site) -> None:
        jobs = [JobRecord(id=f"line-{n}", type="t", queue="line", priority=p) for n, p in enumerate((0, 0, 0, 50, 100))]
        await site.driver.enqueue(jobs, NOW)
        page = (await site.get("/queues/line")).text
        assert shown_ids(page) == ["line-4", "line-3", "line-0", "line-1", "line-2"]

    visit(look, played=False)


def test_full_groups_are_not_nothing():
    async def look(site: Site) -> None:
        jobs = [JobRecord(id=f"line-{n}", type="t", queue="line", group="g") for n in range(3)]
        await site.driver.enqueue(jobs, NOW)
        await site.driver.reserve(["line"], NOW, timedelta(minutes=1), 1)
        page = (await site.get("/queues/line")).text
        assert "No job may start now: the groups of those that are ready are full." in page
        assert "No job is ready." not in page

    visit(look, played=False)


def test_what_is_next_is_not_held_up_by_its_group():
    """The job that set the limit of the group runs, and no other says what it is."""

    async def look(site: Site) -> None:
        jobs = [JobRecord(id=f"line-{n}", type="t", queue="line", group="g", group_limit=2 * (n == 0)) for n in (0, 1)]
        await site.driver.enqueue(jobs, NOW)
        await site.driver.reserve(["line"], NOW, timedelta(minutes=1), 1)
        page = (await site.get("/queues/line")).text
        assert shown_ids(page) == ["line-0", "line-1"]
        assert "group full" not in page

    visit(look, played=False)


def test_a_page_that_is_empty_and_not_the_last_does_not_say_that_nothing_runs(monkeypatch: pytest.MonkeyPatch):
    async def empty(self: Any, now: datetime, wanted: Any) -> Page:
        return Page((), "more")

    async def look(site: Site) -> None:
        await site.driver.enqueue([JobRecord(id="line-0", type="t", queue="line")], NOW)
        await site.driver.reserve(["line"], NOW, timedelta(minutes=1), 1)
        monkeypatch.setattr(MemoryDriver, "list_jobs", empty)
        page = (await site.get("/queues/line")).text
        assert "Not shown: too many jobs run in this store to find those of this queue." in page
        assert "Nothing runs in this queue." not in page
        assert "Nothing runs in this queue." in (await site.get("/queues/other")).text

    visit(look, played=False)


@pytest.mark.parametrize("lacks_the_verb", [False, True])
def test_what_is_not_known_is_a_question_mark(monkeypatch: pytest.MonkeyPatch, lacks_the_verb: bool):
    """On every page; also beside a driver that has no heads."""

    async def unknown(self: Any, queues: list[str], now: datetime, n: int = 0) -> list[QueueHead]:
        return [QueueHead(queue, oldest_known=False, next_known=n == 0) for queue in queues]

    async def look(site: Site) -> None:
        await site.driver.enqueue([JobRecord(id="line-0", type="t", queue="line")], NOW)
        monkeypatch.setattr(MemoryDriver, "heads", Driver.heads if lacks_the_verb else unknown)
        page = (await site.get("/queues/line")).text
        assert "Not known: too many jobs became due" in page
        assert "No job is ready." not in page
        assert re.search(r"oldest wait</span><strong>\?<", page)
        assert re.search(r'data-label="oldest wait">\?<', (await site.get("/queues")).text)
        assert re.search(r"oldest wait</span><strong>\?<", (await site.get("/")).text)
        row = next(row for row in (await site.json("/queues"))["queues"] if row["queue"] == "line")
        assert (row["oldest_ready_at"], row["oldest_known"]) == (None, False)

    visit(look, played=False)
