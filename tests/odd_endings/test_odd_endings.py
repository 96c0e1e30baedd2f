"""Whatever a handler, its result, its exception, its middleware or its metadata does: an outcome, and a free slot.

Drawn, not listed. A test that fails prints the ending as plain data; `build` in hostile.py makes the object of it.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from taskharbor import JobContext
from taskharbor.drivers import Ack, Lease, TaskHarborError
from taskharbor.events import JobCancelled, JobDeadLettered, JobRetried, JobSnoozed, JobSucceeded, OutcomeRefused
from taskharbor.model.naming import class_name
from taskharbor.worker import Worker
from tests.lanes import figure
from tests.lanes import run as lane
from tests.odd_endings.ending import (
    Ending,
    Observer,
    call_middleware_of,
    end,
    endings,
    kinds_of,
    middleware_of,
    parts,
    retry_of,
    subscribe,
)
from tests.odd_endings.hostile import ERRORS
from tests.worker.test_transaction import Fake, SqlMemory, Table
from tests.worker.workbench import Bench, job, run

OUTCOMES = (JobSucceeded, JobRetried, JobDeadLettered, JobSnoozed, JobCancelled)
STATES = {"done", "scheduled", "dlq", "cancelled"}


class OddTransaction(Fake):
    """A transaction that fails where the ending says so."""

    def __init__(self, driver: Any, table: Table, troubles: dict[str, str]) -> None:
        super().__init__(driver, table)
        self.troubles = troubles

    def fail(self, where: str) -> None:
        if where in self.troubles:
            raise ERRORS[self.troubles[where]]("c4n4ry")

    async def __aenter__(self) -> list[str]:
        self.fail("begin")
        return await super().__aenter__()

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        self.fail("commit")
        return await super().commit(ack, now)

    async def rollback(self) -> None:
        self.fail("rollback")

    async def abort(self, why: str) -> None:
        self.fail("abort")


class OddTransactionSync(OddTransaction):
    """The same for a plain function."""

    def __enter__(self) -> list[str]:
        self.fail("begin")
        return self.writes

    def __exit__(self, *raised: object) -> None:
        return None

    def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:  # type: ignore[override]  # the blocking twin of a coroutine
        self.fail("commit")
        return asyncio.run(Fake.commit(self, ack, now))

    def rollback(self) -> None:  # type: ignore[override]  # the blocking twin of a coroutine
        self.fail("rollback")

    def abort(self, why: str) -> None:  # type: ignore[override]  # the blocking twin of a coroutine
        self.fail("abort")


def store_of(ending: Ending) -> Any:
    """A store whose transactions are as odd as the ending says."""

    class Odd(SqlMemory):
        def sibling(self) -> Any:
            other = Odd()
            other.store, other.table = self.store, self.table
            return other

        def transaction(self, lease: Lease) -> Any:
            return OddTransaction(self, self.table, ending.troubles)

        def transaction_sync(self, lease: Lease) -> Any:
            return OddTransactionSync(self, self.table, ending.troubles)

    made = Odd()
    made.table = Table()
    return made


async def outcome_of(ending: Ending) -> Any:
    """Run a job with this ending, then a plain one, in the only slot of a worker; return the outcome of the first."""
    bench = Bench(store_of(ending) if ending.opens else None)
    bench._loop = asyncio.get_running_loop()
    worker = Worker(
        bench.driver,
        clock=bench.clock,
        heart="loop",
        concurrency=1,
        observers=[Observer(ending), bench],
        retry=retry_of(ending),
        middleware=[middleware_of(layer) for layer in ending.layers],
        call_middleware=[call_middleware_of(around) for around in ending.around],
    )

    loop, subscribed = asyncio.get_running_loop(), asyncio.Event()

    async def coroutine(ctx: JobContext) -> Any:
        if ending.opens:
            await ctx.transaction().__aenter__()
        if ending.callback:
            subscribe(ending, ctx)
            subscribed.set()
            await ctx.cancelled.hit()
        return end(ending, ctx)

    def function(ctx: JobContext) -> Any:
        if ending.opens:
            ctx.transaction().__enter__()
        if ending.callback:
            subscribe(ending, ctx)
            loop.call_soon_threadsafe(subscribed.set)
            assert ctx.cancelled.wait(60)
        return end(ending, ctx)

    async def time_out() -> None:
        await subscribed.wait()
        bench.clock.advance(5)

    handler = coroutine if ending.colour == "coroutine" else function
    worker.register("odd", handler, unrecoverable=kinds_of(ending))
    timeout = timedelta(seconds=5) if ending.callback else None
    await bench.enqueue(job("odd", "odd", metadata=ending.marks, timeout=timeout), job("good", "good"))
    worker.register("good", lambda: "fine")
    timing_out = asyncio.create_task(time_out())
    await worker.arun(until_empty=True)
    timing_out.cancel()
    assert worker._services is not None
    assert not worker._services.capacity.running, "a slot is taken"
    assert not worker._services._held, "a lease is kept"
    told = [event for event in bench.events if isinstance(event, OUTCOMES) and event.job.id == "odd"]
    if "commit" in ending.troubles and not told:  # whether it was committed is unknown: the lease decides
        assert [event.job.id for event in bench.of(OutcomeRefused)] == ["odd"]
        bench.clock.advance(60)
        assert (await bench.info("odd")).state == "ready"
        return None
    assert len(told) == 1, told
    counts = await bench.driver.counts(bench.clock.now())
    assert "inflight" not in counts["default"], counts
    info = await bench.info("odd")
    assert info.state in STATES, info.state
    if info.state == "dlq":
        assert info.job.reason
        assert info.job.attempts == 1
        assert info.job.failed_at is not None
    if info.state == "scheduled" and info.job.attempts:
        assert info.job.last_error
    return info


def check(ending: Ending) -> Any:
    """Run it. An exception that escapes may itself break pytest's report, so only its name goes further."""
    found, escaped = list[Any](), ""

    async def one() -> None:
        found.append(await outcome_of(ending))

    try:
        run(one())
    except (AssertionError, TimeoutError):
        raise
    except BaseException as error:
        escaped = class_name(error)
    assert not escaped, f"{escaped} has ended the worker"
    return found[0]


def drawn(test: int, full: int) -> settings:
    """No shrinking in `make test`: a leaked slot of the worker costs the whole timeout with every try."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if lane() != "test" else [])]
    return settings(
        max_examples=figure(test, full),
        phases=phases,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@pytest.mark.parametrize("part", parts)
def test_whatever_one_part_does_there_is_an_outcome(part: str) -> None:
    @drawn(test=8, full=600)
    @given(parts[part])
    def each(ending: Ending) -> None:
        check(ending)

    each()


@drawn(test=40, full=2_000)
@given(endings)
def test_whatever_all_of_them_do_together_there_is_an_outcome(ending: Ending) -> None:
    check(ending)
