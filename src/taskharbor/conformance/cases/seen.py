"""Requeue, cancel and delete of jobs that must still be as they were read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace as changed

from taskharbor.conformance.case import case
from taskharbor.conformance.cases.wait import woken
from taskharbor.conformance.environment import MS, Environment, ids_of, refusals
from taskharbor.conformance.parts import AMEND
from taskharbor.drivers import Amend, Driver, DriverError, JobRecord, Retry, Seen, replace
from taskharbor.drivers.refusals import changed_since

FITS = (
    "A job whose `deliveries`, `edits` and `finished_at` are those of its `Seen` is requeued, cancelled or deleted by "
    "the same rules as without one."
)
DIFFERS = (
    "A job that differs in one of the three was reserved, amended, ended or requeued since: it is `WrongState`, and "
    "stays as it is."
)
THE_SAME = "A retry, a release and the end of a lease leave all three as they are."
CHECKS = (
    "An unknown id is `JobNotFound` whatever its `Seen`, and a job that differs is refused as such before its state "
    "and its dependents are checked."
)
EACH = (
    "With `seen`, too, jobs are changed one after the other in the order given: an id that occurs again is compared "
    "with what the call has left so far."
)
LENGTH = "A `seen` of another length than the ids is a `ValueError`, and nothing is changed."
FLAG = "Requeueing a job of a cancelled flow takes the flag away."
DAMAGED = "Listing, counting and inspecting never fail because of it, and it can be deleted."

VERBS = ("requeue", "cancel", "delete")


async def seen_of(env: Environment, *jobs: JobRecord, at: float = 0) -> list[Seen]:
    """The jobs as they are now."""
    return [Seen.of(await env.info(job, at)) for job in jobs]


async def act(
    env: Environment,
    verb: str,
    jobs: Sequence[JobRecord | str],
    seen: Sequence[Seen] | None,
    at: float = 0,
    by: Driver | None = None,
) -> list[DriverError | None]:
    """One of the three verbs, as another operator calls it."""
    driver = by or env.driver
    ids = [job if isinstance(job, str) else job.id for job in jobs]
    if verb == "requeue":
        return await driver.requeue(ids, env.at(at), seen=seen)
    return await (driver.cancel(ids, env.at(at), seen) if verb == "cancel" else driver.delete(ids, seen))


async def refused_by_all(env: Environment, job: JobRecord, seen: Seen, at: float = 0) -> None:
    """Each verb refuses the job because it is not as it was seen, and leaves it as it is."""
    before = await env.info(job, at)
    for verb in VERBS:
        (answer,) = await act(env, verb, [job], [seen], at)
        assert is_changed(answer, job), f"{verb}: {answer!r}"
        assert await env.info(job, at) == before, verb


def is_changed(answer: DriverError | None, job: JobRecord) -> bool:
    """Refused for its Seen, not for its state."""
    expected = changed_since(job.id)
    return type(answer) is type(expected) and str(answer) == str(expected)


async def every_state(env: Environment, queue: str) -> list[JobRecord]:
    """Jobs in each state, and such as were lost, retried and expired."""
    jobs = [await env.finished(queue=queue), await env.dead(queue=queue)]
    for end in ("expire", "hold", "retry", "release"):
        jobs.append(await env.add(queue=queue, flow_id=env.name("flow " + queue)))
        held = await env.take_one(queues=[queue], lease=1 if end == "expire" else 60, worker=env.name(end + queue))
        if end == "retry":
            await env.retry(held, run_at=30)
    await env.driver.release(env.name("release" + queue), env.now)
    dropped, later = await env.add(queue=queue), await env.add(queue=queue, run_at=env.at(30))
    await env.driver.cancel([dropped.id], env.now)
    return [*jobs, dropped, later, await env.add(queue=queue, depends_on=(later.id,)), await env.add(queue=queue)]


async def outcome(env: Environment, job: JobRecord, at: float) -> object:
    """How the job reads afterwards, without what tells it from its twin."""
    if await env.gone(job):
        return None
    info = await env.info(job, at)
    same = {"id": "", "queue": "", "flow_id": None, "depends_on": (), "ran_on": ""}
    return changed(info, job=replace(info.job, **same), worker="", waiting_for=(), lease_expires_at=None)


@case(FITS)
async def unchanged_in_each_state(env: Environment) -> None:
    """The same results as without `seen`, and the same jobs afterwards."""
    for verb in VERBS:
        plain = await every_state(env, env.q(f"{verb} plain"))
        twins = await every_state(env, env.q(f"{verb} seen"))
        expected = await act(env, verb, plain, None, at=2)
        found = await act(env, verb, twins, await seen_of(env, *twins, at=2), at=2)
        assert refusals(found) == refusals(expected), verb
        assert not any(is_changed(answer, job) for answer, job in zip(found, twins, strict=True)), verb
        for one, other in zip(twins, plain, strict=True):
            assert await outcome(env, one, 2) == await outcome(env, other, 2), verb


@case(FITS)
async def without_seen(env: Environment) -> None:
    """None is as if the argument were not there; nothing to do is no results."""
    dead = await env.dead()
    for verb in VERBS:
        assert await act(env, verb, [], []) == await act(env, verb, [], None) == []
    assert refusals(await act(env, "cancel", [dead], None)) == ["WrongState"]
    assert refusals(await act(env, "requeue", [dead], None)) == ["ok"]
    assert refusals(await act(env, "cancel", [dead], None)) == ["ok"]
    assert refusals(await act(env, "delete", [dead], None)) == ["ok"]


@case(FITS)
async def requeued_as_asked(env: Environment) -> None:
    """With `run_at` and `reset_attempts`, in any combination."""
    for number, (later, reset) in enumerate([(None, False), (None, True), (60, False), (60, True)]):
        job = await env.dead(queue=env.q(f"{number}"), attempts=2)
        run_at = None if later is None else env.at(later)
        seen = await seen_of(env, job)
        assert await env.driver.requeue([job.id], env.at(1), run_at, reset, seen) == [None]
        info = await env.info(job, 1)
        assert (info.state, info.job.run_at) == ("ready" if later is None else "scheduled", run_at)
        assert (info.job.attempts, info.job.deliveries, info.job.finished_at) == (0 if reset else 3, 1, None)
        assert (info.job.reason, info.job.last_error) == ("", "broken")
        assert await env.taken_ids(at=later or 1, queues=[job.queue]) == [job.id]


@case(FITS)
async def requeued_in_order(env: Environment) -> None:
    """In the order of the call, behind what waits already."""
    jobs = [await env.dead() for _ in range(4)]
    waiting = await env.add()
    order = [jobs[2], jobs[0], jobs[3], jobs[1]]
    assert await act(env, "requeue", order, await seen_of(env, *order)) == [None] * 4
    assert await env.drain() == ids_of([waiting, *order])


@case(FITS, "`wait(queues, timeout)` returns True once work may have arrived in one of the queues, and False after "
      "`timeout` seconds.")  # fmt: skip
async def a_requeue_wakes(env: Environment) -> None:
    job = await env.dead()
    seen = await seen_of(env, job)
    await woken(env, lambda: act(env, "requeue", [job], seen), reserves_first=True)


@case(FITS)
async def cancelled_again(env: Environment) -> None:
    """Without effect, as long as it is the same cancel that was seen."""
    job = await env.add()
    before = await seen_of(env, job)
    assert await act(env, "cancel", [job], before, at=1.234) == [None]
    seen = await seen_of(env, job, at=2)
    assert seen == [Seen(0, 0, env.at(1.234))]
    assert await act(env, "cancel", [job], seen, at=5) == [None]
    assert (await env.info(job, 5)).job.finished_at == env.at(1.234)
    (answer,) = await act(env, "cancel", [job], before, at=5)
    assert is_changed(answer, job)


@case(DIFFERS)
async def in_one_field(env: Environment) -> None:
    """One more or one less in any of the three, and the verb would have taken the job."""
    dead, later = await env.dead(at=5), await env.add(run_at=env.at(60))
    for job, verbs in ((dead, ("requeue", "delete")), (later, ("cancel", "delete"))):
        (seen,) = await seen_of(env, job, at=5)
        ends = [None, env.at(5) - MS, env.at(5) + MS] if seen.finished_at else [env.at(5), env.now]
        others = [
            *(changed(seen, deliveries=number) for number in (seen.deliveries + 1, abs(seen.deliveries - 1))),
            *(changed(seen, edits=number) for number in (1, 2)),
            *(changed(seen, finished_at=end) for end in ends),
            Seen(2**31 - 1, 2**31 - 1, datetime(9999, 12, 31, tzinfo=UTC)),
        ]
        before = await env.info(job, 5)
        for verb in verbs:
            for other in others:
                assert is_changed((await act(env, verb, [job], [other], at=6))[0], job), f"{verb} with {other}"
        assert await env.info(job, 5) == before
        assert await act(env, verbs[0], [job], [seen], at=6) == [None]


@case(DIFFERS)
async def died_again_since(env: Environment) -> None:
    """Another operator requeued it, and it failed again within the same millisecond: for a reason that nobody saw."""
    job = await env.dead()
    (seen,) = await seen_of(env, job)
    await env.driver.requeue([job.id], env.now)
    await env.fail(await env.take_one(), reason="another reason")
    (again,) = await seen_of(env, job)
    assert (again.finished_at, again.deliveries) == (seen.finished_at, 2)
    await refused_by_all(env, job, seen)
    assert (await env.info(job)).job.reason == "another reason"
    assert await act(env, "requeue", [job], [again]) == [None]


@case(DIFFERS)
async def requeued_since(env: Environment) -> None:
    """It waits for its turn: nothing cancels or deletes it for what it was."""
    job = await env.dead()
    (seen,) = await seen_of(env, job)
    await env.driver.requeue([job.id], env.at(1))
    await refused_by_all(env, job, seen, at=1)
    held = await env.take_one(at=1)
    await refused_by_all(env, job, seen, at=1)
    await env.ack(held, at=1)
    await refused_by_all(env, job, seen, at=1)


@case(DIFFERS)
async def reserved_since(env: Environment) -> None:
    """Its worker is not disturbed."""
    job = await env.add()
    (seen,) = await seen_of(env, job)
    held = await env.take_one()
    await refused_by_all(env, job, seen)
    await env.extend(held)
    await env.ack(held, result=b"1")
    await refused_by_all(env, job, seen)
    assert await env.driver.results([job.id]) == {job.id: b"1"}


@case(DIFFERS)
async def ended_since(env: Environment) -> None:
    """Seen while it was running; and done, dead or cancelled now."""
    for end in ("ack", "fail", "drop", "cancel"):
        job = await env.add()
        held = await env.take_one()
        (seen,) = await seen_of(env, job)
        if end == "ack":
            await env.ack(held, at=1)
        elif end == "fail":
            await env.fail(held, at=1)
        elif end == "drop":
            await env.drop(held, at=1)
        else:
            await env.driver.cancel([job.id], env.at(1))
        await refused_by_all(env, job, seen, at=1)


@case(DIFFERS)
async def taken_over_since(env: Environment) -> None:
    """Seen under one lease, and under another now."""
    job = await env.add()
    await env.take_one(lease=1)
    (seen,) = await seen_of(env, job)
    held = await env.take_one(at=1)
    await refused_by_all(env, job, seen, at=1)
    await env.ack(held, at=1)


@case(DIFFERS, needs=AMEND)
async def amended_since(env: Environment) -> None:
    """An editor mended it: whether it should go is to be decided anew."""
    dead, ready = await env.dead(), await env.add()
    dropped = await env.add()
    await env.driver.cancel([dropped.id], env.now)
    for job in (dead, ready, dropped):
        (seen,) = await seen_of(env, job)
        assert await env.driver.amend(
            [Amend(id=job.id, deliveries=seen.deliveries, edits=0, payload=b"2")], env.now
        ) == [None]
        await refused_by_all(env, job, seen)
        assert await act(env, "delete", [job], [changed(seen, edits=1)]) == [None]


@case(THE_SAME)
async def back_in_its_queue(env: Environment) -> None:
    """Retried, released or expired since it was seen: nothing has run it again, so it is cancelled and deleted."""
    for verb in ("cancel", "delete"):
        for end in ("retry", "release", "expire"):
            job = await env.add(queue=env.q(f"{verb} {end}"))
            worker = env.name("worker")
            held = await env.take_one(queues=[job.queue], worker=worker, lease=5)
            seen = await seen_of(env, job)
            if end == "retry":
                await env.done(Retry(held.lease, None, 1, "error", env.at(1)), at=1)
            elif end == "release":
                assert await env.driver.release(worker, env.at(1)) == 1
            assert await seen_of(env, job, at=5) == seen
            assert await act(env, verb, [job], seen, at=5) == [None]
            assert await env.take(at=100, queues=[job.queue]) == []


@case(THE_SAME)
async def released_from_its_dependencies(env: Environment) -> None:
    """A job that was blocked when it was seen is cancelled as a ready one."""
    first = await env.add()
    second = await env.add(depends_on=(first.id,))
    seen = await seen_of(env, second)
    await env.ack(await env.take_one())
    assert await env.state(second) == "ready"
    assert await act(env, "cancel", [second], seen) == [None]


@case(CHECKS)
async def deleted_since(env: Environment) -> None:
    job = await env.finished()
    (seen,) = await seen_of(env, job)
    await env.driver.delete([job.id])
    for verb in VERBS:
        for other in (seen, Seen(0), Seen(7, 7, env.now)):
            assert refusals(await act(env, verb, [job], [other])) == ["JobNotFound"], verb
    await env.put(job)
    await refused_by_all(env, job, seen)
    assert await env.taken_ids() == [job.id]


@case(CHECKS)
async def before_the_state(env: Environment) -> None:
    """The reason of a refusal is the first that applies."""
    jobs = {"requeue": await env.finished(), "cancel": await env.dead(), "delete": await env.dead()}
    await env.add(depends_on=(jobs["delete"].id,))
    for verb, job in jobs.items():
        (seen,) = await seen_of(env, job)
        (answer,) = await act(env, verb, [job], [seen])
        assert refusals([answer]) == ["WrongState"]
        assert not is_changed(answer, job)
        (answer,) = await act(env, verb, [job], [changed(seen, deliveries=9)])
        assert is_changed(answer, job)


@case(CHECKS, "A text that is not a valid name is treated like an unknown name, and spoils nothing else in the call.")
async def names_that_no_job_has(env: Environment) -> None:
    bad = ["a\x00b", "\ud800", "", "{", "x" * 300]
    for verb in VERBS:
        dead, ready = await env.dead(), await env.add()
        jobs: list[JobRecord | str] = [*bad, dead, "\udfff", ready]
        seen = [*(Seen(0) for _ in bad), *await seen_of(env, dead), Seen(1), *await seen_of(env, ready)]
        taken = {"requeue": ["ok", "WrongState"], "cancel": ["WrongState", "ok"], "delete": ["ok", "ok"]}[verb]
        expected = [*["JobNotFound"] * len(bad), taken[0], "JobNotFound", taken[1]]
        assert refusals(await act(env, verb, jobs, seen)) == expected, verb
        await env.driver.delete([dead.id, ready.id])


@case(EACH)
async def a_mix(env: Environment) -> None:
    """Over several queues and states, some as they were seen: each has its own result."""
    other = env.q("other")
    dead, gone, again = [await env.dead(queue=queue) for queue in (env.queue, other, other)]
    done, second, dropped = await env.finished(), await env.dead(), await env.add()
    await env.driver.cancel([dropped.id], env.now)
    jobs = [again, dead, gone, done, dropped, second]
    seen = await seen_of(env, *jobs)
    await env.driver.requeue([again.id], env.now)
    await env.fail(await env.take_one(queues=[other]))
    await env.driver.delete([gone.id])
    before = [await env.info(job) for job in (again, done)]
    answers = await act(env, "requeue", jobs, seen, at=1)
    assert refusals(answers) == ["WrongState", "ok", "JobNotFound", "WrongState", "ok", "ok"]
    assert is_changed(answers[0], again)
    assert not is_changed(answers[3], done)
    assert [await env.info(job) for job in (again, done)] == before
    assert await env.drain(at=1) == ids_of([dead, dropped, second])


@case(EACH)
async def the_same_job_again(env: Environment) -> None:
    """The second time it is not as it was: unless the caller foresaw what the first would leave."""
    dead, ready, dropped = await env.dead(), await env.add(), await env.add()
    seen, gone = await seen_of(env, dead, dead), await seen_of(env, ready, ready)
    first, second = await act(env, "requeue", [dead, dead], seen, at=1)
    assert first is None
    assert is_changed(second, dead)
    foreseen = [*await seen_of(env, dropped), Seen(0, 0, env.at(2)), Seen(0, 0, env.at(1)), Seen(0)]
    answers = await act(env, "cancel", [dropped] * 4, foreseen, at=2)
    assert refusals(answers) == ["ok", "ok", "WrongState", "WrongState"]
    assert is_changed(answers[2], dropped)
    assert refusals(await act(env, "delete", [ready, ready], gone)) == ["ok", "JobNotFound"]
    again = await seen_of(env, dead)
    answers = await act(env, "requeue", [dead, dropped, dead, dropped], [*again, *foreseen[1:2], *again, Seen(0)], at=3)
    assert refusals(answers) == ["WrongState", "ok", "WrongState", "WrongState"]
    assert not any(is_changed(answer, dead) for answer in answers)
    assert (await env.info(dead, 3)).job.deliveries == 1
    assert await env.drain(at=3) == ids_of([dead, dropped])


@case(EACH)
async def very_many(env: Environment) -> None:
    """More than a driver sends at once; every third is not as it was seen."""
    jobs = await env.add_many(1200)
    seen = [Seen(number % 3 == 1) for number in range(1200)]
    expected = ["WrongState" if number % 3 == 1 else "ok" for number in range(1200)]
    assert refusals(await act(env, "cancel", jobs, seen, at=1)) == expected
    assert await env.counts(1) == {"cancelled": 800, "ready": 400}
    ended = [Seen(0, 0, env.at(1)) for _ in jobs]
    assert refusals(await act(env, "requeue", jobs, ended, at=2)) == expected
    assert refusals(await act(env, "delete", jobs, seen)) == expected
    assert await env.counts(1) == {"ready": 400}


@case(FITS, EACH)
async def what_others_depend_on(env: Environment) -> None:
    """A fitting Seen does not make delete forget a dependency; in one call it may follow its last dependent."""
    first = await env.finished()
    second = await env.add(depends_on=(first.id,))
    third = await env.add(depends_on=(second.id,))
    seen = await seen_of(env, first, second)
    assert refusals(await act(env, "delete", [first, second], seen)) == ["WrongState"] * 2
    jobs = [third, second, first]
    outdated = [Seen(1), *await seen_of(env, second, first)]
    assert refusals(await act(env, "delete", jobs, outdated)) == ["WrongState"] * 3
    assert await env.states(*jobs) == ["blocked", "ready", "done"]
    assert await act(env, "delete", jobs, await seen_of(env, *jobs)) == [None] * 3


@case(FITS, DIFFERS, FLAG)
async def in_a_flow(env: Environment) -> None:
    """A refused requeue leaves the flow cancelled; an accepted one resumes it."""
    flow = env.name("flow")
    first = await env.add(flow_id=flow)
    second = await env.add(flow_id=flow, depends_on=(first.id,))
    before = await seen_of(env, first, second)
    assert await env.driver.cancel_flow(flow, env.at(1)) == 2
    assert refusals(await act(env, "requeue", [first, second], before, at=2)) == ["WrongState"] * 2
    late = await env.add(flow_id=flow, at=2)
    assert await env.states(first, second, late, at=2) == ["cancelled"] * 3
    assert await act(env, "requeue", [second, first], await seen_of(env, second, first), at=3) == [None] * 2
    assert await env.states(first, second, at=3) == ["ready", "blocked"]
    assert (await env.driver.flow(flow, env.at(3))).status == "cancelled"  # by the late one
    await env.fail(await env.take_one(at=3), at=3)
    seen = await seen_of(env, first)
    await env.driver.requeue([first.id], env.at(4))
    assert refusals(await act(env, "cancel", [first], seen, at=4)) == ["WrongState"]
    assert await env.drain(at=4) == ids_of([first, second])


@case(FITS, DIFFERS)
async def the_capacity_of_a_group(env: Environment) -> None:
    """It is freed with the lease: by a cancel or delete that is accepted, once, and by no other."""
    jobs = await env.add_many(3, group=env.name("g"))
    for number, verb in enumerate(("cancel", "delete")):
        outdated = await seen_of(env, jobs[number])
        held = await env.take_one()
        assert held.job.id == jobs[number].id
        assert refusals(await act(env, verb, [held.job], outdated)) == ["WrongState"]
        assert await env.take() == []
        seen = await seen_of(env, held.job)
        assert refusals(await act(env, verb, [held.job, held.job], [*seen, *outdated]))[0] == "ok"
        await env.refused_ack(held)
    assert await env.taken_ids() == [jobs[2].id]
    assert await env.take() == []


@case(FITS, DIFFERS, "A key lives as long as its record: after `delete` or `prune` it is free again.")
async def the_key_of_a_job(env: Environment) -> None:
    job = await env.add(idempotency_key="key")
    assert refusals(await act(env, "delete", [job], [Seen(1)])) == ["WrongState"]
    assert ids_of(await env.put(env.job(idempotency_key="key"))) == [job.id]
    assert await act(env, "delete", [job], [Seen(0)]) == [None]
    assert (await env.put(env.job(idempotency_key="key")))[0].existed is False


@case(LENGTH)
async def another_length(env: Environment) -> None:
    dead, ready = await env.dead(), await env.add()
    (died,), (waits,) = await seen_of(env, dead), await seen_of(env, ready)
    for verb, job, seen in (("requeue", dead, died), ("cancel", ready, waits), ("delete", ready, waits)):
        before = await env.info(dead), await env.info(ready)
        for ids, given in (([job], []), ([job], [seen, seen]), ([job, job], [seen]), ([], [seen])):
            try:
                await act(env, verb, ids, given)
            except ValueError:
                continue
            raise AssertionError(f"{verb} took {len(ids)} ids with {len(given)} seen")
        assert (await env.info(dead), await env.info(ready)) == before


@case(DAMAGED, FITS)
async def a_damaged_record(env: Environment) -> None:
    """As `inspect` shows it, before and after a reserve has met it."""
    for met in (False, True):
        for how in ("type", "payload", "number", "state"):
            job = await env.add()
            await env.damage(job.id, how)
            if met:
                assert await env.take() == []
            (seen,) = await seen_of(env, job)
            (answer,) = await act(env, "delete", [job], [changed(seen, edits=seen.edits + 1)])
            assert is_changed(answer, job), how
            assert await act(env, "delete", [job], [seen]) == [None], how
            assert await env.gone(job)
