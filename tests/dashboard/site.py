"""A dashboard without a server: requests as a browser on the same page would send them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from taskharbor import Harbor
from taskharbor.dashboard.app import build
from taskharbor.drivers import Driver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.ops.access import Access
from taskharbor.testing import ManualClock
from tests.dashboard.scene import Scene, plan, play

NOW = datetime(2030, 1, 15, 12, 0, tzinfo=UTC)
BASE = "http://localhost:8420"
OWN = {"x-taskharbor": "1", "sec-fetch-site": "same-origin", "origin": BASE}
JSON = {"accept": "application/json"}
LEVELS = {
    "none": Access.none("nobody"),
    "view": Access.view("vera"),
    "operate": Access.operate("otto"),
    "admin": Access.admin("ada"),
}


class Site:
    """A dashboard of a store in memory."""

    def __init__(self, driver: Any = None, *, level: str = "admin", prefix: str = "", **options: Any) -> None:
        self.clock = ManualClock(NOW)
        self.driver: Driver = driver if driver is not None else MemoryDriver()
        self.harbor = Harbor(self.driver, clock=self.clock)
        self.level = level
        options.setdefault("access", lambda request: LEVELS[self.level])
        self.app = build(self.harbor, **options)
        self.prefix = prefix
        self.scene = Scene()

    async def open(self, *, played: bool = True) -> None:
        driver: Any = await self.harbor._store.awaited.driver(0)
        if played:
            self.scene = await play(driver, NOW)
            await plan(self.harbor)

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, root_path=self.prefix)
        async with httpx.AsyncClient(transport=transport, base_url=options.pop("base", BASE)) as client:
            return await client.request(method, f"{self.prefix}{path}", **options)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.send("GET", path, headers=headers)

    async def json(self, path: str) -> Any:
        reply = await self.send("GET", path, headers=JSON)
        assert reply.headers["content-type"] == "application/json", reply.text
        return reply.json()

    async def post(self, path: str, **fields: Any) -> httpx.Response:
        return await self.send("POST", path, data=fields, headers=OWN)


def visit(call: Callable[[Site], Awaitable[None]], *, played: bool = True, **options: Any) -> None:
    """Run a visit to a dashboard."""

    async def run() -> None:
        site = Site(**options)
        await site.open(played=played)
        try:
            await call(site)
        finally:
            await site.harbor.aclose()

    asyncio.run(run())
