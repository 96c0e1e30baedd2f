"""A step whose memo and writes are committed together, in the job's own store."""

from pathlib import Path
from typing import Any

import pytest

from taskharbor import FeatureMissing, Fixed, Harbor, JobContext
from tests.servers import postgres

pytestmark = pytest.mark.lane("processes")
INSERT = "insert into seats (flight) values ('LH 4')"


@pytest.fixture(params=["sqlite", "postgres"])
def dsn(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return postgres.shared().address(postgres.shared().store())
    return f"sqlite:///{tmp_path}/jobs.db"


def ran(dsn: str, handler: Any, attempts: int = 3) -> Any:
    """The result of one job, and how many seats were booked."""
    with Harbor(dsn) as harbor:

        async def table(ctx: JobContext) -> None:
            async with ctx.transaction() as connection:
                made = connection.execute("create table seats (flight text)")
                if hasattr(made, "__await__"):
                    await made

        def count(ctx: JobContext) -> int:
            with ctx.transaction() as connection:
                found: int = connection.execute("select count(*) from seats").fetchone()[0]
                return found

        first = harbor.task(name="table")(table).enqueue()
        job = harbor.task(name="book", retry=Fixed(0), max_attempts=attempts)(handler)
        seats = harbor.task(name="count")(count)
        harbor.worker(concurrency=1).run(until_empty=True)
        assert first.status() == "done"
        booking = job.enqueue()
        harbor.worker(concurrency=1).run(until_empty=True)
        counted = seats.enqueue()
        harbor.worker(concurrency=1).run(until_empty=True)
        state = booking.status()
        return booking.result() if state == "done" else booking.info().job.last_error, counted.result()


def plain(ctx: JobContext) -> list[Any]:
    with ctx.step_transaction("book", type=int) as step:
        if not step.done:
            step.connection.execute(INSERT)
            step.result = 17
    if ctx.fence < 3:
        raise ConnectionError("the mail server is away")
    return [step.done, step.value, step.connection is None]


async def coroutine(ctx: JobContext) -> list[Any]:
    async with ctx.step_transaction("book") as step:
        if not step.done:
            made = step.connection.execute(INSERT)
            if hasattr(made, "__await__"):
                await made
            step.result = 17
    if ctx.fence < 3:
        raise ConnectionError("the mail server is away")
    return [step.done, step.value, step.connection is None]


@pytest.mark.parametrize("handler", [plain, coroutine])
def test_it_is_committed_once(dsn: str, handler: Any) -> None:
    assert ran(dsn, handler) == ([True, 17, True], 1)


def test_a_block_that_raises_undoes_the_memo_and_the_writes(dsn: str) -> None:
    def handler(ctx: JobContext) -> list[Any]:
        with ctx.step_transaction("book") as step:
            step.connection.execute(INSERT)
            if ctx.fence < 3:
                raise ConnectionError("amid the step")
        with ctx.step_transaction("again") as other:
            other.result = "x"
        return [step.done, step.value, other.value, ctx.step("behind", lambda: 1)]

    assert ran(dsn, handler) == ([False, None, "x", 1], 1)


def test_it_is_refused_beside_another_transaction(dsn: str) -> None:
    def handler(ctx: JobContext) -> str:
        with ctx.step_transaction("outer"):
            for call in (lambda: ctx.step("inner", str), lambda: ctx.step_transaction("inner").__enter__()):
                with pytest.raises(RuntimeError, match="transaction"):
                    call()
        with ctx.transaction() as connection:
            connection.execute(INSERT)
            with pytest.raises(RuntimeError, match="another transaction"), ctx.step_transaction("late"):
                pass
        return "refused"

    assert ran(dsn, handler, 1) == ("refused", 1)


def test_a_store_without_sql_has_none() -> None:
    def handler(ctx: JobContext) -> str:
        with pytest.raises(FeatureMissing, match="SQL store"), ctx.step_transaction("book"):
            pass
        return "refused"

    with Harbor("memory://") as harbor:
        job = harbor.task(name="book")(handler).enqueue()
        harbor.worker().run(until_empty=True)
        assert job.result() == "refused"
