"""The handlers of `worker run` without `--app`, so that the shell alone is enough to try things out.

echo    returns its payload
sleep   {"seconds": 1.0}: waits, and stops at once when cancelled
fail    {"reason": "…"}: raises on every attempt
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskharbor.tasks.handler import HandlerRegistry


class AskedToFail(Exception):
    """Raised by `fail`."""


async def echo(payload: bytes) -> Any:
    """Return the payload."""
    from taskharbor.model.codec import JsonCodec

    return JsonCodec().decode(payload)


async def sleep(seconds: float = 1.0) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def fail(reason: str = "this job was asked to fail") -> None:
    """Raise."""
    raise AskedToFail(reason)


def handlers() -> HandlerRegistry:
    """A registry with all three."""
    from taskharbor.model.codec import JsonCodec
    from taskharbor.tasks.handler import Handler, HandlerRegistry

    codec, registry = JsonCodec(), HandlerRegistry()
    registry.add(Handler("echo", echo, codec=codec, raw=True))
    registry.add(Handler("sleep", sleep, codec=codec))
    registry.add(Handler("fail", fail, codec=codec))
    return registry
