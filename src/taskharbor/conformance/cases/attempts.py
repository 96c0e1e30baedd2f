"""Attempts: what a record says of its executions, and what a reservation says of one that was lost."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.conformance.parts import ATTEMPTS
from taskharbor.drivers import Ack, Cancelled, Fail, JobRecord, Lease, Lost, Outcome, Reserved, Retry, replace

BEGAN = (
    "Every reservation writes its `now` and its worker into `began_at` and `ran_on`; they stay after its end, whatever "
    "ended it, until the next reservation."
)
RESERVED = "A reserved job has all fields as they read after the reservation."
FRESH = (
    "Of an enqueued or spawned record `began_at`, `ran_on`, `trail`, `error_class`, `fingerprint`, `note` and `edits` "
    "are ignored; `keep_for` is stored."
)
TRAIL = (
    "An outcome with a `trail` replaces that of the record; an empty one leaves it, and so does everything that is not "
    "an outcome."
)
ERRORS = (
    "Retry replaces `error_class` and `fingerprint` by what is not empty; Fail replaces both, also by an empty text; "
    "everything else leaves them."
)
BOUNDS = (
    "A `trail` over 16 KiB, and an `error_class` or `fingerprint` over 255 bytes or with NUL, is `InvalidJob` after "
    "the refusals for the lease."
)
LOST_BY = (
    "`lost_by` names the worker, the begin and the end of the execution before, if that one ended without an outcome; "
    "else it is None."
)
ENDED = "An execution whose lease expired ended with its lease; a released one ended at the `now` of the release."
DIRECTLY = (
    "Only a loss directly before the reservation counts: after an outcome, a cancel or a requeue `lost_by` is None."
)


def began(record: JobRecord) -> tuple[datetime | None, str]:
    return record.began_at, record.ran_on


async def written(env: Environment, job: JobRecord | Reserved, at: float = 0) -> tuple[bytes, str, str]:
    record = (await env.info(job, at)).job
    return record.trail, record.error_class, record.fingerprint


def outcomes(lease: Lease, now: datetime, **fields: Any) -> list[Outcome]:
    """One of each kind; `fields` of those that have them."""
    trail = {name: value for name, value in fields.items() if name == "trail"}
    return [
        Ack(lease, **trail),
        Retry(lease, None, 1, **fields),
        Fail(lease, "over", 1, now, **fields),
        Cancelled(lease, "over", **trail),
    ]


@case(BEGAN, RESERVED, needs=ATTEMPTS)
async def a_reservation_is_noted(env: Environment) -> None:
    job = await env.add()
    assert began((await env.info(job)).job) == (None, "")
    held = await env.take_one(at=1, worker=env.name("w"))
    assert began(held.job) == (env.at(1), env.name("w"))
    info = await env.info(job, 2)
    assert info.job == held.job
    assert info.worker == env.name("w")
    assert (await env.driver.list(now=env.at(2), queue=env.queue)).items == (info,)


@case(BEGAN, needs=ATTEMPTS)
async def without_a_name(env: Environment) -> None:
    await env.add_many(2)
    first = await env.take_one(worker=env.name("w"), lease=1)
    assert began((await env.take_one(at=0.5)).job) == (env.at(0.5), "")
    again = await env.take_one(at=1)
    assert (again.job.id, began(again.job)) == (first.job.id, (env.at(1), ""))


@case(BEGAN, needs=ATTEMPTS)
async def it_stays_after_the_end(env: Environment) -> None:
    for number in range(4):
        queue = env.q(f"{number}")
        await env.add(queue=queue)
        held = await env.take_one(at=1, worker=env.name("w"), queues=[queue])
        await env.done(outcomes(held.lease, env.at(2))[number], at=2)
        info = await env.info(held, 3)
        assert (began(info.job), info.worker) == ((env.at(1), env.name("w")), "")


@case(BEGAN, needs=ATTEMPTS)
async def it_stays_after_every_other_end(env: Environment) -> None:
    """Cancelled by an operator, released, expired, requeued."""
    cancelled, released, expired = await env.add_many(3)
    worker, other = env.name("w"), env.name("v")
    await env.take(1, at=1, worker=other, lease=100)
    await env.take(1, at=1, worker=worker, lease=100)
    await env.take(1, at=1, worker=other, lease=5)
    await env.driver.cancel([cancelled.id], env.at(2))
    await env.driver.release(worker, env.at(2))
    for job, name in ((cancelled, other), (released, worker), (expired, other)):
        assert began((await env.info(job, 10)).job) == (env.at(1), name)
    await env.driver.requeue([cancelled.id], env.at(11))
    assert began((await env.info(cancelled, 11)).job) == (env.at(1), other)
    taken = await env.take(at=12, worker=env.name("third"))
    assert [began(each.job) for each in taken] == [(env.at(12), env.name("third"))] * 3


@case(BEGAN, needs=ATTEMPTS)
async def an_extension_changes_nothing_of_it(env: Environment) -> None:
    job = await env.add()
    held = await env.take_one(at=1, worker=env.name("w"))
    await env.extend(held, at=5)
    assert began((await env.info(job, 5)).job) == (env.at(1), env.name("w"))


@case(FRESH, needs=ATTEMPTS)
async def what_is_not_taken_from_a_record(env: Environment) -> None:
    """Each field alone and all together; enqueued alone (which may be a shorter way), with a dependency, spawned."""
    dirty: dict[str, Any] = {
        "began_at": env.at(-9),
        "ran_on": "old",
        "trail": b"old",
        "error_class": "old",
        "fingerprint": "old",
        "note": b"old",
        "edits": 7,
    }
    await env.add(queue=env.q("first"))
    parent = await env.take_one(queues=[env.q("first")])
    spawned = [env.job()]
    for fields in (dirty, *({name: value} for name, value in dirty.items())):
        clean = [env.job() for _ in range(3)]
        await env.put(replace(clean[0], **fields))
        await env.put(replace(clean[1], **fields), replace(clean[2], depends_on=(clean[1].id,), **fields))
        for job in (*clean[:2], replace(clean[2], depends_on=(clean[1].id,))):
            assert (await env.info(job)).job == job, f"taken: {fields.keys()}"
        spawned.append(env.job())
        spawned[-1] = replace(spawned[-1], **fields)
    await env.done(Ack(parent.lease, spawn=tuple(spawned)))
    for job in spawned:
        record = (await env.info(job)).job
        assert record == replace(spawned[0], id=job.id), "taken from a spawned record"


@case(TRAIL, needs=ATTEMPTS)
async def every_outcome_replaces_the_trail(env: Environment) -> None:
    for number in range(4):
        queue = env.q(f"{number}")
        await env.add(queue=queue)
        held = await env.take_one(queues=[queue])
        await env.done(Retry(held.lease, None, 1, trail=b"one"))
        held = await env.take_one(queues=[queue])
        assert held.job.trail == b"one"
        await env.done(outcomes(held.lease, env.now, trail=b"\x00two\xff")[number])
        assert (await env.info(held)).job.trail == b"\x00two\xff"


@case(TRAIL, needs=ATTEMPTS)
async def an_empty_one_leaves_it(env: Environment) -> None:
    for number in range(4):
        queue = env.q(f"{number}")
        await env.add(queue=queue)
        held = await env.take_one(queues=[queue])
        await env.done(Retry(held.lease, None, 1, trail=b"one"))
        held = await env.take_one(queues=[queue])
        await env.done(outcomes(held.lease, env.now)[number])
        assert (await env.info(held)).job.trail == b"one"


@case(TRAIL, ERRORS, needs=ATTEMPTS)
async def what_is_not_an_outcome_leaves_all(env: Environment) -> None:
    """Expiry, release, cancel, requeue, extend."""
    job = await env.add()
    held = await env.take_one(worker=env.name("w"))
    await env.done(Retry(held.lease, None, 1, error_class="Boom", fingerprint="f1", trail=b"one"))
    kept = (b"one", "Boom", "f1")
    held = await env.take_one(lease=5)
    await env.extend(held, lease=6)
    assert await written(env, job, 6) == kept
    await env.take_one(at=6, worker=env.name("w"))
    await env.driver.release(env.name("w"), env.at(7))
    assert await written(env, job, 7) == kept
    await env.driver.cancel([job.id], env.at(8))
    assert await written(env, job, 8) == kept
    await env.driver.requeue([job.id], env.at(9))
    assert await written(env, job, 9) == kept
    again = await env.take_one(at=10)
    assert (again.job.trail, again.job.error_class, again.job.fingerprint) == kept


@case(ERRORS, needs=ATTEMPTS)
async def retry_replaces_what_it_has(env: Environment) -> None:
    await env.add()
    seen = []
    for error_class, fingerprint in (("", ""), ("A", "1"), ("B", ""), ("", "2"), ("", "")):
        held = await env.take_one()
        await env.done(Retry(held.lease, None, 1, error_class=error_class, fingerprint=fingerprint))
        seen.append((await written(env, held))[1:])
    assert seen == [("", ""), ("A", "1"), ("B", "1"), ("B", "2"), ("B", "2")]


@case(ERRORS, needs=ATTEMPTS)
async def fail_replaces_both(env: Environment) -> None:
    job = await env.add()
    seen = []
    for error_class, fingerprint in (("A", "1"), ("B", ""), ("", "2"), ("", "")):
        held = await env.take_one()
        await env.done(Fail(held.lease, "over", 1, env.now, error_class=error_class, fingerprint=fingerprint))
        seen.append((await written(env, held))[1:])
        await env.driver.requeue([job.id], env.now)
    assert seen == [("A", "1"), ("B", ""), ("", "2"), ("", "")]


@case(ERRORS, needs=ATTEMPTS)
async def ack_and_cancelled_leave_the_error(env: Environment) -> None:
    for number in (0, 3):
        queue = env.q(f"{number}")
        await env.add(queue=queue)
        held = await env.take_one(queues=[queue])
        await env.done(Retry(held.lease, None, 1, error_class="A", fingerprint="1"))
        held = await env.take_one(queues=[queue])
        await env.done(outcomes(held.lease, env.now)[number])
        assert (await written(env, held))[1:] == ("A", "1")


@case(TRAIL, ERRORS, needs=ATTEMPTS)
async def a_repetition_changes_nothing(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    await env.done(Fail(held.lease, "over", 1, env.now, error_class="A", fingerprint="1", trail=b"one"))
    await env.done(Fail(held.lease, "over", 1, env.now, error_class="B", fingerprint="2", trail=b"two"))
    assert await written(env, held) == (b"one", "A", "1")


@case(TRAIL, needs=ATTEMPTS)
async def an_ack_with_a_trail_is_an_ack(env: Environment) -> None:
    """With its result, its spawn, its handover, and its dependents."""
    first, second = await env.add_many(2)
    await env.add(depends_on=(first.id,))
    heir = await env.add(depends_on=(second.id,))
    one, two = await env.take(2)
    spawned, taker = env.job(), env.job()
    await env.done(Ack(one.lease, b"1", (spawned,), trail=b"t"), at=1)
    await env.done(Ack(two.lease, b"2", (taker,), taker.id, b"u"), at=1)
    for held, trail, result in ((one, b"t", b"1"), (two, b"u", b"2")):
        record = (await env.info(held, 1)).job
        assert (record.trail, record.result, record.finished_at) == (trail, result, env.at(1))
    assert (await env.info(heir, 1)).waiting_for == (taker.id,)
    assert len(await env.take(at=1)) == 3


@case(BOUNDS, needs=ATTEMPTS)
async def at_the_bound(env: Environment) -> None:
    """Binary trails of 16 KiB, labels of 255 bytes with characters of several bytes and with braces."""
    trail, label = bytes(range(256)) * 64, "é" * 127 + "}"
    for number in range(4):
        queue = env.q(f"{number}")
        await env.add(queue=queue)
        held = await env.take_one(queues=[queue])
        await env.done(outcomes(held.lease, env.now, trail=trail, error_class=label, fingerprint=label)[number])
        found = await written(env, held)
        assert found[0] == trail
        assert found[1:] == ((label, label) if number in (1, 2) else ("", ""))


@case(BOUNDS, needs=ATTEMPTS)
async def one_beyond(env: Environment) -> None:
    """Each between two acks of others in the same call."""
    wrong: list[dict[str, Any]] = [{"trail": b"x" * (16 * 1024 + 1)}, {"trail": "text"}]
    for name in ("error_class", "fingerprint"):
        wrong += [{name: value} for value in ("x" * 256, "é" * 128, "a\x00b", "\ud800", 7)]
    for number, fields in enumerate(wrong):
        kinds = range(4) if "trail" in fields else (1, 2)
        for kind in kinds:
            queue = env.q(f"{number} {kind}")
            first, middle, last = await env.add_many(3, queue=queue)
            held = {each.job.id: each.lease for each in await env.take(queues=[queue])}
            bad = outcomes(held[middle.id], env.now, **fields)[kind]
            answers = await env.settle(Ack(held[first.id]), bad, Ack(held[last.id]))
            assert refusals(answers) == ["ok", "InvalidJob", "ok"], f"{fields.keys()} of {type(bad).__name__}"
            assert await env.state(middle) == "inflight"
            assert await written(env, middle) == (b"", "", "")


@case(BOUNDS, needs=ATTEMPTS)
async def the_lease_is_checked_first(env: Environment) -> None:
    await env.add_many(2)
    over, acked = await env.take(2, lease=5)
    await env.ack(acked)
    long = b"x" * (16 * 1024 + 1)
    unknown = Lease(env.name("unknown"), env.queue, over.lease.token, env.at(9))
    answers = await env.settle(Ack(unknown, trail=long), Retry(acked.lease, None, 1, trail=long))
    assert refusals(answers) == ["JobNotFound", "JobNotInflight"]
    assert refusals(await env.settle(Ack(over.lease, trail=long), at=5)) == ["LeaseExpired"]


# What was lost before


@case(LOST_BY, ENDED, needs=ATTEMPTS)
async def taken_over(env: Environment) -> None:
    await env.add()
    first = await env.take_one(at=1, lease=5, worker=env.name("w"))
    assert first.lost_by is None
    second = await env.take_one(at=60, worker=env.name("v"))
    assert second.lost_by == Lost(env.name("w"), env.at(1), env.at(6))
    assert (second.job.lost, began(second.job)) == (1, (env.at(60), env.name("v")))


@case(ENDED, needs=ATTEMPTS)
async def the_end_of_an_extended_lease(env: Environment) -> None:
    await env.add()
    held = await env.take_one(at=1, lease=5, worker=env.name("w"))
    await env.extend(held, at=4, lease=20)
    await env.extend(held, at=5, lease=1)
    assert await env.take(at=23.999) == []
    assert (await env.take_one(at=24)).lost_by == Lost(env.name("w"), env.at(1), env.at(24))


@case(LOST_BY, ENDED, needs=ATTEMPTS)
async def released(env: Environment) -> None:
    await env.add()
    await env.take_one(at=1, worker=env.name("w"))
    await env.driver.release(env.name("w"), env.at(3))
    again = await env.take_one(at=9, worker=env.name("v"))
    assert again.lost_by == Lost(env.name("w"), env.at(1), env.at(3))


@case(LOST_BY, needs=ATTEMPTS)
async def of_a_worker_without_a_name(env: Environment) -> None:
    await env.add()
    await env.take_one(at=1, lease=5)
    assert (await env.take_one(at=7)).lost_by == Lost("", env.at(1), env.at(6))


@case(LOST_BY, ENDED, needs=ATTEMPTS)
async def two_losses_in_a_row(env: Environment) -> None:
    """The newest one each time: expiry after expiry, release after expiry, expiry after release."""
    await env.add()
    worker = env.name("w")
    await env.take_one(at=0, lease=5, worker=worker)
    second = await env.take_one(at=10, lease=5, worker=worker)
    third = await env.take_one(at=20, lease=5, worker=worker)
    await env.driver.release(worker, env.at(21))
    fourth = await env.take_one(at=30, lease=5, worker=worker)
    fifth = await env.take_one(at=40, worker=worker)
    assert second.lost_by == Lost(worker, env.at(0), env.at(5))
    assert third.lost_by == Lost(worker, env.at(10), env.at(15))
    assert fourth.lost_by == Lost(worker, env.at(20), env.at(21))
    assert fifth.lost_by == Lost(worker, env.at(30), env.at(35))
    assert fifth.job.lost == 4


@case(DIRECTLY, needs=ATTEMPTS)
async def not_after_an_outcome(env: Environment) -> None:
    """A loss, then a Retry, then the next reservation: nothing was lost directly before it."""
    await env.add()
    worker = env.name("w")
    await env.take_one(lease=5, worker=worker)
    held = await env.take_one(at=5, worker=worker)
    assert held.lost_by is not None
    await env.retry(held, at=6)
    held = await env.take_one(at=7, worker=worker)
    assert held.lost_by is None
    await env.driver.release(worker, env.at(8))
    held = await env.take_one(at=9, worker=worker)
    assert held.lost_by is not None
    await env.done(Retry(held.lease, None, held.job.attempts), at=10)  # a give-back is an outcome as well
    assert (await env.take_one(at=11)).lost_by is None


@case(DIRECTLY, needs=ATTEMPTS)
async def not_after_a_cancel_or_requeue(env: Environment) -> None:
    """Released or expired, then cancelled and requeued; and cancelled while it ran."""
    released, expired, running = await env.add_many(3)
    await env.take(1, worker=env.name("w"), lease=100)
    await env.take(1, lease=5)
    await env.take(1, lease=100)
    await env.driver.release(env.name("w"), env.at(1))
    ids = [released.id, expired.id, running.id]
    assert await env.driver.cancel(ids, env.at(6)) == [None] * 3
    assert await env.driver.requeue(ids, env.at(7)) == [None] * 3
    assert [each.lost_by for each in await env.take(at=8)] == [None] * 3


@case(DIRECTLY, needs=ATTEMPTS)
async def not_after_death(env: Environment) -> None:
    job = await env.add()
    await env.take_one(lease=5)
    await env.fail(await env.take_one(at=5), at=6)
    await env.driver.requeue([job.id], env.at(7))
    assert (await env.take_one(at=8)).lost_by is None


@case(LOST_BY, needs=ATTEMPTS)
async def each_of_a_batch_its_own(env: Environment) -> None:
    """One that was never reserved, one that expired, one that was released: also in a group."""
    queue = env.q("other")
    await env.take(queues=[queue])
    expired, released, fresh = await env.add_many(3, queue=queue, group=env.name("g"), group_limit=9)
    await env.take(1, at=1, queues=[queue], lease=5, worker=env.name("e"))
    await env.take(1, at=2, queues=[queue], lease=100, worker=env.name("r"))
    await env.driver.release(env.name("r"), env.at(3))
    found = {each.job.id: each.lost_by for each in await env.take(at=10, queues=[queue])}
    assert found == {
        expired.id: Lost(env.name("e"), env.at(1), env.at(6)),
        released.id: Lost(env.name("r"), env.at(2), env.at(3)),
        fresh.id: None,
    }


@case(LOST_BY, needs=ATTEMPTS)
async def a_kept_lease_is_not_lost(env: Environment) -> None:
    await env.add_many(2)
    kept, given = await env.take(2, worker=env.name("w"))
    await env.driver.release(env.name("w"), env.at(1), [kept.lease.token])
    await env.retry(kept, at=2)
    found = {each.job.id: each.lost_by for each in await env.take(at=3)}
    assert found == {kept.job.id: None, given.job.id: Lost(env.name("w"), env.now, env.at(1))}
