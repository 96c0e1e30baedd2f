"""Enqueue: records come back as they were given, calls are atomic, results are in order."""

from __future__ import annotations

from datetime import timedelta

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of
from taskharbor.drivers import Enqueued, InvalidJob, JobRecord, State, replace
from taskharbor.model.job import EPOCH

ATOMIC = "The call is atomic: all jobs are stored, or none."
BOUNDS = (
    "A job has at most 20,000 dependencies, a spawn at most 10,000 jobs, and an enqueue at most 50,000; more is "
    "`InvalidJob`."
)
AS_GIVEN = "A stored record comes back as it was given, byte for byte."


def full(env: Environment) -> JobRecord:
    """A record with every field that the caller may set."""
    return env.job(
        type="mail:send",
        payload=bytes(range(256)),
        run_at=env.at(-1.5),
        timeout=timedelta(seconds=1, milliseconds=500),
        priority=-7,
        attempts=2,
        max_attempts=9,
        idempotency_key="key \x00 ü",
        group=env.name("group"),
        group_limit=3,
        flow_id=env.name("flow"),
        metadata={"b": "2", "a": "\x00 \U0001f600", "taskharbor.x": ""},
        created_at=env.at(-60.001),
    )


@case(AS_GIVEN)
async def record_comes_back(env: Environment) -> None:
    job = full(env)
    await env.put(job)
    info = await env.info(job)
    assert info.job == job
    assert info.state is State.READY
    assert (info.worker, info.lease_expires_at, info.waiting_for) == ("", None, ())


@case(AS_GIVEN)
async def record_comes_back_from_reserve_and_list(env: Environment) -> None:
    job = full(env)
    await env.put(job)
    assert [item.job for item in (await env.driver.list(now=env.now, queue=env.queue)).items] == [job]
    assert (await env.take_one()).job == replace(job, deliveries=1, **env.ran())


@case(AS_GIVEN)
async def absent_and_empty_differ(env: Environment) -> None:
    """None, empty and zero are three different values."""
    job = await env.add(
        payload=b"", metadata={}, run_at=None, timeout=None, idempotency_key=None, group=None, flow_id=None
    )
    assert (await env.info(job)).job == job
    assert (await env.take_one()).job.payload == b""


@case(AS_GIVEN)
async def metadata_is_a_copy(env: Environment) -> None:
    """What the caller does to its dict afterwards changes nothing in the store."""
    given = {"tenant": "a"}
    job = await env.add(metadata=given)
    given["tenant"] = "b"
    assert (await env.info(job)).job.metadata == {"tenant": "a"}


@case(AS_GIVEN)
async def order_of_dependencies_is_kept(env: Environment) -> None:
    first, second, third = await env.add_many(3)
    job = await env.add(depends_on=(third.id, first.id, second.id))
    assert (await env.info(job)).job.depends_on == (third.id, first.id, second.id)


@case(
    "Fields that only the store writes start fresh: `deliveries` and `lost` at 0, `handed_to`, "
    "`failed_at`, `finished_at` and `result` at None, `last_error` and `reason` empty."
)
async def what_only_the_store_writes(env: Environment) -> None:
    clean = env.job()
    dirty = replace(
        clean,
        deliveries=7,
        lost=3,
        handed_to=env.name("x"),
        last_error="old",
        failed_at=env.at(-1),
        reason="old",
        finished_at=env.at(-1),
        result=b"old",
    )
    await env.put(dirty)
    assert (await env.info(clean)).job == clean
    assert await env.driver.results([clean.id]) == {}
    assert (await env.take_one()).job.deliveries == 1


@case("A record without `created_at` gets the `now` of its enqueue.")
async def created_at_is_noted(env: Environment) -> None:
    job = await env.add(created_at=EPOCH, at=2.003)
    assert (await env.info(job)).job.created_at == env.at(2.003)


@case("Results are in the order of the call, one for each job.")
async def answers_in_order(env: Environment) -> None:
    known = await env.add()
    jobs = [env.job() for _ in range(5)][::-1]
    asked = [*jobs[:2], known, *jobs[2:]]
    assert await env.put(*asked) == [Enqueued(job.id, job is known) for job in asked]


@case("An empty call returns an empty list.")
async def empty_call(env: Environment) -> None:
    assert await env.driver.enqueue([], env.now) == []


@case("One invalid job is `InvalidJob`, and nothing of the call is stored.", ATOMIC)
async def one_invalid_job(env: Environment) -> None:
    """Whether the bad one is first, in the middle or last."""
    for place in range(3):
        jobs = [env.job() for _ in range(3)]
        jobs[place] = replace(jobs[place], type="")
        try:
            await env.put(*jobs)
        except InvalidJob:
            pass
        else:
            raise AssertionError("an invalid job was taken")
        assert await env.all_ids() == []
        assert await env.take() == []


@case(ATOMIC, "An unknown dependency, or a cycle, is `InvalidJob`.")
async def late_refusal_stores_nothing(env: Environment) -> None:
    """One refusal that only the store can make refuses the whole call: its keys and group limits stay unknown too."""
    group = env.name("group")
    good = env.job(idempotency_key="key", group=group, group_limit=5)
    bad = env.job(depends_on=(env.name("unknown"),))
    try:
        await env.put(good, bad)
    except InvalidJob:
        pass
    else:
        raise AssertionError("an unknown dependency was taken")
    assert await env.all_ids() == []
    again = env.job(idempotency_key="key", group=group)
    assert await env.put(again) == [Enqueued(again.id, False)]
    await env.add_many(2, group=group)
    assert await env.taken_ids() == [again.id]


@case("The call is atomic: all jobs are stored, or none.", "Results are in the order of the call, one for each job.")
async def large_call(env: Environment) -> None:
    """Larger than what fits into one statement's parameters in many stores."""
    jobs = await env.add_many(3000)
    assert await env.counts() == {"ready": 3000}
    assert await env.taken_ids(limit=3000) == ids_of(jobs)


@case("An id that already exists writes nothing and is returned with `existed=True`, so the call may be sent again.")
async def call_may_be_sent_again(env: Environment) -> None:
    jobs = [env.job() for _ in range(3)]
    assert await env.put(*jobs) == [Enqueued(job.id, False) for job in jobs]
    assert await env.put(*jobs, at=5) == [Enqueued(job.id, True) for job in jobs]
    assert await env.counts() == {"ready": 3}


@case(ATOMIC, BOUNDS)
async def number_of_jobs_in_a_call(env: Environment) -> None:
    """Also where most of them are the same job: what counts is the call."""
    first, other = env.job(), env.job()
    text = ""
    try:
        await env.driver.enqueue([first, *[other] * 50_000], env.now)
    except InvalidJob as refused:
        text = str(refused)
    assert "50000" in text, f"an error that names the size; got {text!r}"
    assert (await env.driver.list(queue=env.queue, now=env.now)).items == ()
    await env.add()
    assert len((await env.driver.list(queue=env.queue, now=env.now)).items) == 1
