"""A child process that has a lifespan: its loop runs from the first job to the last, also between jobs.

    entered ──► one job at a time: a coroutine on the loop, a plain function in a thread ──► left at the parent's order

A lifespan that fails is the failure of the job for which the child was started, and ends the child: the next job gets
another one. The parent kills a child that does not leave in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from taskharbor.model.current_job import CURRENT
from taskharbor.tasks.handler import load_reference
from taskharbor.tasks.overrides import Overrides
from taskharbor.worker.child_main import JobPipe, Request, begin, handler_of, raised, returned, unpacked
from taskharbor.worker.injector import Injector
from taskharbor.worker.lifespan import RunningLifespan
from taskharbor.worker.middleware import await_within, call_within
from taskharbor.worker.stop_budget import StopBudget
from taskharbor.worker.threads import Threads, unwrap

_threads = Threads("taskharbor-job")


def go_on() -> None:
    """Nothing stops a job in a child before its handler: the parent kills the child instead."""


async def in_thread(call: Callable[[], Any]) -> Any:
    """Call a plain function while the loop goes on."""
    try:
        return await _threads.run(call)
    except Exception as error:
        raise unwrap(error) from None


def child_injector(request: Request, lifespan: RunningLifespan | None = None) -> Injector:
    """The injector for one job."""
    functions = unpacked(request.overrides)
    overrides = Overrides(tuple(zip(functions[::2], functions[1::2], strict=True)))
    return Injector(overrides) if lifespan is None else Injector(overrides, lifespan.function, lifespan.given)


async def serve_within(pipe: JobPipe, requests: SimpleQueue[Request | None], first: Request) -> None:
    """Serve jobs within the lifespan that the first one names; they all name the same."""
    stop = asyncio.Event()
    try:
        (function,) = unpacked(first.lifespan)
        lifespan = RunningLifespan(function, stop.set)
        await lifespan.enter(asyncio.Event(), stop)
    except Exception as error:
        pipe.finish(("unfit", *raised(first, error, None)[1:]))
        return
    stopped = asyncio.ensure_future(stop.wait())
    request: Request | None = first
    while request is not None:
        pipe.finish(await _perform(pipe, request, lifespan))
        following = _threads.run(requests.get)
        await asyncio.wait((following, stopped), return_when=asyncio.FIRST_COMPLETED)
        request = following.result() if following.done() else None
    stopped.cancel()
    await lifespan.leave(StopBudget(stop))


async def _perform(pipe: JobPipe, request: Request, lifespan: RunningLifespan) -> tuple[Any, ...]:
    context = begin(pipe, request)
    function: Callable[..., Any] | None = None
    try:
        function = load_reference(*request.reference)
        handler = handler_of(request, function)
        layers = unpacked(request.layers)
        if handler.injection is not None:
            injector = child_injector(request, lifespan)
            value = await injector.call(handler, request.job.payload, context, layers, in_thread, go_on)
        else:
            args, kwargs = handler.bind(request.job.payload, context)
            call = partial(handler.function, *args, **kwargs)
            if handler.is_coroutine:
                value = await await_within(layers, context, call)
            else:
                value = await in_thread(partial(call_within, layers, context, call))
        return returned(request, handler, context, value)
    except BaseException as error:
        return raised(request, error, function)
    finally:
        CURRENT.set(None)
