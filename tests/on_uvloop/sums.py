"""The task that the server enqueues and the worker runs, on the store of $TASKHARBOR_DSN."""

import asyncio

from taskharbor import Harbor

harbor = Harbor(call_timeout=60)


@harbor.task
async def add(a: int, b: int) -> tuple[int, str]:
    """The sum, and where the class of the worker's loop is defined."""
    return a + b, type(asyncio.get_running_loop()).__module__
