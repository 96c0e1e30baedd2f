"""A dashboard that listens, on a loop of its own in a thread, with the scene in its store."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import uvicorn

from taskharbor import Harbor
from taskharbor.dashboard.app import build
from taskharbor.ops.access import Access
from tests.dashboard.scene import Scene, plan, play

T = TypeVar("T")
DEADLINE_S = 60


class Served:
    """`level`: what everyone may do who comes; a test may change it."""

    def __init__(self, dsn: str) -> None:
        self.harbor = Harbor(dsn)
        self.level = Access.admin("ada")
        self.scene = Scene()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        app = build(self.harbor, access=lambda request: self.level, refresh=0.2)
        config = uvicorn.Config(
            app, log_level="critical", lifespan="off", access_log=False, timeout_graceful_shutdown=1, loop="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)

    def __enter__(self) -> "Served":
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.call_soon_threadsafe(setattr, self._server, "should_exit", True)
        self._thread.join(DEADLINE_S)
        self._socket.close()

    def call(self, work: Callable[[Any, Any], Awaitable[T]]) -> T:
        """Run something with the opened driver and its time, on the loop of the dashboard."""

        async def run() -> T:
            driver: Any = await self.harbor._store.awaited.driver(0)
            return await work(driver, await driver.server_time())

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(DEADLINE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        driver: Any = await self.harbor._store.awaited.driver(0)
        self.scene = await play(driver, await driver.server_time())
        await plan(self.harbor)
        self._ready.set()
        await self._server.serve(sockets=[self._socket])
        await self.harbor.aclose()
