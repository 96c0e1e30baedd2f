"""Closing what listens for hints, at the worst moment."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from taskharbor.drivers.redis.hints import Hints

pytestmark = pytest.mark.lane("unit")


class SilentTransport(asyncio.Transport):
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Nothing."""

    def write(self, data: object) -> None:
        """Nothing."""


class SilentConnection:
    _writer = SimpleNamespace(transport=SilentTransport())

    async def disconnect(self, nowait: bool = False) -> None:
        """Nothing."""


async def nothing_arrived(queues: object) -> dict[str, int]:
    return {}


def test_closing_ends_a_listener_whose_connection_swallowed_the_cancel() -> None:
    connecting = asyncio.Event()

    async def connect() -> Any:
        connecting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass  # as asyncio.wait_for does when what it waits for is done in the same turn
        return SilentConnection()

    async def scenario() -> None:
        hints = Hints(connect, nothing_arrived)
        waiting = asyncio.create_task(hints.wait(("default",), 30))
        await connecting.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.wait_for(hints.close(), 30)

    asyncio.run(scenario())
