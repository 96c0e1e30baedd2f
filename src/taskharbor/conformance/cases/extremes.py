"""Extremes: every field of a job, and every number and time of an outcome, at its bound and one beyond, through every
verb, beside healthy neighbours in the same call. A value at the bound is accepted; one
beyond is refused, and nothing else in the call is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of, refusals
from taskharbor.drivers import Ack, Fail, InvalidJob, Lease, Outcome, Reserved, Retry, TaskHarborError, replace

NUMBERS = (
    "Numbers are signed 32 bit; `max_attempts` and `group_limit` are not negative; a timeout is "
    "positive; times are aware and from 1970 to 9999."
)
NAMES = (
    "Ids and queue, type, group, flow and worker names are 1 to 255 bytes of UTF-8 without control "
    "characters or braces; `worker` may be empty in `reserve`."
)
OUT = "Anything out of bounds, lone surrogates included, is `InvalidJob` before anything is stored."
MS = timedelta(milliseconds=1)
FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
EARLY = FIRST - MS
BIG = 2**31 - 1
MIB = 1024 * 1024
LONG = "é" * 127 + "x"  # 255 bytes


def inside(env: Environment) -> Iterator[tuple[str, Any]]:
    """Each field with the values at its bounds."""
    for field in ("type", "group", "flow_id"):
        yield from ((field, value) for value in ("x", "x" * 255, LONG, "😀" * 63))
    yield "id", env.long_name(255)
    yield from (("payload", value) for value in (b"", b"\x00", b"\xff" * MIB))
    yield from (("idempotency_key", value) for value in ("\x00", "x" * 512, "é" * 256))
    yield from (("metadata", value) for value in ({}, {f"{n}": "" for n in range(64)}, {"k": "x" * (16 * 1024 - 1)}))
    yield from (("priority", value) for value in (-BIG - 1, BIG))
    for field in ("attempts", "max_attempts", "group_limit"):
        yield from ((field, value) for value in (0, BIG))
    yield from (("timeout", value) for value in (MS, BIG * MS))
    yield from (("created_at", value) for value in (FIRST + MS, LAST))  # the first of all: unset
    yield "run_at", FIRST


def outside() -> Iterator[tuple[str, Any]]:
    """Each field with values one beyond its bounds."""
    for field in ("id", "queue", "type", "group", "flow_id"):
        yield from ((field, value) for value in ("", "x" * 256, LONG + "x", "a\x00", "{", "\ud800"))
    yield "payload", b"x" * (MIB + 1)
    yield from (("idempotency_key", value) for value in ("", "x" * 513, "é" * 257, "\udfff"))
    yield from (("metadata", value) for value in ({f"{n}": "" for n in range(65)}, {"k": "x" * 16 * 1024}))
    yield from (("priority", value) for value in (-BIG - 2, BIG + 1))
    for field in ("attempts", "max_attempts", "group_limit"):
        yield from ((field, value) for value in (-1, BIG + 1, 2**63))
    yield from (("timeout", value) for value in (timedelta(0), -MS, (BIG + 1) * MS))
    for field in ("run_at", "created_at"):
        yield from ((field, value) for value in (EARLY, LAST.replace(tzinfo=None)))


def fields_of(field: str, value: Any) -> dict[str, Any]:
    return {field: value, "group": "g"} if field == "group_limit" else {field: value}


async def take(env: Environment, queue: str, at: float, worker: str) -> dict[str, Reserved]:
    """All three. Jobs of one group come one after the other."""
    found = await env.take(queues=[queue], at=at, worker=worker)
    return {item.job.id: item for item in found}


async def journey(env: Environment, number: int, field: str, value: Any) -> None:
    """A job at a bound between two others, through every verb."""
    queue, worker = env.q(f"{number}"), env.name(f"worker {number}")
    first, last = env.job(queue=queue), env.job(queue=queue)
    extreme = env.job(**{"queue": queue, **fields_of(field, value)})
    await env.put(first, extreme, last)
    names = {first.id, extreme.id, last.id}
    assert (await env.info(extreme)).job == extreme
    held = await take(env, queue, 0, worker)
    assert held.keys() == names
    assert held[extreme.id].job == replace(extreme, deliveries=1, **env.ran(0, worker))
    assert all(isinstance(answer, Lease) for answer in await env.extend(*held.values()))
    again = [Retry(item.lease, None, item.job.attempts, "snoozed") for item in held.values()]
    assert await env.settle(*again) == [None] * 3
    assert (await take(env, queue, 0, worker)).keys() == names
    assert await env.driver.release(worker, env.now) == 3
    held = await take(env, queue, 0, worker)
    assert {item.job.lost for item in held.values()} == {1}
    held = await take(env, queue, 20, worker)  # their leases are over
    assert {item.job.lost for item in held.values()} == {2}
    spawned = [env.job(**{"queue": queue, **fields_of(field, value)}) for _ in range(2)]
    if field in ("id", "idempotency_key"):
        spawned = [env.job(queue=queue) for _ in range(2)]
    over: tuple[Outcome, ...] = (
        Ack(held[first.id].lease, b"1", spawn=(spawned[0],)),
        Fail(held[extreme.id].lease, "over", BIG, env.at(20), spawn=(spawned[1],)),
        Ack(held[last.id].lease),
    )
    assert await env.settle(*over, at=20) == [None] * 3
    assert [(await env.info(job, 20)).job == job for job in spawned] == [True, True]
    assert await env.driver.requeue([extreme.id], env.at(20), reset_attempts=True) == [None]
    assert await env.driver.cancel([extreme.id, *ids_of(spawned)], env.at(20)) == [None] * 3
    assert await env.driver.requeue([extreme.id], env.at(20), run_at=LAST) == [None]
    info = await env.info(extreme, 20)
    assert (info.state, info.job.run_at) == ("scheduled", LAST)
    assert len(await env.all_ids(20, queue=queue)) == 5
    assert await env.counts(20, queue) == {"done": 2, "cancelled": 2, "scheduled": 1}
    for name in ("type", "group", "flow_id"):
        if name == field:
            assert extreme.id in await env.all_ids(20, queue=queue, **{name: value})
    assert (await env.driver.results([first.id, extreme.id]))[first.id] == b"1"
    assert await env.driver.delete([*names, *ids_of(spawned)]) == [None] * 5


@case(NUMBERS, NAMES)
async def at_the_bound(env: Environment) -> None:
    for number, (field, value) in enumerate(inside(env)):
        try:
            await journey(env, number, field, value)
        except Exception as error:
            error.add_note(f"{field} was at its bound, the {number}th of them")
            raise


@case(OUT)
async def one_beyond(env: Environment) -> None:
    """Refused through enqueue, alone and beside others, and through both kinds of spawn, whose lease stays."""
    first, last = await env.add_many(2)
    held, other = await env.take(2)
    for field, value in outside():
        beyond = env.job(**fields_of(field, value))
        good = env.job()
        for jobs in ([beyond], [good, beyond], [beyond, good]):
            try:
                await env.put(*jobs)
            except InvalidJob:
                continue
            raise AssertionError(f"{field} was taken, one beyond its bound")
        for outcome in (
            Ack(held.lease, spawn=(good, beyond)),
            Fail(held.lease, "over", 1, env.now, spawn=(beyond, good)),
        ):
            answers = await env.settle(outcome, Retry(other.lease, None, 0, f"beside {field}"))
            assert refusals(answers) == ["InvalidJob", "ok"], f"{field} was spawned, one beyond its bound"
            (other,) = await env.take(1)
        assert await env.gone(good)
    assert await env.states(first, last) == ["inflight", "inflight"]
    assert await env.counts() == {"inflight": 2}
    assert isinstance((await env.extend(held))[0], Lease)


def outcomes(lease: Lease, now: datetime) -> Iterator[tuple[Outcome, bool]]:
    """Outcomes with a number or a time at its bound, or one beyond; and whether it is accepted."""
    for attempts, taken in ((0, True), (BIG, True), (-1, False), (BIG + 1, False), (2**70, False)):
        yield Retry(lease, None, attempts), taken
        yield Fail(lease, "over", attempts, now), taken
    for moment, taken in ((FIRST, True), (LAST, True), (EARLY, False), (LAST.replace(tzinfo=None), False)):
        yield Retry(lease, moment, 1), taken
        yield Retry(lease, None, 1, "failed", moment), taken
        yield Fail(lease, "over", 1, moment), taken


@case(NUMBERS, OUT)
async def outcomes_at_the_bound_and_beyond(env: Environment) -> None:
    """Each between two acks of others in the same call."""
    count = sum(1 for _ in outcomes(Lease("", "", "", env.now), env.now))
    for number in range(count):
        queue = env.q(f"{number}")
        first, middle, last = await env.add_many(3, queue=queue)
        held = {item.job.id: item for item in await env.take(queues=[queue])}
        outcome, taken = list(outcomes(held[middle.id].lease, env.now))[number]
        answers = await env.settle(Ack(held[first.id].lease), outcome, Ack(held[last.id].lease))
        assert refusals(answers) == ["ok", "ok" if taken else "InvalidJob", "ok"], f"{outcome!r}"
        info = await env.info(middle)
        if not taken:
            assert (info.state, info.job.attempts, info.job.failed_at) == ("inflight", 0, None)
            await env.ack(held[middle.id])
        elif isinstance(outcome, Retry | Fail):
            assert (info.job.attempts, info.job.failed_at) == (outcome.attempts, outcome.failed_at)
            if isinstance(outcome, Retry):
                assert info.job.run_at == outcome.run_at


@case(NUMBERS, OUT)
async def requeue_at_the_bound_and_beyond(env: Environment) -> None:
    for moment, taken in ((FIRST, True), (LAST, True), (EARLY, False), (LAST.replace(tzinfo=None), False)):
        dead = await env.dead(queue=env.q(f"{moment}"))
        try:
            answers = refusals(await env.driver.requeue([dead.id], env.now, run_at=moment))
        except TaskHarborError as error:
            answers = [type(error).__name__]
        assert answers == ["ok" if taken else "InvalidJob"]
        info = await env.info(dead)
        assert (info.state == "dlq") is not taken
        assert info.job.run_at == (moment if taken else None)


@case(NUMBERS)
async def the_first_and_the_last_minute(env: Environment) -> None:
    """`now` itself at both bounds: a job is stored, reserved, extended, retried, lost, taken over and done."""
    for number, now in enumerate((FIRST, LAST - timedelta(minutes=1))):
        queue, driver, lease = env.q(f"{number}"), env.driver, timedelta(seconds=5)
        job = env.job(queue=queue, created_at=now)
        await driver.enqueue([job], now)
        (held,) = await driver.reserve([queue], now, lease, 1)
        assert held.lease.expires_at == now + lease
        assert (await driver.extend([held.lease], now, 2 * lease))[0] == replace_end(held.lease, now + 2 * lease)
        assert await driver.settle([Retry(held.lease, now + lease, 1, "failed", now)], now) == [None]
        assert await driver.reserve([queue], now, lease, 1) == []
        (held,) = await driver.reserve([queue], now + lease, lease, 1, env.name("w"))
        (held,) = await driver.reserve([queue], now + 2 * lease, lease, 1, env.name("w"))
        assert (held.job.deliveries, held.job.lost) == (3, 1)
        assert await driver.settle([Ack(held.lease)], now + 2 * lease) == [None]
        info = await driver.inspect(job.id, now + 2 * lease)
        assert (info.state, info.job.finished_at) == ("done", now + 2 * lease)


def replace_end(lease: Lease, end: datetime) -> Lease:
    return Lease(lease.job_id, lease.queue, lease.token, end)
