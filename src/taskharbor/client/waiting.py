"""How long a caller waits: real time, whatever clock the jobs go by.

A test's clock that stands still must not hang the test that asks for a result.
"""

from __future__ import annotations

import asyncio


def time() -> float:
    """Seconds of the running loop."""
    return asyncio.get_running_loop().time()


async def sleep(seconds: float) -> None:
    """Return after so many seconds."""
    await asyncio.sleep(seconds)
