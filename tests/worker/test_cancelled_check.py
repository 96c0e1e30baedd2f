"""`ctx.cancelled.check()`: how it stops handlers of every colour, and what is recorded then."""

import asyncio
import logging
from datetime import timedelta

import pytest

from taskharbor import AttemptKind, Cancel, Client, JobContext, JobRequest, Snooze, Worker
from taskharbor.drivers import open_driver
from taskharbor.model.executions import read_trail
from taskharbor.tasks.context import CancelSignal
from tests.worker import process_handlers

PATIENCE = 60


async def checking(ctx: JobContext) -> str:
    while True:
        ctx.cancelled.check()
        await asyncio.sleep(0)


def checking_in_a_thread(ctx: JobContext) -> str:
    while True:
        ctx.cancelled.wait(0.01)
        ctx.cancelled.check()


async def returning(ctx: JobContext) -> str:
    await ctx.cancelled.hit()
    return "half of it"


def returning_from_a_thread(ctx: JobContext) -> str:
    while not ctx.cancelled:
        ctx.cancelled.wait(0.01)
    return "half of it"


async def returning_for_a_reason(ctx: JobContext) -> str:
    while ctx.cancelled.reason != "shutdown":
        await asyncio.sleep(0)
    return "half of it"


async def finishing(ctx: JobContext) -> str:
    """Does not look, and finishes its work while the worker stops."""
    while ctx._cancelled is None or ctx._cancelled._reason is None:
        ctx._cancelled = ctx._cancelled or CancelSignal(ctx.job)
        await asyncio.sleep(0)
    return "all of it"


async def stopped(handler, process=False):
    """The job's record after a worker that runs it was stopped."""
    driver = open_driver("memory://")
    await driver.open()
    worker, client = Worker(driver, shutdown_timeout=PATIENCE, heartbeat=0.1, lease=30), Client(driver)
    worker.register("work", handler, process=process)
    handle = await client.aenqueue(JobRequest(type="work"))
    running = asyncio.create_task(worker.arun())
    async with asyncio.timeout(PATIENCE):
        while not worker.health().running:
            await asyncio.sleep(0)
        worker.stop()  # a child may not have begun yet, which changes nothing
        await running
    info = await driver.inspect(handle.id, await driver.server_time() + timedelta(seconds=1))
    await client.aclose()
    await driver.close()
    return info


@pytest.mark.parametrize(
    ("handler", "process"),
    [(checking, False), (checking_in_a_thread, False), (process_handlers.checking, True)],
)
def test_a_checking_handler_is_given_back_at_shutdown_without_an_attempt(handler, process, caplog):
    info = asyncio.run(stopped(handler, process))
    assert (info.state, info.job.attempts, info.job.lost, info.job.last_error) == ("ready", 0, 0, "")
    (execution,) = read_trail(info.job.trail)
    assert execution.kind is AttemptKind.GIVEN_BACK
    assert "recorded as done" not in caplog.text


@pytest.mark.parametrize("handler", [returning, returning_from_a_thread, returning_for_a_reason])
def test_a_handler_that_returns_after_it_saw_the_signal_is_reported(handler, caplog):
    info = asyncio.run(stopped(handler))
    assert info.state == "done"
    (record,) = [record for record in caplog.records if "recorded as done" in record.message]
    assert (record.levelno, record.job_id) == (logging.WARNING, info.job.id)
    assert "ctx.cancelled.check()" in record.message


def test_a_handler_that_did_not_check_is_not_reported(caplog):
    assert asyncio.run(stopped(finishing)).state == "done"
    assert "recorded as done" not in caplog.text


def test_check_raises_the_error_that_fits_the_reason():
    signal = CancelSignal()
    signal.check()
    for reason, kind in (
        ("shutdown", Snooze),
        ("timeout", TimeoutError),
        ("cancelled", Cancel),
        ("lease lost", Cancel),
    ):
        signal = CancelSignal()
        signal.set(reason)
        with pytest.raises(kind):
            signal.check()
