"""A program that lives through everything a worker does, on uvloop and on the store of $TASKHARBOR_DSN.

It gets that loop in each of the ways there are. After `uvloop.install()` the loops of threads are uvloop's too: those
of the heart and of blocking calls.
"""

import asyncio
import os
import signal
import warnings

import uvloop

from taskharbor import Fixed, Harbor, JobContext

PATIENCE = 60.0  # seconds after which it gives up; never a figure

harbor = Harbor(call_timeout=PATIENCE)


class Loop:
    """What belongs to the loop that runs."""

    started: asyncio.Event


def on_uvloop() -> bool:
    return isinstance(asyncio.get_running_loop(), uvloop.Loop)


@harbor.task
async def add(a: int, b: int) -> int:
    assert on_uvloop()
    return a + b


@harbor.task
def in_a_thread(number: int) -> int:
    return number + 1


@harbor.task(process=True)
def in_a_process() -> int:
    return os.getpid()


@harbor.task(retry=Fixed(0))
async def fails_once(ctx: JobContext) -> int:
    if ctx.job.attempts == 0:
        raise ValueError("once more")
    return ctx.job.attempts


@harbor.task(timeout=0.05, max_attempts=1)
async def takes_too_long() -> None:
    await asyncio.Event().wait()


@harbor.task
async def runs_until_cancelled() -> None:
    Loop.started.set()
    await asyncio.Event().wait()


@harbor.task
def stops_the_worker() -> None:
    """From a thread: the loop of the main thread sleeps, and the signal has to wake it."""
    os.kill(os.getpid(), signal.SIGTERM)


async def short_story() -> None:
    """A client and a worker that ends by itself."""
    assert on_uvloop()
    async with harbor, asyncio.timeout(PATIENCE):
        job = await add.aenqueue(1, 2)
        await harbor.worker().arun(until_empty=True)
        assert await job.aresult() == 3


async def long_story() -> None:
    """A client, and a worker that waits for its jobs: each kind of handler, and each kind of end."""
    assert on_uvloop()
    Loop.started = asyncio.Event()
    async with harbor, asyncio.timeout(PATIENCE):
        worker = harbor.worker(heartbeat=0.1)
        running = asyncio.create_task(worker.arun())
        assert await (await add.aenqueue(1, 2)).aresult() == 3
        many = await harbor.aenqueue_many([add.s(number, 1) for number in range(20)])
        assert [await each.aresult() for each in many] == list(range(1, 21))
        assert await (await in_a_thread.aenqueue(1)).aresult() == 2
        assert await (await in_a_process.aenqueue()).aresult() != os.getpid()
        assert await (await fails_once.aenqueue()).aresult() == 1
        assert await (await takes_too_long.aenqueue()).await_() == "dlq"
        assert await (await add.options(delay=0.05).aenqueue(3, 4)).aresult() == 7
        await a_lease_is_renewed_until_the_job_is_cancelled()
        worker.stop()
        await running


async def a_lease_is_renewed_until_the_job_is_cancelled() -> None:
    job = await runs_until_cancelled.aenqueue()
    await Loop.started.wait()
    first = (await job.ainfo()).lease_expires_at
    while (await job.ainfo()).lease_expires_at == first:
        await asyncio.sleep(0)
    await job.acancel()
    assert await job.await_() == "cancelled"


def blocking_story() -> None:
    """Without a loop of its own: blocking calls, and a worker in the main thread."""
    job = add.enqueue(5, 6)
    harbor.worker().run(until_empty=True)
    assert job.result(timeout=PATIENCE) == 11
    last = stops_the_worker.enqueue()
    harbor.worker().run()
    assert last.status() == "done"
    harbor.close()


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(short_story())
    uvloop.run(short_story())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on; programs do it all the same
        uvloop.install()
    asyncio.run(long_story(), debug=True)
    blocking_story()
    print("lived")


if __name__ == "__main__":
    main()
