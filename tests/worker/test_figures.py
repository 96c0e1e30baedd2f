"""What a worker counts by minute and queue, and how it reaches the store."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskharbor import Cancel, JobContext, Snooze, Unrecoverable
from taskharbor.drivers.base import Driver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import JobStarted, JobSucceeded, StoreLost
from taskharbor.model.errors import BackendUnavailable, InvalidJob
from taskharbor.model.histogram import merged
from taskharbor.model.job import Figures
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack
from taskharbor.policy.retry import Fixed
from taskharbor.testing.clock import START
from taskharbor.worker import figures as figures_module
from taskharbor.worker.delivery import Delivery
from tests.worker.test_outcomes import Expansion
from tests.worker.test_transaction import on_sql
from tests.worker.workbench import Bench, bench_test, job


async def stored(bench: Bench) -> list[Figures]:
    return await bench.driver.figures(START, START + timedelta(hours=1))


def counts_of(rows: list[Figures]) -> dict[str, int]:
    """The numbers without the histograms."""
    return {name: number for name, number in merged(rows).items() if not name[-1].isdigit()}


class Troubled(MemoryDriver):
    def __init__(self) -> None:
        super().__init__()
        self.trouble: list[Exception] = []
        self.calls: list[int] = []

    def sibling(self) -> "Troubled":
        other = type(self)()
        other.store, other.trouble, other.calls = self.store, self.trouble, self.calls
        return other

    async def add_figures(self, rows: Any, now: datetime) -> None:
        self.calls.append(len(rows))
        if self.trouble:
            raise self.trouble.pop(0)
        await super().add_figures(rows, now)


class Plain(Troubled):
    add_figures = Driver.add_figures


ENDINGS: dict[str, Any] = {
    "done": None,
    "failed": ValueError(),
    "dead": Unrecoverable("no"),
    "snoozed": Snooze(600),
    "cancelled": Cancel("no"),
}


@bench_test
async def test_executions_are_counted_by_how_they_ended_and_timed(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(600), queues=["default", "mail"], concurrency=1)

    async def handler(how: str) -> None:
        bench.clock.advance(0.02)
        if ENDINGS[how] is not None:
            raise ENDINGS[how]

    worker.register("t", handler)
    jobs = [job(how, payload=b'{"how":"%s"}' % how.encode(), run_at=START) for how in ENDINGS]
    await bench.enqueue(*jobs, job("mail", queue="mail", payload=b'{"how":"done"}'), job("strange", "unknown"))
    bench.clock.advance(1)
    await worker.arun(until_empty=True)
    rows = {row.queue: row.counts for row in await stored(bench)}
    mine = {name: rows["default"][name] for name in ("done", "failed", "dead", "snoozed", "cancelled", "given_back")}
    assert mine == {"done": 1, "failed": 2, "dead": 1, "snoozed": 1, "cancelled": 1, "given_back": 1}
    assert rows["default"]["ran_ms"] == 5 * 20
    assert rows["default"]["ran_03"] == 5  # under 64 ms
    assert rows["default"]["waited_ms"] >= 5 * 1000
    assert (
        sum(number for name, number in rows["default"].items() if name.startswith("waited_") and name[-1].isdigit())
        == 5
    )
    assert rows["mail"]["done"] == 1


@bench_test
async def test_timeouts_and_losses_are_counted(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(3600))

    async def handler() -> None:
        await asyncio.Event().wait()

    worker.register("t", handler, timeout=5)
    await bench.enqueue(job("j"))
    await bench.driver.reserve(["default"], bench.clock.now(), timedelta(seconds=1), 1, "dead")
    bench.clock.advance(2)
    async with bench.running(worker):
        await bench.heard(JobStarted)
        while not (await bench.info("j")).job.attempts:
            bench.clock.advance(1)
            await asyncio.sleep(0)
    counts = counts_of(await stored(bench))
    assert {name: counts[name] for name in ("failed", "timeout", "lost")} == {"failed": 1, "timeout": 1, "lost": 1}
    assert "done" not in counts


@bench_test
async def test_an_ack_that_is_committed_with_a_transaction_counts(bench: Bench) -> None:
    on_sql(bench)

    async def handler(ctx: JobContext) -> None:
        async with ctx.transaction():
            pass

    await bench.ran(handler, job("j"))
    assert counts_of(await stored(bench))["done"] == 1


@bench_test
async def test_figures_are_sent_every_15_seconds_and_belong_to_their_minute(bench: Bench) -> None:
    bench.driver = driver = Troubled()
    worker = bench.worker()
    worker.register("t", lambda: None)
    async with bench.running(worker):
        for minute in range(2):
            await bench.enqueue(job(f"j{minute}"))
            await bench.heard(JobSucceeded, minute + 1)
            while sum(driver.calls) < minute + 1:
                bench.clock.advance(5)
                await asyncio.sleep(0)
            bench.clock.advance(60)
    rows = await stored(bench)
    assert [row.counts["done"] for row in rows] == [1, 1]
    assert rows[0].minute < rows[1].minute


@pytest.mark.parametrize("kept", [True, False])
@bench_test
async def test_what_could_not_be_sent_is_sent_again_unless_it_was_refused(bench: Bench, kept: bool) -> None:
    bench.driver = driver = Troubled()
    driver.trouble.append(BackendUnavailable("away") if kept else InvalidJob("counts"))
    async with bench.serving(lambda: None, job("j")):
        await bench.heard(JobSucceeded)
        while not driver.calls:
            bench.clock.advance(5)
            await asyncio.sleep(0)
        await bench.heard(StoreLost)
    assert counts_of(await stored(bench)).get("done") == (1 if kept else None)


@bench_test
async def test_a_driver_without_the_feature_gets_none(bench: Bench) -> None:
    bench.driver = driver = Plain()
    await bench.ran(lambda: None, job("j"))
    assert driver.calls == []


@bench_test
async def test_many_executions_are_counted_exactly_and_timed_by_some_of_them(bench: Bench) -> None:
    async def handler() -> None:
        return None

    await bench.ran(handler, *[job(f"j{number}") for number in range(1000)])
    counts = merged(await stored(bench))
    assert counts["done"] == 1000
    assert abs(counts["ran_00"] - 1000) <= figures_module.TIMED_ONE_OF
    assert counts["waited_00"] == counts["ran_00"]


@bench_test
async def test_a_store_that_is_away_for_long_costs_a_bounded_number_of_rows(bench: Bench) -> None:
    counter = figures_module.FigureCounter(bench.clock, ["a", "b"])
    driver: Any = Troubled()
    for number in range(figures_module.MAX_KEPT_ROWS + 200):
        counter.lost(f"q{number}")
        if number == 300:
            driver.trouble.append(BackendUnavailable("away"))
            with pytest.raises(BackendUnavailable):
                await counter.flush(driver, now=True)
    assert len(counter._rows) == figures_module.MAX_KEPT_ROWS
    await driver.open()
    await counter.flush(driver, now=True)
    assert max(driver.calls) == figures_module.MAX_SENT_ROWS
    assert not counter._rows


@bench_test
async def test_times_that_are_long_together_are_added_up(bench: Bench) -> None:
    """As when a backlog is worked off, which is when these figures are looked at."""
    worker = bench.worker()

    async def handler() -> None:
        return None

    worker.register("t", handler)
    waited = timedelta(days=20)
    await bench.enqueue(*[job(f"j{number}", created_at=START - waited) for number in range(3)])
    async with bench.running(worker):
        await bench.heard(JobSucceeded, 3)
    assert merged(await stored(bench))["waited_ms"] == 3 * waited // timedelta(milliseconds=1)


@bench_test
async def test_a_loss_counts_once_though_its_job_is_decided_twice(bench: Bench) -> None:
    """A workflow that cannot be stored: the job is done, and then it has failed."""
    worker = bench.worker()
    worker.register("t", lambda: Expansion(job("next", depends_on=("nobody",)), handover="next"))
    await bench.enqueue(job("j"))
    await bench.driver.reserve(["default"], bench.clock.now(), timedelta(seconds=1), 1, "dead")
    bench.clock.advance(2)
    await worker.arun(until_empty=True)
    counts = counts_of(await stored(bench))
    assert {name: counts.get(name) for name in ("done", "dead", "lost")} == {"done": None, "dead": 1, "lost": 1}


@bench_test
async def test_a_worker_leaves_though_its_figures_are_refused(bench: Bench) -> None:
    bench.driver = driver = Troubled()
    async with bench.serving(lambda: None, job("j")):
        await bench.heard(JobSucceeded)
        assert await driver.workers(bench.clock.now())
        driver.trouble.append(InvalidJob("counts"))
    assert await driver.workers(bench.clock.now()) == []


@bench_test
async def test_small_batches_weigh_as_much_as_large_ones(bench: Bench) -> None:
    counter, now = figures_module.FigureCounter(bench.clock, ["default"]), bench.clock.now()
    lease = Lease("j", "default", "token", now)
    delivery = Delivery(job("j", began_at=now, created_at=now), lease, None, started=True)
    for _ in range(200):
        counter.add([(delivery, Ack(lease))] * 3)
    [row] = counter._rows.values()
    counts = dict(zip(figures_module.NAMES, row, strict=True))
    assert counts["done"] == 600
    assert abs(counts["ran_00"] - 600) <= figures_module.TIMED_ONE_OF
