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


async def echo(payload: Any) -> Any:
    """Return the payload."""
    return payload


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
    whole = Handler("echo", echo, codec=codec)
    whole.bind = lambda payload, context: (
        (codec.decode(payload),),
        {},
    )  # the whole payload, not bound to parameters by name
    for handler in (whole, Handler("sleep", sleep, codec=codec), Handler("fail", fail, codec=codec)):
        registry.add(handler)
    return registry
