"""One application in the shapes in which servers take it: each request enqueues one job, by its number.

The body names the process that did it, and the version of the file that imported it.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from taskharbor import Harbor

harbor = Harbor()  # the store is TASKHARBOR_DSN
IMPORTED = 1_000_000  # what `preloaded` enqueues before the server forks


@harbor.task
def note(number: int) -> None: ...


def _number(query: str) -> int:
    return int(parse_qs(query)["number"][0])


def wsgi(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """For gunicorn."""
    job = note.enqueue(_number(environ["QUERY_STRING"]))
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"pid": os.getpid(), "job": job.id}).encode()]


def preloaded() -> Callable[..., Iterable[bytes]]:
    """For `gunicorn --preload`: the harbor was used, blocking and awaited, before the server forks."""
    note.enqueue(IMPORTED)
    asyncio.run(_awaited())
    return wsgi


async def _awaited() -> None:
    await note.aenqueue(IMPORTED + 1)


def asgi(version: str) -> Callable[..., Any]:
    """For uvicorn: even numbers are awaited, odd ones block a thread."""

    async def app(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await harbor.aclose()
            await send({"type": "lifespan.shutdown.complete"})
            return
        number = _number(scope["query_string"].decode())
        job = await asyncio.to_thread(note.enqueue, number) if number % 2 else await note.aenqueue(number)
        body = json.dumps({"pid": os.getpid(), "job": job.id, "version": version}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": body})

    return app


served = asgi("first")
