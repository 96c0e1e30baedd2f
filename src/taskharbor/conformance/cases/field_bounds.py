"""Bounds of fields: a value within them comes back unchanged, one beyond is refused before anything is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.drivers import Fail, InvalidJob, Retry

NAMES = (
    "Ids and queue, type, group, flow and worker names are 1 to 255 bytes of UTF-8 without control "
    "characters or braces; `worker` may be empty in `reserve`."
)
KEYS = "Idempotency keys are 1 to 512 bytes of any UTF-8 text, NUL included."
METADATA = "Metadata is any such text, at most 64 entries and 16 KiB together."
PAYLOAD = "A payload has at most 1 MiB."
NUMBERS = (
    "Numbers are signed 32 bit; `max_attempts` and `group_limit` are not negative; a timeout is "
    "positive; times are aware and from 1970 to 9999."
)
OUT = "Anything out of bounds, lone surrogates included, is `InvalidJob` before anything is stored."
MIB = 1024 * 1024
BIG = 2**31 - 1


async def refused(env: Environment, **fields: Any) -> None:
    """A call with one such job is refused, and its good neighbour is not stored."""
    good = env.job()
    try:
        await env.put(good, env.job(**fields))
    except InvalidJob:
        pass
    else:
        raise AssertionError(f"taken although out of bounds: {', '.join(fields)}")
    assert await env.gone(good)


async def kept(env: Environment, **fields: Any) -> None:
    """Such a job comes back as it was given."""
    job = await env.add(**fields)
    assert (await env.info(job)).job == job


@case(NAMES)
async def longest_names(env: Environment) -> None:
    """255 bytes, most of them in characters of two bytes or four."""
    for character in ("x", "é", "😀"):
        name = env.long_name(255, character)
        env.used.add(name)
        await kept(env, id=name, queue=name, type=name, group=name, flow_id=name)
        held = await env.take_one(queues=[name], worker=name)
        assert (held.job.id, held.lease.queue, (await env.info(name)).worker) == (name, name, name)
        await env.ack(held)
        assert (await env.driver.flow(name, env.now)).status == "succeeded"
        assert await env.driver.delete([name]) == [None]


@case(NAMES, OUT)
async def names_out_of_bounds(env: Environment) -> None:
    bad = [
        "",
        env.long_name(256, "x"),
        env.long_name(256, "é"),
        "a\x00b",
        "a\nb",
        "\x7f",
        "a\x85b",
        "a{b",
        "}",
        "\ud800",
        "a\udfff",
    ]
    for field in ("id", "queue", "type", "group", "flow_id"):
        for name in bad:
            await refused(env, **{field: name})
    for name in bad[1:]:
        await refused(env, depends_on=(name,))


@case(NAMES)
async def worker_may_be_empty_in_reserve(env: Environment) -> None:
    await env.add()
    held = await env.take_one(worker="")
    assert (await env.info(held)).worker == ""


@case(KEYS, OUT)
async def keys(env: Environment) -> None:
    for key in ("k", "x" * 512, "é" * 256, "😀" * 128, "\x00" * 512, "\x00", "{}\n"):
        await kept(env, idempotency_key=key)
    for key in ("", "x" * 513, "é" * 257, "a\ud800"):
        await refused(env, idempotency_key=key)


@case(METADATA, OUT)
async def metadata(env: Environment) -> None:
    await kept(env, metadata={f"key{number}": "v" for number in range(64)})
    await kept(env, metadata={"k": "x" * (16 * 1024 - 1)})
    await kept(env, metadata={"": "", "\x00": "\x00", "é" * 100: "😀" * 1000, "{a}": "'\"\\\n"})
    await refused(env, metadata={f"key{number}": "v" for number in range(65)})
    await refused(env, metadata={"k": "x" * 16 * 1024})
    await refused(env, metadata={"k": "é" * 8192})
    await refused(env, metadata={"k": "\ud800"})
    await refused(env, metadata={"\udfff": "v"})
    await refused(env, metadata={"k": 1})


@case(PAYLOAD, OUT)
async def payload(env: Environment) -> None:
    await kept(env, payload=bytes(range(256)) * (MIB // 256))
    await kept(env, payload=b"")
    await kept(env, payload=b"\x00")
    await refused(env, payload=b"x" * (MIB + 1))
    await refused(env, payload="text")


@case(NUMBERS)
async def numbers(env: Environment) -> None:
    await kept(env, priority=BIG, attempts=BIG, max_attempts=BIG, group=env.name("g"), group_limit=BIG)
    await kept(env, priority=-(2**31))
    await kept(env, timeout=timedelta(milliseconds=1))
    await kept(env, timeout=timedelta(milliseconds=BIG))


@case(NUMBERS, OUT)
async def numbers_out_of_bounds(env: Environment) -> None:
    for field in ("priority", "attempts", "max_attempts", "group_limit"):
        for number in (2**31, -(2**31) - 1, 2**63, 2**64, 1.5, "1"):
            await refused(env, **{field: number})
    for field in ("attempts", "max_attempts", "group_limit"):
        await refused(env, **{field: -1})
    for span in (timedelta(0), timedelta(seconds=-1), timedelta(milliseconds=2**31)):
        await refused(env, timeout=span)


@case(NUMBERS)
async def attempts_at_their_largest(env: Environment) -> None:
    job = await env.add()
    held = await env.take_one()
    await env.done(Retry(held.lease, None, BIG))
    assert (await env.info(job)).job.attempts == BIG


@case(NUMBERS)
async def numbers_at_their_largest_run_beside_others(env: Environment) -> None:
    """A job with every number at its bound goes through every verb, and its neighbours do not notice."""
    first, last = await env.add_many(2)
    largest = await env.add(priority=-BIG, attempts=BIG, max_attempts=BIG, timeout=timedelta(milliseconds=BIG))
    order = [first.id, last.id, largest.id]
    held = await env.take(3)
    assert [item.job.id for item in held] == order
    assert refusals(await env.extend(*held)) == ["ok"] * 3
    for item in held:
        await env.done(Retry(item.lease, None, item.job.attempts))
    held = await env.take(3, worker="gone")
    assert [item.job.id for item in held] == order
    assert await env.driver.release("gone", env.now) == 3
    held = await env.take(3, queues=[env.queue, env.q("other")])
    assert [item.job.attempts for item in held] == [0, 0, BIG]
    for item in held:
        await env.done(Fail(item.lease, "over", item.job.attempts, env.now))
    assert await env.driver.requeue(order, env.now) == [None] * 3
    assert await env.taken_ids() == order


@case(NUMBERS)
async def first_and_last_moment(env: Environment) -> None:
    first = datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    await kept(env, run_at=first, created_at=first)
    await kept(env, run_at=last, created_at=last)
    late = await env.add(run_at=last)
    assert await env.state(late) == "scheduled"
    assert (await env.driver.inspect(late.id, last)).state == "ready"


@case(NUMBERS, OUT)
async def moments_out_of_bounds(env: Environment) -> None:
    early, naive = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2020, 1, 1)  # noqa: DTZ001 - that is the point
    for moment in (early, naive, "2020-01-01", 0):
        await refused(env, run_at=moment)
        await refused(env, created_at=moment)


@case(OUT)
async def refused_wherever_it_stands(env: Environment) -> None:
    """First or last of a call, and with a neighbour that only the store could refuse."""
    broken: tuple[Callable[[], dict[str, Any]], ...] = (lambda: {"type": "\ud800"}, lambda: {"priority": 2**40})
    for fields in broken:
        for last in (True, False):
            jobs = [env.job(), env.job(**fields())]
            try:
                await env.put(*(jobs if last else jobs[::-1]))
            except InvalidJob:
                pass
            else:
                raise AssertionError("an invalid job was taken")
            assert await env.gone(jobs[0])
    assert await env.counts() == {}
