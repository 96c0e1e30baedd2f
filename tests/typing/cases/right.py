"""Calls that must pass the type checker. Never run."""

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from taskharbor import (
    Client,
    Exponential,
    Fixed,
    Harbor,
    JobContext,
    JobHandle,
    JobRequest,
    JsonCodec,
    State,
    Step,
    Task,
    Worker,
)

harbor = Harbor("memory://", codec=JsonCodec(), default_queue="home", observers=[print])


@harbor.task
def plain(to: str, subject: str = "Hello") -> str:
    return to


@harbor.task(queue="mail", max_attempts=5, timeout=30, retry=Exponential(), unrecoverable=(KeyError,), priority=3)
def configured(to: str, *, times: int = 1) -> list[str]:
    return [to]


@harbor.task
async def coroutine(a: int) -> float:
    return a


@harbor.task(retry=lambda attempts, error: timedelta(seconds=attempts), unrecoverable=ValueError)
async def context_coroutine(ctx: JobContext, a: int) -> float:
    return a


@harbor.task(retry=Fixed(3), process=True)
def context(ctx: JobContext, a: int) -> None: ...


@harbor.task
def anything(x: Any, y: int) -> int:
    return y


@harbor.task
def nothing() -> None: ...


assert_type(plain.enqueue("ada"), JobHandle[str])
assert_type(plain.enqueue("ada", subject="x").result(timeout=3), str)
assert_type(plain("ada"), str)
assert_type(configured.enqueue("ada", times=2), JobHandle[list[str]])
assert_type(configured.options(delay=60, idempotency_key="k").enqueue("ada"), JobHandle[list[str]])
assert_type(coroutine.enqueue(1), JobHandle[float])
awaitable = assert_type(coroutine(1), Coroutine[Any, Any, float])
assert_type(context_coroutine.enqueue(1).result(), float)
assert_type(context.enqueue(a=1), JobHandle[None])
assert_type(nothing.enqueue().status(), State)
assert_type(plain.s(to="a"), Step[str])
assert_type(plain.name, str)
anything.enqueue("whatever", 5)  # pyright takes a first parameter of type Any for the context
anything.enqueue(None, y=5)  # pyright takes a first parameter of type Any for the context


async def both_colours(ctx: JobContext) -> None:
    assert_type(await plain.aenqueue("ada"), JobHandle[str])
    assert_type(await (await coroutine.aenqueue(1)).aresult(timedelta(seconds=1)), float)
    assert_type(await context_coroutine(ctx, 1), float)
    assert_type(await harbor.aenqueue_many([plain.s("a"), coroutine.s(1)]), list[JobHandle[Any]])
    async with harbor:
        await (await plain.aenqueue("a")).acancel()


def takes(task: Task[[str, str], str], wider: JobHandle[object]) -> None: ...


takes(plain.options(run_at=datetime.now(UTC), connection=object()), plain.enqueue("a"))
with harbor, Client("memory://") as client:
    harbor.enqueue_many([plain.s(to="a").options(queue="q"), plain.s(to="b")])
    client.enqueue(JobRequest(type="email:send", payload={"to": "x"}, queue="mail", timeout=3))
worker: Worker = harbor.worker(queues=["mail"])
