"""A page that takes too long to read says that, and shows what was read: a slow store is up."""

import asyncio
from typing import Any

import pytest

from taskharbor.dashboard.pages import overview as overview_page
from taskharbor.dashboard.pages import queues as queues_page
from taskharbor.dashboard.sampler import Sampler
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.ops import operator
from tests.dashboard.site import JSON, Site, visit


async def never(*arguments: Any, **options: Any) -> Any:
    await asyncio.Event().wait()


def limit(monkeypatch: pytest.MonkeyPatch, page: float, part: float) -> None:
    """A page may take `page` seconds, and its parts may until `part` seconds after its beginning."""
    read_as = operator.read_as
    monkeypatch.setattr(operator, "read_as", lambda harbor, access, read, timeout: read_as(harbor, access, read, page))
    monkeypatch.setattr(operator, "PART_MARGIN_S", page - part)


def test_a_page_is_shown_without_the_parts_that_take_too_long(monkeypatch: pytest.MonkeyPatch):
    limit(monkeypatch, 60, 0.1)
    monkeypatch.setattr(overview_page, "read_attention", never)
    monkeypatch.setattr(queues_page, "read_figures", never)

    async def look(site: Site) -> None:
        page = (await site.get("/")).text
        assert "Some of this page took too long." in page
        assert "Not shown: what needs you" in page
        assert "does not answer" not in page
        assert "Not known: it took too long to read." in page
        assert ">mail</a>" in page  # the queues
        found = await site.json("/")
        assert "what needs you" in found["late"]
        assert {row["queue"] for row in found["queues"]} >= {"mail", "billing"}
        assert "Not shown: charts" in (await site.get("/queues/mail")).text

    visit(look)


def test_a_page_that_takes_too_long_does_not_blame_the_store(monkeypatch: pytest.MonkeyPatch):
    limit(monkeypatch, 0.05, 0.01)
    monkeypatch.setattr(MemoryDriver, "counts", never)

    async def look(site: Site) -> None:
        reply = await site.get("/")
        assert reply.status_code == 503
        assert "This page took too long" in reply.text
        assert "does not answer" not in reply.text
        reply = await site.send("GET", "/", headers=JSON)
        assert reply.json()["error"] == "this page took longer than 0.05 s; the store answers, but slowly"
        sampler = Sampler(site.harbor)
        with sampler.viewer() as viewer:
            await sampler._round()
            assert viewer.take() == (set(), "")

    visit(look)
