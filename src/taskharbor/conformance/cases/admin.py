"""Admin: inspect, requeue, cancel, delete and the workers."""

from __future__ import annotations

import msgspec

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.drivers import WORKER_SILENCE, Fail, JobNotFound, State, WorkerInfo, replace

INSPECT = (
    "`inspect(id, now)` returns the job, its state, its worker, the end of its lease and what it "
    "waits for; or raises `JobNotFound`."
)
REQUEUE = (
    "`requeue` takes dead and cancelled jobs, with their `last_error`, `failed_at` and `deliveries` kept "
    "and `reason` and `finished_at` cleared; `reset_attempts` sets `attempts` to 0."
)
REQUEUE_BLOCKED = "A requeued job with open dependencies is blocked; a dependency whose record is gone is not open."
CANCEL = "`cancel` takes whatever is not terminal, with the reason `cancelled`; a cancelled one again without effect."
DELETE = "`delete` takes any job, except one on which a job depends that is neither done nor cancelled."
WRONG = "An unknown id is `JobNotFound`; a wrong state is `WrongState`, and nothing is changed."
BEAT = (
    "`beat` stores the heartbeat of a worker, and `workers(now)` returns the workers with one in the "
    "last minute, in the order of their names."
)

LEAVING = (
    "A heartbeat replaces the worker's last one, also with an earlier `now`: a worker that stops "
    "sends one dated a minute back, and leaves the list at once."
)
WHOLE_BEAT = (
    "Every field of a heartbeat comes back as it was sent, also the thousand executions that `cut_off` may name: "
    "core judges by them which lost executions were crashes."
)


@case(INSPECT)
async def inspect(env: Environment) -> None:
    job = await env.add()
    child = await env.add(depends_on=(job.id,))
    await env.take_one(worker=env.name("w"), lease=7)
    info = await env.info(job, 1)
    assert (info.state, info.worker, info.lease_expires_at, info.waiting_for) == (
        State.INFLIGHT,
        env.name("w"),
        env.at(7),
        (),
    )
    waiting = await env.info(child, 1)
    assert (waiting.job, waiting.state, waiting.worker, waiting.lease_expires_at) == (child, State.BLOCKED, "", None)
    assert waiting.waiting_for == (job.id,)


@case(INSPECT)
async def inspect_unknown(env: Environment) -> None:
    for id in (env.name("unknown"), env.name("%"), env.name("no' or 'x"), env.name("*")):
        try:
            await env.driver.inspect(id, env.now)
        except JobNotFound:
            continue
        raise AssertionError("a job that was never enqueued was found")


@case(REQUEUE)
async def requeue_dead(env: Environment) -> None:
    job = await env.add()
    held = await env.take_one()
    await env.done(Fail(held.lease, "gave up", 3, env.at(1), "trace"), at=2)
    assert await env.driver.requeue([job.id], env.at(5)) == [None]
    info = await env.info(job, 5)
    assert info.state == "ready"
    assert info.job == replace(job, attempts=3, last_error="trace", failed_at=env.at(1), deliveries=1, **env.ran())
    assert (await env.take_one(at=5)).job.deliveries == 2


@case(REQUEUE)
async def requeue_cancelled(env: Environment) -> None:
    job = await env.add(attempts=2)
    await env.driver.cancel([job.id], env.at(1))
    assert await env.driver.requeue([job.id], env.at(5), None, True) == [None]
    record = (await env.info(job, 5)).job
    assert (record.attempts, record.reason, record.finished_at) == (0, "", None)
    assert await env.taken_ids(at=5) == [job.id]


@case(REQUEUE)
async def requeue_for_later(env: Environment) -> None:
    job = await env.dead()
    await env.driver.requeue([job.id], env.at(1), env.at(60))
    assert (await env.info(job, 1)).job.run_at == env.at(60)
    assert await env.states(job, at=59.999) == ["scheduled"]
    assert await env.taken_ids(at=60) == [job.id]


@case(REQUEUE)
async def requeue_of_a_scheduled_one_is_at_once(env: Environment) -> None:
    job = await env.add(run_at=env.at(1000))
    await env.driver.cancel([job.id], env.at(1))
    await env.driver.requeue([job.id], env.at(2))
    assert await env.taken_ids(at=2) == [job.id]


@case(REQUEUE, WRONG)
async def requeue_refusals(env: Environment) -> None:
    done = await env.finished()
    dead = await env.dead()
    held = await env.add()
    await env.take_one()
    ready, later = await env.add(), await env.add(run_at=env.at(9))
    blocked = await env.add(depends_on=(later.id,))
    jobs = [done, held, ready, later, blocked]
    before = [await env.info(job) for job in jobs]
    ids = [done.id, held.id, env.name("unknown"), ready.id, dead.id, later.id, blocked.id, dead.id]
    answers = await env.driver.requeue(ids, env.now, None, True)
    wrong = "WrongState"
    assert refusals(answers) == [wrong, wrong, "JobNotFound", wrong, "ok", wrong, wrong, wrong]
    assert [await env.info(job) for job in jobs] == before
    assert await env.state(dead) == "ready"


@case(REQUEUE_BLOCKED)
async def requeue_with_open_dependencies(env: Environment) -> None:
    first, second = await env.add_many(2)
    job = await env.add(depends_on=(first.id, second.id))
    await env.driver.cancel([job.id], env.now)
    await env.fail(await env.take_one())
    await env.ack(await env.take_one())
    assert await env.driver.requeue([job.id], env.at(1)) == [None]
    info = await env.info(job, 1)
    assert (info.state, info.waiting_for) == ("blocked", (first.id,))
    await env.driver.requeue([first.id], env.at(1))
    assert await env.drain(at=1) == [first.id, job.id]


@case(REQUEUE_BLOCKED)
async def requeue_with_gone_dependencies(env: Environment) -> None:
    """Deleted or pruned: what is gone cannot be waited for."""
    deleted, pruned = await env.add_many(2)
    job = await env.add(depends_on=(deleted.id, pruned.id))
    await env.driver.cancel([pruned.id], env.now)
    await env.driver.cancel([job.id], env.at(5))
    assert await env.driver.delete([deleted.id]) == [None]
    assert await env.driver.prune(env.at(1), 10) == 1
    await env.driver.requeue([job.id], env.at(6))
    assert (await env.info(job, 6)).waiting_for == ()
    assert await env.taken_ids(at=6) == [job.id]


@case(CANCEL)
async def cancel(env: Environment) -> None:
    held = await env.add()
    await env.take_one()
    ready, later = await env.add(), await env.add(run_at=env.at(60))
    blocked = await env.add(depends_on=(later.id,))
    expired = await env.add(queue=env.q("other"))
    await env.take_one(queues=[env.q("other")], lease=1)
    jobs = [blocked, held, ready, later, expired]
    assert await env.driver.cancel([job.id for job in jobs], env.at(2)) == [None] * 5
    for job in jobs:
        info = await env.info(job, 3)
        assert (info.state, info.job.reason, info.job.finished_at) == ("cancelled", "cancelled", env.at(2))
        assert (info.worker, info.lease_expires_at) == ("", None)
    assert await env.take(at=100, queues=[env.queue, env.q("other")]) == []


@case(CANCEL)
async def cancel_again(env: Environment) -> None:
    job = await env.add()
    assert await env.driver.cancel([job.id, job.id], env.at(1)) == [None, None]
    assert await env.driver.cancel([job.id], env.at(5)) == [None]
    assert (await env.info(job, 5)).job.finished_at == env.at(1)
    other = await env.add()
    await env.drop(await env.take_one(), at=2, reason="its own")
    assert await env.driver.cancel([other.id], env.at(5)) == [None]
    record = (await env.info(other, 5)).job
    assert (record.reason, record.finished_at) == ("its own", env.at(2))


@case(CANCEL, WRONG)
async def cancel_refusals(env: Environment) -> None:
    done, dead = await env.finished(), await env.dead()
    ready = await env.add()
    before = [await env.info(job) for job in (done, dead)]
    answers = await env.driver.cancel([done.id, env.name("unknown"), ready.id, dead.id], env.at(1))
    assert refusals(answers) == ["WrongState", "JobNotFound", "ok", "WrongState"]
    assert [await env.info(job) for job in (done, dead)] == before


@case(DELETE)
async def delete_in_any_state(env: Environment) -> None:
    done, dead = await env.finished(), await env.dead()
    held = await env.add()
    await env.take_one()
    ready, later, dropped = await env.add(), await env.add(run_at=env.at(9)), await env.add()
    await env.driver.cancel([dropped.id], env.now)
    blocked = await env.add(depends_on=(later.id,))
    jobs = [blocked, done, dead, held, ready, later, dropped]
    assert await env.driver.delete([job.id for job in jobs]) == [None] * 7
    assert [await env.gone(job) for job in jobs] == [True] * 7
    assert await env.counts() == {}
    assert await env.all_ids() == []
    assert env.queue not in await env.driver.queues()
    assert await env.take(at=100) == []


@case(DELETE, WRONG)
async def delete_refusals(env: Environment) -> None:
    """In the order given: a dependency may follow its last dependent in the same call."""
    first = await env.add()
    second = await env.add(depends_on=(first.id,))
    answers = await env.driver.delete([first.id, env.name("unknown")])
    assert refusals(answers) == ["WrongState", "JobNotFound"]
    assert await env.states(first, second) == ["ready", "blocked"]
    assert refusals(await env.driver.delete([second.id, first.id, first.id])) == ["ok", "ok", "JobNotFound"]


@case(DELETE)
async def delete_what_is_depended_on(env: Environment) -> None:
    """A dependent that is ready, running or dead is not finished; one that is done or cancelled is."""
    first = await env.finished()
    second = await env.add(depends_on=(first.id,))
    assert refusals(await env.driver.delete([first.id])) == ["WrongState"]
    held = await env.take_one()
    assert refusals(await env.driver.delete([first.id])) == ["WrongState"]
    await env.fail(held)
    assert refusals(await env.driver.delete([first.id])) == ["WrongState"]
    await env.driver.requeue([second.id], env.now)
    await env.drain()
    assert refusals(await env.driver.delete([first.id])) == ["ok"]
    assert await env.state(second) == "done"
    third = await env.add()
    fourth = await env.add(depends_on=(third.id,))
    await env.driver.cancel([fourth.id], env.now)
    assert refusals(await env.driver.delete([third.id])) == ["ok"]


@case(DELETE)
async def deleted_id_is_free_again(env: Environment) -> None:
    job = await env.finished()
    await env.driver.delete([job.id])
    assert (await env.put(job))[0].existed is False
    record = (await env.take_one()).job
    assert (record.deliveries, record.result) == (1, None)
    assert await env.driver.results([job.id]) == {}


@case(WRONG)
async def empty_calls(env: Environment) -> None:
    assert await env.driver.requeue([], env.now) == []
    assert await env.driver.cancel([], env.now) == []
    assert await env.driver.delete([]) == []


def worker(env: Environment, name: str, running: int = 0) -> WorkerInfo:
    return WorkerInfo(env.name(name), (env.queue, "other"), running, env.at(-60), 8, "host", 42)


async def workers_at(env: Environment, at: float) -> list[WorkerInfo]:
    """The workers of this case."""
    return [info for info in await env.driver.workers(env.at(at)) if info.worker.startswith(env.prefix)]


@case(BEAT)
async def beat(env: Environment) -> None:
    for name in ("b", "a", "B", "é"):
        await env.driver.beat(worker(env, name), env.now)
    found = await workers_at(env, 1)
    assert [info.worker for info in found] == [env.name(name) for name in ("B", "a", "b", "é")]
    given = msgspec.structs.replace(worker(env, "B"), seen_at=env.now)
    assert msgspec.structs.replace(found[0], seen_at=env.now) == given
    assert found[0].seen_at == env.now


@case(WHOLE_BEAT)
async def a_whole_beat(env: Environment) -> None:
    long = "é" * 100
    cut_off = tuple((f"{env.name(long)}{number}", number + 1) for number in range(1000))
    sent = msgspec.structs.replace(worker(env, "a"), running=3, stuck=2, seen_at=env.now, cut_off=cut_off)
    await env.driver.beat(sent, env.now)
    assert await workers_at(env, 1) == [sent]
    await env.driver.beat(msgspec.structs.replace(sent, cut_off=cut_off[1:]), env.at(1))
    [found] = await workers_at(env, 2)
    assert found.cut_off == cut_off[1:]


@case(BEAT)
async def beat_again(env: Environment) -> None:
    await env.driver.beat(worker(env, "a", 1), env.now)
    await env.driver.beat(worker(env, "a", 2), env.at(30))
    assert [(info.running, info.seen_at) for info in await workers_at(env, 31)] == [(2, env.at(30))]
    assert len(await workers_at(env, 89.999)) == 1
    assert await workers_at(env, 90.001) == []


@case(LEAVING)
async def a_last_beat(env: Environment) -> None:
    """How a worker reports that it has stopped, so that it does not count as silent."""
    for name in ("a", "b"):
        await env.driver.beat(worker(env, name, 1), env.at(100))
    last = msgspec.structs.replace(worker(env, "a"), stopped_at=env.at(101))
    await env.driver.beat(last, env.at(101) - WORKER_SILENCE)
    assert [info.worker for info in await workers_at(env, 101)] == [env.name("b")]
    assert {info.worker: info.stopped_at for info in await workers_at(env, 50)} == {
        env.name("a"): env.at(101),
        env.name("b"): None,
    }
    await env.driver.beat(worker(env, "a"), env.at(102))
    assert [info.worker for info in await workers_at(env, 102)] == [env.name("a"), env.name("b")]


@case(BEAT)
async def a_minute(env: Environment) -> None:
    await env.driver.beat(worker(env, "a"), env.now)
    await env.driver.beat(worker(env, "b"), env.at(30))
    assert [info.worker for info in await workers_at(env, 59.999)] == [env.name("a"), env.name("b")]
    assert [info.worker for info in await workers_at(env, 60.001)] == [env.name("b")]
