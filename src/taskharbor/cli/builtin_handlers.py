"""The handlers of `worker run` without `--app`, so that the shell alone is enough to try things out.

echo    answers with its payload, whatever that is
sleep   {"seconds": 1.0}: waits this long, and stops at once when told to
fail    {"reason": "…"}: raises, as often as it is tried
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskharbor.tasks.handler import HandlerRegistry

TYPES = ("echo", "fail", "sleep")
"""Their names. Who needs no more than these does not pay for loading what handlers are made of."""


class AskedToFail(Exception):
    """What `fail` raises."""


async def echo(payload: Any) -> Any:
    """Answer with the payload."""
    return payload


async def sleep(seconds: float = 1.0) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def fail(reason: str = "this job was asked to fail") -> None:
    """Raise."""
    raise AskedToFail(reason)


def handlers() -> HandlerRegistry:
    """The three of them."""
    from taskharbor.model.codec import JsonCodec
    from taskharbor.tasks.handler import Handler, HandlerRegistry

    codec, found = JsonCodec(), HandlerRegistry()
    whole = Handler("echo", echo, codec=codec)
    whole.bind = lambda payload, context: ((codec.decode(payload),), {})  # not by the names of parameters
    for handler in (whole, Handler("sleep", sleep, codec=codec), Handler("fail", fail, codec=codec)):
        found.add(handler)
    return found
