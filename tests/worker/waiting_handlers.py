"""Handlers that wait for other jobs: functions of a module, so that a child process can import them.

A child finds the store by the address in its environment, and each handler enqueues what it waits for.
"""

import asyncio
import os
import queue
import threading
from typing import Any

from taskharbor import Harbor
from taskharbor.flow import chain, group

harbor = Harbor(os.environ.get("WAITING_STORE", "memory://"))


@harbor.task(name="leaf")
def leaf() -> int:
    return 7


def a_job() -> Any:
    return leaf.enqueue()


def a_flow() -> Any:
    return chain(leaf.s(), group(leaf.s(), leaf.s())).enqueue()


async def a_job_awaited() -> Any:
    return await leaf.aenqueue()


async def a_flow_awaited() -> Any:
    return await group(leaf.s(), leaf.s()).aenqueue()


@harbor.task(name="plain", max_attempts=1)
def plain(flow: bool, timeout: float | None) -> Any:
    return (a_flow if flow else a_job)().result(timeout)


@harbor.task(name="coroutine", max_attempts=1)
async def coroutine(flow: bool, timeout: float | None) -> Any:
    return await (await (a_flow_awaited if flow else a_job_awaited)()).aresult(timeout)


@harbor.task(name="own loop", max_attempts=1)
def own_loop(flow: bool, timeout: float | None) -> Any:
    return asyncio.run(coroutine(flow, timeout))


@harbor.task(name="process", max_attempts=1, process=True)
def process(flow: bool, timeout: float | None) -> Any:
    return (a_flow if flow else a_job)().result(timeout)


@harbor.task(name="finished")
def finished(id: str) -> int:
    found: int = harbor.client.handle(id, int).result()
    return found


answers: queue.SimpleQueue[int] = queue.SimpleQueue()


@harbor.task(name="a thread beside")
def beside() -> None:
    """A thread that a handler started keeps no slot, so it may wait as long as it likes."""
    handle = leaf.enqueue()
    threading.Thread(target=lambda: answers.put(handle.result()), daemon=True).start()
