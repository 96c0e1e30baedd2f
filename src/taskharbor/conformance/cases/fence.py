"""The fence: only the newest reservation may extend or settle, and refusals come in their order."""

from __future__ import annotations

from collections.abc import Callable

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.drivers import Ack, Cancelled, Fail, Lease, Outcome, Reserved, Retry

UNKNOWN = "An unknown job is `JobNotFound`."
NOT_INFLIGHT = "A job that is not inflight is `JobNotInflight`."
MISMATCH = "A token other than that of the job's lease is `LeaseMismatch`."
EXPIRED = "A lease with `expires_at <= now` is `LeaseExpired`, and stays so until the job is reserved again."
SAME_RULES = "`extend` refuses by the same rules, and in the same order, as `settle`."

KINDS: tuple[Callable[[Lease], Outcome], ...] = (
    lambda lease: Ack(lease, b"stale"),
    lambda lease: Retry(lease, None, 9, "stale"),
    lambda lease: Fail(lease, "stale", 9, None),
    lambda lease: Cancelled(lease, "stale"),
)
"""An outcome of each kind, as a stale worker would send it."""


async def all_refused(env: Environment, lease: Lease, error: str, at: float) -> None:
    """Every kind of outcome and an extension are refused with this error, and the record stays as it was."""
    known = error != "JobNotFound"
    before = await env.info(lease.job_id, at) if known else None
    assert refusals(await env.settle(*(kind(lease) for kind in KINDS), at=at)) == [error] * len(KINDS)
    assert refusals(await env.extend(lease, at=at, lease=500)) == [error]
    if known:
        assert await env.info(lease.job_id, at) == before


def with_token(held: Reserved, token: str) -> Lease:
    return Lease(held.lease.job_id, held.lease.queue, token, held.lease.expires_at)


@case(UNKNOWN, SAME_RULES)
async def unknown_job(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    await all_refused(env, Lease(env.name("unknown"), env.queue, held.lease.token, env.at(10)), "JobNotFound", 1)
    await env.driver.delete([held.job.id])
    await all_refused(env, held.lease, "JobNotFound", 1)


@case(NOT_INFLIGHT, SAME_RULES)
async def never_reserved(env: Environment) -> None:
    ready, scheduled = await env.add(), await env.add(run_at=env.at(60))
    blocked = await env.add(depends_on=(ready.id,))
    for job in (ready, scheduled, blocked):
        await all_refused(env, Lease(job.id, env.queue, "0" * 32, env.at(10)), "JobNotInflight", 1)
        await all_refused(env, Lease(job.id, env.queue, "", env.at(10)), "JobNotInflight", 1)


@case(NOT_INFLIGHT, SAME_RULES)
async def settled_with_another_token(env: Environment) -> None:
    """JobNotInflight comes before LeaseMismatch, also with a wrong token."""
    for finish in (env.ack, env.retry, env.fail, env.drop):
        job = await env.add(queue=env.q("own"))
        held = await env.take_one(queues=[env.q("own")])
        await finish(held)
        await all_refused(env, with_token(held, "f" * 32), "JobNotInflight", 1)
        await env.driver.delete([job.id])


@case(NOT_INFLIGHT)
async def cancelled_under_the_worker(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    await env.driver.cancel([held.job.id], env.at(1))
    await all_refused(env, held.lease, "JobNotInflight", 1)
    await all_refused(env, held.lease, "JobNotInflight", 100)


@case(MISMATCH, SAME_RULES)
async def wrong_token(env: Environment) -> None:
    """Also a token that differs in one character."""
    await env.add()
    held = await env.take_one(lease=10)
    token = held.lease.token
    for wrong in ("", "x", token[:-1], token + "0", token.swapcase() + "x", f" {token}", "*", "%", "' or '1'='1"):
        await all_refused(env, with_token(held, wrong), "LeaseMismatch", 1)
    await env.ack(held, at=1)


@case(MISMATCH)
async def token_of_another_job(env: Environment) -> None:
    await env.add_many(2)
    first, second = await env.take(2)
    await all_refused(env, with_token(first, second.lease.token), "LeaseMismatch", 1)
    await env.ack(first, at=1)
    await env.ack(second, at=1)


@case(MISMATCH, SAME_RULES)
async def mismatch_before_expiry(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=10)
    await all_refused(env, with_token(held, "f" * 32), "LeaseMismatch", 10)


@case(MISMATCH)
async def taken_over_after_expiry(env: Environment) -> None:
    """A worker whose lease ended and whose job another has now: whatever it sends is refused and changes nothing."""
    await env.add()
    zombie = await env.take_one(lease=10, worker=env.name("zombie"))
    newest = await env.take_one(at=10, lease=10, worker=env.name("newest"))
    await all_refused(env, zombie.lease, "LeaseMismatch", 11)
    await env.extend(newest, at=12, lease=100)
    await all_refused(env, zombie.lease, "LeaseMismatch", 50)
    await env.ack(newest, at=60, result=b"newest")
    assert await env.driver.results([newest.job.id]) == {newest.job.id: b"newest"}


@case(MISMATCH)
async def zombie_of_several_deliveries_ago(env: Environment) -> None:
    await env.add()
    old = [await env.take_one(at=turn * 10) for turn in range(5)]
    newest = old.pop()
    for held in old:
        await all_refused(env, held.lease, "LeaseMismatch", 45)
    await all_refused(env, old[-1].lease, "LeaseMismatch", 50)
    await all_refused(env, newest.lease, "LeaseExpired", 50)


@case(MISMATCH)
async def zombie_after_retry_and_requeue(env: Environment) -> None:
    """A settled delivery's token is worth nothing once the job is reserved again."""
    for finish in (env.retry, env.fail, env.drop):
        job = await env.add(queue=env.q("own"))
        first = await env.take_one(queues=[env.q("own")])
        await finish(first, at=1)
        await env.driver.requeue([job.id], env.at(2))
        second = await env.take_one(at=3, queues=[env.q("own")])
        await all_refused(env, first.lease, "LeaseMismatch", 4)
        await env.ack(second, at=5)


@case(NOT_INFLIGHT, "After a release the old token is refused.")
async def zombie_after_release(env: Environment) -> None:
    await env.add()
    held = await env.take_one(worker=env.name("w"))
    assert await env.driver.release(env.name("w"), env.at(1)) == 1
    await all_refused(env, held.lease, "JobNotInflight", 1)
    await env.take_one(at=2)
    await all_refused(env, held.lease, "LeaseMismatch", 3)


@case(EXPIRED, SAME_RULES)
async def expired(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=10)
    await all_refused(env, held.lease, "LeaseExpired", 10)
    await all_refused(env, held.lease, "LeaseExpired", 10_000)
