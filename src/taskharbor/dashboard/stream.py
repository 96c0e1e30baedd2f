"""The stream of a tab: server-sent events that name what changed, and nothing more.

A stream carries no data of the store, so a proxy that keeps it, or a session that ends meanwhile, gives nothing away.
It ends after STREAM_S, and the browser opens the next one, which is checked anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from taskharbor.dashboard.answers import json_bytes
from taskharbor.dashboard.sampler import Sampler, Viewer
from taskharbor.model.clock import Clock

STREAM_S = 600.0
ALIVE_S = 15.0  # between two comments that keep proxies from closing a quiet stream
MAX_STREAMS = 500
MAX_STREAMS_OF_ONE = 100  # person, by the name of their access


def stream(sampler: Sampler, clock: Clock, job: str | None, who: str = "") -> StreamingResponse:
    """The response that lasts."""
    headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
    return StreamingResponse(_events(sampler, clock, job, who), media_type="text/event-stream", headers=headers)


async def _events(sampler: Sampler, clock: Clock, job: str | None, who: str) -> AsyncIterator[bytes]:
    ends = clock.monotonic() + STREAM_S
    with sampler.viewer(job, who) as viewer:
        yield b"retry: 2000\n\n"
        while clock.monotonic() < ends:
            if not await _woken(viewer, ALIVE_S):
                yield b": still here\n\n"
                continue
            changed, problem = viewer.take()
            yield _event("changed", {"topics": sorted(changed), "problem": problem})


async def _woken(viewer: Viewer, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await viewer.woken.wait()
    except TimeoutError:
        return False
    return True


def _event(name: str, value: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json_bytes(value))


def has_room(sampler: Sampler, who: str) -> bool:
    """Whether this person may open one more: many tabs of one leave room for the others."""
    return sampler.viewers < MAX_STREAMS and sampler.viewers_of(who) < MAX_STREAMS_OF_ONE
