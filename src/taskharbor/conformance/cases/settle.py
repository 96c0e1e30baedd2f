"""Settle: what each outcome does to a job, and batches in which one refused item affects no other."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.drivers import Ack, Cancelled, DriverError, Fail, JobRecord, Lease, Retry, State, replace

BATCH = "Outcomes are applied one after the other in the order given, each in a transaction of its own."
ONE_BAD = "One refused outcome never spoils the rest of a batch."
ACK = "Ack makes the job done, with its result and `finished_at`."
RETRY = "Retry puts the job back as ready or scheduled, with the `run_at` and `attempts` given."
LEAVES = "An empty `last_error` and a `failed_at` of None leave what is recorded."
GIVE_BACK = "A Retry with unchanged attempts is a give-back: it records no failure."
FAIL = "Fail puts the job into the DLQ with its reason, attempts, `failed_at` and `finished_at`."
FAIL_EMPTY = "An empty `last_error` of a Fail becomes the reason."
RESULTS = (
    "`results(ids)` returns by id what each job that is done returned, None if that was None, and follows `handed_to`."
)
LEFT_OUT = "`results` leaves out ids whose jobs are not done, and ids without a record."
CANCELLED = "Cancelled makes the job cancelled with its reason, which becomes `last_error` too."


async def becomes(env: Environment, before: JobRecord, at: float, state: str, **changes: object) -> None:
    """The job has this state, and its record differs from what it was before by these fields only."""
    info = await env.info(before, at)
    assert (str(info.state), info.worker, info.lease_expires_at) == (state, "", None)
    assert info.job == replace(before, **changes)
    assert (await env.driver.list(now=env.at(at), queue=env.queue)).items == (info,)


async def begin(env: Environment) -> tuple[JobRecord, Lease]:
    """A job with one recorded failure, leased from 4 on: how it reads now, and its lease."""
    job = await env.add(attempts=0, payload=b"data")
    held = await env.take_one(worker=env.name("w"))
    await env.done(Retry(held.lease, env.at(3), 1, "first error", env.at(1)), at=1)
    again = await env.take_one(at=4, worker=env.name("w"))
    expected = {
        "run_at": env.at(3),
        "attempts": 1,
        "last_error": "first error",
        "failed_at": env.at(1),
        "deliveries": 2,
        **env.ran(4, env.name("w")),
    }
    assert again.job == replace(job, **expected)
    return again.job, again.lease


@case(ACK)
async def ack(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Ack(lease, b"\x00result"), at=5)
    await becomes(env, job, 5, "done", result=b"\x00result", finished_at=env.at(5))


@case(ACK)
async def ack_without_result(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Ack(lease), at=5)
    await becomes(env, job, 5, "done", finished_at=env.at(5))


@case(ACK)
async def empty_result_is_a_result(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Ack(lease, b""), at=5)
    await becomes(env, job, 5, "done", result=b"", finished_at=env.at(5))
    assert await env.driver.results([lease.job_id]) == {lease.job_id: b""}


@case(RETRY)
async def retry_at_once(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Retry(lease, None, 2, "second", env.at(5)), at=6)
    await becomes(env, job, 6, "ready", run_at=None, attempts=2, last_error="second", failed_at=env.at(5))
    assert (await env.take_one(at=6)).job.attempts == 2


@case(RETRY)
async def retry_later(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Retry(lease, env.at(60), 2, "second", env.at(5)), at=6)
    await becomes(
        env, job, 59.999, "scheduled", run_at=env.at(60), attempts=2, last_error="second", failed_at=env.at(5)
    )
    assert await env.take(at=59.999) == []
    assert len(await env.take(at=60)) == 1


@case(RETRY)
async def attempts_are_what_core_says(env: Environment) -> None:
    """A driver does not count attempts itself: up, down or the same, beyond `max_attempts` too."""
    job = await env.add(max_attempts=2)
    for turn, attempts in enumerate((1, 5, 3, 0)):
        await env.retry(await env.take_one(at=turn), at=turn, attempts=attempts)
        assert (await env.info(job, turn)).job.attempts == attempts
        assert await env.state(job, turn) is State.READY


@case(LEAVES)
async def retry_leaves_what_is_recorded(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Retry(lease, None, 2), at=6)
    await becomes(env, job, 6, "ready", run_at=None, attempts=2)


@case(LEAVES)
async def each_of_the_two_alone(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Retry(lease, None, 2, "second"), at=6)
    await becomes(env, job, 6, "ready", run_at=None, attempts=2, last_error="second")
    lease = (await env.take_one(at=6)).lease
    await env.done(Retry(lease, None, 3, "", env.at(7)), at=7)
    changes = {"attempts": 3, "last_error": "second", "failed_at": env.at(7), "deliveries": 3, **env.ran(6)}
    await becomes(env, job, 7, "ready", run_at=None, **changes)


@case(GIVE_BACK)
async def give_back(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Retry(lease, env.at(8), 1), at=6)
    await becomes(env, job, 7, "scheduled", run_at=env.at(8))


@case(FAIL)
async def fail(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Fail(lease, "gave up", 2, env.at(5), "trace"), at=6)
    changes = {
        "attempts": 2,
        "reason": "gave up",
        "last_error": "trace",
        "failed_at": env.at(5),
        "finished_at": env.at(6),
    }
    await becomes(env, job, 6, "dlq", **changes)


@case(FAIL_EMPTY)
async def fail_without_error_text(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Fail(lease, "gave up", 1, env.at(5)), at=6)
    changes = {"reason": "gave up", "last_error": "gave up", "failed_at": env.at(5), "finished_at": env.at(6)}
    await becomes(env, job, 6, "dlq", **changes)


@case(CANCELLED)
async def cancelled(env: Environment) -> None:
    job, lease = await begin(env)
    await env.done(Cancelled(lease, "unwanted"), at=6)
    await becomes(env, job, 6, "cancelled", reason="unwanted", last_error="unwanted", finished_at=env.at(6))


@case(ONE_BAD, BATCH)
async def mixed_batch(env: Environment) -> None:
    """Every kind, with a bad one of every sort between them."""
    await env.add_many(7)
    short = await env.take_one(lease=1)
    acked, retried, failed, dropped, gone, wrong = await env.take(6, lease=10)
    await env.driver.cancel([gone.job.id], env.at(1))
    stolen = Lease(wrong.job.id, env.queue, acked.lease.token, env.at(10))
    unknown = Lease(env.name("unknown"), env.queue, acked.lease.token, env.at(10))
    answers = await env.settle(
        Ack(short.lease),
        Ack(acked.lease, b"1"),
        Ack(unknown),
        Retry(retried.lease, None, 1),
        Fail(stolen, "stolen", 1, env.at(2)),
        Fail(failed.lease, "reason", 1, env.at(2)),
        Retry(gone.lease, None, 1),
        Cancelled(dropped.lease, "reason"),
        at=2,
    )
    expected = ["LeaseExpired", "ok", "JobNotFound", "ok", "LeaseMismatch", "ok", "JobNotInflight", "ok"]
    assert refusals(answers) == expected
    states = await env.states(short, acked, retried, wrong, failed, gone, dropped, at=2)
    assert states == ["ready", "done", "ready", "inflight", "dlq", "cancelled", "cancelled"]


@case(BATCH)
async def one_after_the_other(env: Environment) -> None:
    """The same lease in one batch: the first outcome counts, and the next finds the job settled."""
    await env.add_many(3)
    first, second, third = await env.take(3)
    answers = await env.settle(
        Ack(first.lease, b"1"),
        Ack(first.lease, b"2"),
        Retry(second.lease, None, 1),
        Ack(second.lease),
        Fail(third.lease, "dead", 1, env.at(1)),
        Retry(third.lease, None, 2),
        at=1,
    )
    assert refusals(answers) == ["ok", "ok", "ok", "JobNotInflight", "ok", "JobNotInflight"]
    assert await env.states(first, second, third, at=1) == ["done", "ready", "dlq"]
    assert await env.driver.results([first.job.id]) == {first.job.id: b"1"}


@case(BATCH, "The jobs of one call may name each other in any order.")
async def batch_releases_in_steps(env: Environment) -> None:
    """Both dependencies of a join in one batch: it is released once, by the second."""
    first, second = await env.add_many(2)
    join = await env.add(depends_on=(second.id, first.id))
    taken = await env.take(2)
    assert refusals(await env.settle(*(Ack(held.lease) for held in taken), at=1)) == ["ok", "ok"]
    assert await env.taken_ids(at=1) == [join.id]


@case(BATCH)
async def large_batch(env: Environment) -> None:
    await env.add_many(1500)
    taken = await env.take(1500)
    outcomes = [
        Retry(held.lease, None, 1) if index % 3 == 0 else Ack(held.lease, b"x") for index, held in enumerate(taken)
    ]
    assert await env.driver.settle(outcomes, env.at(1)) == [None] * 1500
    assert await env.counts(1) == {"done": 1000, "ready": 500}


@case(BATCH)
async def empty_batch(env: Environment) -> None:
    assert await env.settle() == []


@case("The one-job verbs raise the error that the batch verbs return.")
async def one_job_verbs(env: Environment) -> None:
    from datetime import timedelta

    await env.add_many(4)
    acked, retried, failed, extended = await env.take(4, lease=10)
    await env.driver.ack(acked.lease, env.at(1), b"1")
    await env.driver.retry(retried.lease, env.at(1), env.at(5), attempts=1, last_error="e", failed_at=env.at(1))
    await env.driver.fail(failed.lease, env.at(1), "dead", attempts=2)
    longer = await env.driver.extend_lease(extended.lease, env.at(1), timedelta(seconds=60))
    assert (longer.token, longer.expires_at) == (extended.lease.token, env.at(61))
    assert await env.states(acked, retried, failed, extended, at=20) == ["done", "ready", "dlq", "inflight"]
    record = (await env.info(failed, 1)).job
    assert (record.reason, record.attempts, record.failed_at) == ("dead", 2, env.at(1))
    bad = Lease(extended.job.id, env.queue, "f" * 32, env.at(10))
    unknown = Lease(env.name("unknown"), env.queue, "f" * 32, env.at(10))
    raised = []
    for call in (
        env.driver.ack(bad, env.at(2)),
        env.driver.retry(acked.lease, env.at(2), attempts=1),
        env.driver.fail(unknown, env.at(2), "x", attempts=1),
        env.driver.extend_lease(extended.lease, env.at(61), timedelta(seconds=1)),
    ):
        try:
            await call
        except DriverError as error:
            raised.append(type(error).__name__)
    assert raised == ["LeaseMismatch", "JobNotInflight", "JobNotFound", "LeaseExpired"]


@case(RESULTS, LEFT_OUT)
async def results(env: Environment) -> None:
    """Jobs of every state in one call, some asked for twice."""
    done, nothing, empty, deleted = await env.add_many(4)
    for result, lease in zip((b"1", None, b"", b"2"), await env.take(4), strict=True):
        await env.ack(lease, result=result)
    await env.driver.delete([deleted.id])
    dead, cancelled = await env.dead(), await env.add()
    await env.driver.cancel([cancelled.id], env.now)
    retried = await env.add()
    await env.retry(await env.take_one(), run_at=60)
    held = await env.add()
    await env.take_one()
    ready, later = await env.add(), await env.add(run_at=env.at(60))
    blocked = await env.add(depends_on=(ready.id, done.id))
    others = [dead, cancelled, retried, held, ready, later, blocked, deleted]
    ids = [env.name("unknown"), nothing.id, *(job.id for job in others), done.id, empty.id, done.id, dead.id]
    assert await env.driver.results(ids) == {done.id: b"1", nothing.id: None, empty.id: b""}
    assert await env.driver.results(ids[::-1]) == {done.id: b"1", nothing.id: None, empty.id: b""}
    assert await env.driver.results([job.id for job in others]) == {}
    assert await env.driver.results([]) == {}
