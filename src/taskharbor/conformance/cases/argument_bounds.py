"""Arguments out of bounds: texts that cannot be names, and numbers beyond any store, beside valid ones."""

from __future__ import annotations

from datetime import timedelta

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.drivers import Ack, Cancelled, Fail, JobNotFound, Lease, Outcome, Retry

UNKNOWN = "A text that is not a valid name is treated like an unknown name, and spoils nothing else in the call."
LIMITS = "A `limit` may be any positive whole number, however large."

NOBODY = ("\ud800", "a\udfffb", "a\x00b", "\x00", "", "{", "a}b", "a\nb", "x" * 256, "é" * 5000, "'; --", "%s", "\\x")
LARGE = (2**31 - 1, 2**31, 2**53, 2**63, 2**64, 2**70)
MINUTE = timedelta(minutes=1)


@case(UNKNOWN)
async def asked_about_names_that_cannot_exist(env: Environment) -> None:
    for name in NOBODY:
        try:
            await env.driver.inspect(name, env.now)
        except JobNotFound:
            pass
        else:
            raise AssertionError(f"there is a job {name!r}")
        try:
            await env.driver.flow(name, env.now)
        except JobNotFound:
            pass
        else:
            raise AssertionError(f"there is a flow {name!r}")
        assert await env.driver.cancel_flow(name, env.now) == 0
        assert await env.driver.release(name or "unknown", env.now) == 0
        assert not await env.driver.is_paused(name)
        assert await env.take(queues=[name]) == []
        assert await env.all_ids(queue=name) == []
        assert await env.all_ids(type=name) == []
        assert await env.all_ids(group=name) == []
        assert await env.all_ids(flow_id=name) == []


@case(UNKNOWN)
async def decisions_on_ids_that_cannot_exist_beside_others(env: Environment) -> None:
    ids = list(NOBODY)
    for position in (0, len(ids) // 2, len(ids)):
        job = await env.add()
        asked = [*ids[:position], job.id, *ids[position:]]
        answers = refusals(await env.driver.cancel(asked, env.now))
        assert answers == ["ok" if id == job.id else "JobNotFound" for id in asked]
        answers = refusals(await env.driver.requeue(asked, env.now))
        assert answers == ["ok" if id == job.id else "JobNotFound" for id in asked]
        assert await env.driver.results(asked) == {}
        answers = refusals(await env.driver.delete(asked))
        assert answers == ["ok" if id == job.id else "JobNotFound" for id in asked]


@case(UNKNOWN)
async def leases_on_ids_that_cannot_exist_beside_others(env: Environment) -> None:
    end = env.now + MINUTE
    for name in NOBODY:
        await env.add_many(2)
        first, last = await env.take(2)
        for queue, token in ((env.queue, "token"), (name, "token"), (env.queue, name)):
            unknown = Lease(name, queue, token, end)
            answers = await env.extend(first, unknown, last)
            assert refusals(answers) == ["ok", "JobNotFound", "ok"]
            strange: tuple[Outcome, ...] = (
                Ack(unknown), Retry(unknown, None, 1), Fail(unknown, "over", 1, env.now), Cancelled(unknown, "over"),
            )  # fmt: skip
            assert refusals(await env.settle(*strange)) == ["JobNotFound"] * 4
        assert refusals(await env.settle(Ack(first.lease), Ack(unknown), Ack(last.lease))) == [
            "ok",
            "JobNotFound",
            "ok",
        ]


@case(UNKNOWN)
async def queues_that_cannot_exist_beside_others(env: Environment) -> None:
    """A worker that also asks for such a queue gets the jobs of the others, and is woken by them."""
    for name in NOBODY:
        job = await env.add()
        assert await env.taken_ids(queues=[name, env.queue, name]) == [job.id]
    waiting = [*NOBODY, env.queue]
    await env.driver.wait(waiting, 0)
    job = await env.add()
    assert await env.driver.wait(waiting, 30) is True
    assert await env.taken_ids(queues=waiting) == [job.id]


@case(LIMITS)
async def largest_limits(env: Environment) -> None:
    for limit in LARGE:
        jobs = await env.add_many(3)
        held = await env.driver.reserve([env.queue], env.now, MINUTE, limit)
        assert [item.job.id for item in held] == [job.id for job in jobs]
        page = await env.driver.list(now=env.now, queue=env.queue, limit=limit)
        assert sorted(info.job.id for info in page.items) == sorted(job.id for job in jobs)
        assert page.cursor is None
        for item in held:
            await env.ack(item)
        assert await env.driver.prune(env.at(60), limit) == 3
