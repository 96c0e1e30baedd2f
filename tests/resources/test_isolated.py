"""A store and a clock of its own for a harbor that a module made, for the length of a block."""

import asyncio
import os
import sys
import types
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from taskharbor import BlockingCall, Harbor, JobContext, JobHandle, JobNotFound, JobRequest, State
from taskharbor.flow import chain
from taskharbor.model.clock import StoreClock
from taskharbor.testing import ManualClock, adrain, aenqueued, context, drain, enqueued, isolated

START = datetime(2030, 1, 1, tzinfo=UTC)


class Shop:
    """A module with a harbor and its tasks, whose store no test may touch."""

    def __init__(self, dsn: str) -> None:
        self.harbor = harbor = Harbor(dsn)
        self.seen: list[str] = []

        @harbor.task(name="mail")
        def mail(ctx: JobContext, to: str) -> str:
            self.seen.append(to)
            return f"sent to {to} at {ctx.job.created_at:%Y}"

        @harbor.task(name="order")
        async def order(number: int) -> int:
            await mail.aenqueue(f"customer {number}")
            return number

        self.mail, self.order = mail, order


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    made = Shop(f"sqlite:///{tmp_path}/real.db")
    yield made
    assert not (tmp_path / "real.db").exists(), "the real store was opened"


def test_everything_goes_to_the_isolated_store(shop: Shop, manual_clock: ManualClock) -> None:
    harbor = shop.harbor
    with isolated(harbor, clock=manual_clock) as same:
        assert same is harbor
        assert enqueued(harbor, shop.mail) == []
        job = shop.order.enqueue(7)
        harbor.enqueue_many([shop.mail.s("many")])
        harbor.client.enqueue(JobRequest(type="mail", payload={"to": "by type"}))
        run = chain(shop.order.s(8), shop.mail.s("after")).enqueue()
        assert harbor.clock is manual_clock
        assert drain(harbor) == 7
        assert job.result() == 7
        assert run.result() == "sent to after at 2030"
        assert harbor.job(job.id).info().job.created_at == START
        assert harbor.counts()["default"]["done"] == 7
        later = shop.mail.options(delay=3600).enqueue("later")
        harbor.worker().run(until_empty=True)
        assert later.status() is State.SCHEDULED
        manual_clock.advance(3600)
        assert later.status() is State.READY
        harbor.worker().run(until_empty=True)
        assert later.result() == "sent to later at 2030"
        assert harbor.dead().count().n == 0


def test_a_queue_that_no_worker_serves_is_warned_of_in_the_block_too(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    with isolated(shop.harbor):
        shop.mail.options(queue="nowhere").enqueue("ada")
    assert "the queue 'nowhere' got a job, but no task declares it" in caplog.text


def test_schedules_are_stored_and_fired_in_the_block(shop: Shop, manual_clock: ManualClock) -> None:
    shop.harbor.schedule("hourly", shop.mail.s("hourly"), every=3600)
    for _ in range(2):
        with isolated(shop.harbor, clock=manual_clock):
            assert drain(shop.harbor) == 0
            manual_clock.advance(3600)
            assert drain(shop.harbor) == 1
            assert [each.name for each in shop.harbor.schedules.list()] == ["hourly"]
    assert shop.seen == ["hourly", "hourly"]


def test_a_second_block_is_empty_again(shop: Shop) -> None:
    for _ in range(2):
        with isolated(shop.harbor):
            assert enqueued(shop.harbor, shop.mail) == []
            shop.mail.options(idempotency_key="k").enqueue("ada")
            assert len(enqueued(shop.harbor, shop.mail)) == 1


def test_everything_is_as_before_after_the_block_and_after_an_exception(tmp_path: Path) -> None:
    harbor = Shop("memory://real").harbor
    mail = harbor.tasks["mail"]
    real = mail.enqueue("real")
    parts = {name: getattr(harbor._store, name) for name in ("clock", "enqueuer", "drivers", "awaited")}
    inside: JobHandle[Any] | None = None
    try:
        with isolated(harbor, clock=ManualClock()):
            inside = mail.enqueue("inside")
            raise ZeroDivisionError
    except ZeroDivisionError:
        assert inside is not None
    assert {name: getattr(harbor._store, name) for name in parts} == parts
    assert [job.id for job in enqueued(harbor, mail)] == [real.id]
    with pytest.raises(RuntimeError, match="a block of isolated"):
        inside.status()
    with pytest.raises(JobNotFound):
        harbor.job(inside.id).status()
    assert not harbor._store.is_isolated
    harbor.close()


def test_blocks_may_be_nested(shop: Shop) -> None:
    harbor, outer, inner = shop.harbor, ManualClock(), ManualClock(datetime(2040, 1, 1, tzinfo=UTC))
    with isolated(harbor, clock=outer):
        shop.mail.enqueue("outer")
        with isolated(harbor, clock=inner):
            assert enqueued(harbor, shop.mail) == []
            job = shop.mail.enqueue("inner")
            drain(harbor)
            assert job.result() == "sent to inner at 2040"
        assert harbor.clock is outer
        assert [drain(harbor), shop.seen] == [1, ["inner", "outer"]]
        assert harbor._store.is_isolated
    block = isolated(harbor)
    with block, block:  # the same one again: a fixture that is used twice
        assert harbor._store.is_isolated
    assert not harbor._store.is_isolated


@pytest.mark.parametrize("dsn", ["memory://", "sqlite:///{}/other.db"])
def test_blocks_that_overlap_never_bring_the_real_store_back_too_early(shop: Shop, dsn: str, tmp_path: Path) -> None:
    """As where tests run at once. The fixture fails if the real store is opened."""
    harbor, second_clock = shop.harbor, ManualClock()
    first, second = isolated(harbor, dsn=dsn.format(tmp_path)), isolated(harbor, clock=second_clock)
    before = harbor._store.driver
    first.__enter__()
    shop.mail.enqueue("first")
    second.__enter__()
    job = shop.mail.enqueue("second")
    first.__exit__(None, None, None)
    assert harbor._store.is_isolated
    assert harbor.clock is second_clock
    assert drain(harbor) == 1
    assert job.result() == "sent to second at 2030"
    second.__exit__(None, None, None)
    assert not harbor._store.is_isolated
    assert harbor._store.driver is before
    assert harbor.clock is not second_clock


def test_in_a_coroutine(shop: Shop, manual_clock: ManualClock) -> None:
    harbor = shop.harbor

    async def scene() -> None:
        async with isolated(harbor, clock=manual_clock):
            job = await shop.order.aenqueue(1)
            assert await adrain(harbor) == 2
            assert await job.aresult() == 1
        with isolated(harbor):  # a fixture that is not asynchronous
            assert await aenqueued(harbor, shop.mail) == []
            await shop.mail.aenqueue("x")
            assert await adrain(harbor) == 1

    asyncio.run(scene())
    assert shop.seen == ["customer 1", "x"]


def test_a_fixture_around_a_loop_and_blocking_calls_in_one_block(shop: Shop) -> None:
    with isolated(shop.harbor):
        shop.mail.enqueue("blocking")

        async def scene() -> list[str]:
            await shop.mail.aenqueue("awaited")
            return [job.id for job in await aenqueued(shop.harbor, shop.mail)]

        assert len(asyncio.run(scene())) == 2
        assert drain(shop.harbor) == 2


def test_a_worker_in_the_background_uses_the_same_store(shop: Shop) -> None:
    """As an application's lifespan starts it."""

    async def scene() -> str:
        async with isolated(shop.harbor):
            worker = shop.harbor.worker()
            running = asyncio.create_task(worker.arun())
            result = await (await shop.mail.aenqueue("ada")).aresult(30)
            worker.stop()
            await running
            return result

    assert asyncio.run(scene()).startswith("sent to ada")


def test_the_clock_of_the_harbor_stays_unless_another_is_given() -> None:
    own = ManualClock()
    harbor = Harbor("memory://", clock=own)
    with isolated(harbor):
        assert harbor.clock is own
    follows = Harbor("memory://")
    before = follows.clock
    with isolated(follows):
        assert isinstance(follows.clock, StoreClock)
        assert follows.clock is not before
    assert follows.clock is before
    with pytest.raises(TypeError, match="clock: expected an object with the methods"), isolated(harbor, clock=3):  # type: ignore[arg-type]  # wrong on purpose
        pass
    assert harbor.clock is own


def where() -> int:
    return os.getpid()


def test_a_process_task_stays_in_the_process_of_the_test(shop: Shop) -> None:
    """In a child its module would be imported anew, with a harbor that is not isolated."""
    task = shop.harbor.task(name="where", process=True)(where)
    with isolated(shop.harbor):
        job = task.enqueue()
        drain(shop.harbor)
        assert job.result() == os.getpid()


def test_another_store_than_memory(shop: Shop, tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/test.db"
    with isolated(shop.harbor, dsn=dsn):
        shop.mail.enqueue("ada")
        assert drain(shop.harbor) == 1
    with Harbor(dsn) as other:
        assert other.counts()["default"]["done"] == 1

    async def scene() -> None:
        with pytest.raises(BlockingCall, match="use: async with"), isolated(shop.harbor, dsn=dsn):
            pass
        async with isolated(shop.harbor, dsn=dsn):
            assert len(await aenqueued(shop.harbor, shop.mail)) == 1

    asyncio.run(scene())


@pytest.mark.parametrize("wrong", [3, None, JobHandle])
def test_what_is_not_a_harbor_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="isolated: expected a Harbor, got"):
        isolated(wrong)


# A context for unit tests


def test_a_context_for_a_direct_call(shop: Shop) -> None:
    assert shop.mail(context(), "ada") == "sent to ada at 2030"
    first, third = context(), context(attempt=3)
    assert (first.job.attempts, first.fence) == (0, 1)
    assert (third.job.attempts, third.fence) == (2, 3)
    assert first.job.id != context().job.id
    first.progress(1, 2, "half")
    first.log.info("a line")
    first.cancelled.set("shutdown")
    assert first.cancelled
    with pytest.raises(RuntimeError, match="needs a driver"):
        first.transaction()


def test_a_context_of_a_given_job(shop: Shop) -> None:
    with isolated(shop.harbor):
        shop.mail.options(metadata={"tenant": "north"}, max_attempts=9).enqueue("ada")
        (job,) = enqueued(shop.harbor, shop.mail)
    made = context(job)
    assert (made.job.metadata, made.job.max_attempts, made.job.id) == ({"tenant": "north"}, 9, job.id)
    assert context(job=job, attempt=2).job.attempts == 1
    assert context(made.job, deadline=START).deadline == START
    with pytest.raises(ValueError, match="attempt: expected 1 or more, got 0"):
        context(attempt=0)
    with pytest.raises(TypeError, match="job: expected a JobRecord, got str"):
        context(job="01J")  # type: ignore[arg-type]  # wrong on purpose


def test_a_handle_of_a_block_that_is_over_is_refused() -> None:
    """It would ask the real store for a job that was never there."""
    harbor = Harbor("memory://")

    @harbor.task
    def note() -> None: ...

    with isolated(harbor):
        job, flow = note.enqueue(), chain(note.s(), note.s()).enqueue()
        with isolated(harbor):
            inner = note.enqueue()
        assert job.status() == "ready"
    for ask in (job.status, flow.status, inner.cancel, lambda: asyncio.run(job.astatus())):
        with pytest.raises(RuntimeError, match=r"within a block of isolated\(…\) that is over"):
            ask()
    assert (job == harbor.job(job.id), job.id in repr(job)) == (True, True)
    assert note.enqueue().status() == "ready"


def test_drain_on_postgres_refuses_a_time_that_freezegun_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls would wait by a clock that stands still."""
    freezegun = types.SimpleNamespace(freeze_factories=["frozen"], ignore_lists=[("asyncio.base_events",)])
    monkeypatch.setitem(sys.modules, "freezegun.api", freezegun)
    with pytest.raises(RuntimeError, match=r"freezegun has stopped the time.*ManualClock"):
        drain(Harbor("postgresql://localhost:1/never"))
    assert drain(Harbor("memory://")) == 0
