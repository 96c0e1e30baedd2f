"""Notes: what a handler last reported, stored with the extension of its lease."""

from __future__ import annotations

from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.conformance.parts import ATTEMPTS
from taskharbor.drivers import Ack, Cancelled, Fail, Lease, Outcome, Reserved, Retry

STORED = (
    "The note of a lease that holds is stored, also where the end of the lease does not move; a refused lease stores "
    "none."
)
STAYS = (
    "A note replaces the one before, also by an empty one, and stays over retries, releases and takeovers and after "
    "the end of the job; requeue empties it."
)
BOUND = (
    "A note over 1 KiB, or one that is not bytes, is `InvalidJob` in the place of its lease, whatever the lease: that "
    "one is not extended, the others are."
)


async def noted(env: Environment, held: Reserved, note: Any, at: float = 0, lease: float = 10) -> None:
    answers = await env.extend(held, at=at, lease=lease, notes={held.lease.token: note})
    assert refusals(answers) == ["ok"]


async def note_of(env: Environment, job: Reserved | str, at: float = 0) -> bytes:
    return (await env.info(job, at)).job.note


@case(STORED, needs=ATTEMPTS)
async def stored_with_the_extension(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=10)
    assert held.job.note == b""
    (answer,) = await env.extend(held, at=5, lease=10, notes={held.lease.token: b"\x00half\xff"})
    assert answer == Lease(held.job.id, env.queue, held.lease.token, env.at(15))
    assert await note_of(env, held, 6) == b"\x00half\xff"
    await env.ack(held, at=14)


@case(STORED, needs=ATTEMPTS)
async def also_where_the_end_does_not_move(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=10)
    (answer,) = await env.extend(held, at=1, lease=1, notes={held.lease.token: b"n"})
    assert isinstance(answer, Lease)
    assert answer.expires_at == env.at(10)
    assert await note_of(env, held, 1) == b"n"


@case(STORED, needs=ATTEMPTS)
async def only_those_that_have_one(env: Environment) -> None:
    """Leases without a note are extended as ever; notes of other tokens are nobody's."""
    await env.add_many(3)
    first, second, third = await env.take(3)
    notes = {first.lease.token: b"1", third.lease.token: b"3", "f" * 32: b"of another"}
    assert refusals(await env.extend(first, second, third, at=5, notes=notes)) == ["ok"] * 3
    assert [await note_of(env, held, 5) for held in (first, second, third)] == [b"1", b"", b"3"]
    assert refusals(await env.extend(first, second, at=6, notes={})) == ["ok"] * 2
    assert refusals(await env.extend(first, second, at=6)) == ["ok"] * 2
    assert await note_of(env, first, 6) == b"1"
    assert await env.extend(at=7, notes=notes) == []


@case(STORED, needs=ATTEMPTS)
async def a_refused_lease_stores_none(env: Environment) -> None:
    """Expired, settled, taken over, of another job, unknown: the note of a worker that has lost its job."""
    await env.add_many(5)
    expired, taken, settled, other, sound = await env.take(5, lease=5)
    await env.extend(settled, other, sound, lease=100)
    await env.ack(settled)
    again = (await env.take(1, at=6, lease=100))[0]
    assert again.job.id == expired.job.id
    mixed = Lease(other.job.id, env.queue, sound.lease.token, env.at(100))
    unknown = Lease(env.name("unknown"), env.queue, "e" * 32, env.at(100))
    asked = [expired.lease, taken.lease, settled.lease, mixed, unknown, sound.lease]
    notes = {lease.token: b"lost" for lease in asked}
    answers = await env.extend(*asked, at=7, lease=100, notes=notes)
    assert refusals(answers) == [
        "LeaseMismatch",
        "LeaseExpired",
        "JobNotInflight",
        "LeaseMismatch",
        "JobNotFound",
        "ok",
    ]
    assert [await note_of(env, held, 7) for held in (expired, taken, settled, other)] == [b""] * 4
    assert await note_of(env, sound, 7) == b"lost"


@case(STORED, needs=ATTEMPTS)
async def to_the_millisecond(env: Environment) -> None:
    await env.add_many(2)
    first, second = await env.take(2, lease=5)
    await noted(env, first, b"in time", at=4.999)
    answers = await env.extend(second, at=5, notes={second.lease.token: b"late"})
    assert refusals(answers) == ["LeaseExpired"]
    assert [await note_of(env, held, 5) for held in (first, second)] == [b"in time", b""]


@case(STAYS, needs=ATTEMPTS)
async def replaced(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    for note in (b"one", b"two", b"", b"three"):
        await noted(env, held, note)
        assert await note_of(env, held) == note


@case(STAYS, needs=ATTEMPTS)
async def stays_after_the_end(env: Environment) -> None:
    for number in range(4):
        queue = env.q(f"{number}")
        await env.add(queue=queue)
        held = await env.take_one(queues=[queue])
        await noted(env, held, b"far")
        ends: list[Outcome] = [
            Ack(held.lease),
            Retry(held.lease, None, 1),
            Fail(held.lease, "over", 1, env.now),
            Cancelled(held.lease, "over"),
        ]
        await env.done(ends[number])
        assert await note_of(env, held) == b"far"
        if number == 1:
            assert (await env.take_one(queues=[queue])).job.note == b"far"


@case(STAYS, needs=ATTEMPTS)
async def stays_when_it_is_lost(env: Environment) -> None:
    await env.add_many(2)
    expired, released = await env.take(2, lease=5, worker=env.name("w"))
    await noted(env, expired, b"e", lease=5)
    await noted(env, released, b"r", lease=50)
    await env.driver.release(env.name("w"), env.at(6))
    found = {each.job.id: each.job.note for each in await env.take(at=7)}
    assert found == {expired.job.id: b"e", released.job.id: b"r"}


@case(STAYS, needs=ATTEMPTS)
async def emptied_by_requeue(env: Environment) -> None:
    await env.add_many(2)
    dead, cancelled = await env.take(2)
    await noted(env, dead, b"d")
    await noted(env, cancelled, b"c")
    await env.fail(dead)
    await env.driver.cancel([cancelled.job.id], env.now)
    assert [await note_of(env, held) for held in (dead, cancelled)] == [b"d", b"c"]
    await env.driver.requeue([dead.job.id, cancelled.job.id], env.now)
    assert [await note_of(env, held) for held in (dead, cancelled)] == [b"", b""]


@case(BOUND, needs=ATTEMPTS)
async def at_the_bound(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    note = bytes(range(256)) * 4
    await noted(env, held, note)
    assert await note_of(env, held) == note


@case(BOUND, needs=ATTEMPTS)
async def one_beyond(env: Environment) -> None:
    await env.add_many(3)
    first, second, third = await env.take(3, lease=10)
    bad: list[Any] = [b"x" * 1025, "text", None, bytearray(b"x"), 7]
    for wrong in bad:
        notes: dict[str, Any] = {first.lease.token: b"1", second.lease.token: wrong, third.lease.token: b"3"}
        answers = await env.extend(first, second, third, at=5, lease=10, notes=notes)
        assert refusals(answers) == ["ok", "InvalidJob", "ok"]
    ends = [(await env.info(held, 5)).lease_expires_at for held in (first, second, third)]
    assert ends == [env.at(15), env.at(10), env.at(15)]
    assert [await note_of(env, held, 5) for held in (first, second, third)] == [b"1", b"", b"3"]


@case(BOUND, needs=ATTEMPTS)
async def whatever_the_lease(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    await env.ack(held)
    answers = await env.extend(held, notes={held.lease.token: b"x" * 1025})
    assert refusals(answers) == ["InvalidJob"]
