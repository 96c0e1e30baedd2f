"""Text: error text is never refused, and no name is mistaken for another or for a statement."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import Cancelled, Fail, Retry

NEVER_REFUSED = (
    "Error text is never refused: NUL and surrogates are replaced, and it is cut to 8 KiB on a character boundary."
)
NO_COLLISION = "No name collides with another, whatever characters it is made of."

AWKWARD = (
    "plain",
    "with space",
    " leading",
    "trailing ",
    "'quote",
    '"double"',
    "`tick`",
    "back\\slash",
    "percent%s",
    "%",
    "under_score",
    "star*",
    "question?",
    "[range]",
    "a:b",
    "a::b",
    "a;b",
    "semi; drop table jobs; --",
    "$1",
    ":name",
    "@p",
    "#tag",
    "slash/../..",
    "comma,",
    "(paren)",
    "é",
    "e\u0301",
    "E",
    "e",
    "ß",
    "SS",
    "İ",
    "😀",
    "\u202eright-to-left",
    "\ufeffbom",
    "\u200bzero",
    "\U0010ffff",
    "null",
    "None",
    "0",
    "00",
    "true",
    "nil",
    "return 1",
    "]]",
)


@case(NEVER_REFUSED)
async def error_text_is_cleaned(env: Environment) -> None:
    """In a retry, a failure's reason and error, and a cancellation; what can be kept is kept."""
    nasty = "a\x00b\ud800c\udfffd 😀 é\n\t'\"{}%s\x1b[31m"
    await env.add_many(3)
    retried, failed, dropped = await env.take()
    answers = await env.settle(
        Retry(retried.lease, None, 1, nasty, env.now),
        Fail(failed.lease, nasty, 1, env.now, nasty),
        Cancelled(dropped.lease, nasty),
    )
    assert answers == [None, None, None]
    records = [(await env.info(held)).job for held in (retried, failed, dropped)]
    texts = [record.last_error for record in records] + [records[1].reason, records[2].reason]
    for text in texts:
        assert "\x00" not in text
        text.encode()  # no surrogate is left
        assert text.startswith("a")
        assert text.endswith("d 😀 é\n\t'\"{}%s\x1b[31m")
    assert len(set(texts)) == 1


@case(NEVER_REFUSED)
async def error_text_is_cut(env: Environment) -> None:
    """To 8,192 bytes or as close below as characters allow, with none broken."""
    for character in ("x", "é", "€", "😀"):
        job = await env.add(queue=env.q(character))
        held = await env.take_one(queues=[job.queue])
        await env.done(Retry(held.lease, None, 1, "ab" + character * 20_000))
        text = (await env.info(job)).job.last_error
        size = len(character.encode())
        assert 8192 - size < len(text.encode()) <= 8192
        assert text == "ab" + character * (len(text) - 2)


@case(NEVER_REFUSED)
async def error_text_within_bounds_is_kept(env: Environment) -> None:
    job = await env.add()
    held = await env.take_one()
    text = "é" * 4096
    await env.done(Fail(held.lease, text, 1, env.now))
    record = (await env.info(job)).job
    assert (record.reason, record.last_error) == (text, text)


@case(NEVER_REFUSED)
async def huge_reason(env: Environment) -> None:
    await env.add_many(2)
    failed, dropped = await env.take()
    assert await env.settle(
        Fail(failed.lease, "x" * 1_000_000, 1, env.now), Cancelled(dropped.lease, "\ud800" * 100_000)
    ) == [None, None]
    assert await env.states(failed, dropped) == ["dlq", "cancelled"]


@case(NO_COLLISION)
async def queues_of_every_kind(env: Environment) -> None:
    """Each has its one job, in listing, counting and reserving; pausing one pauses no other."""
    jobs = {name: await env.add(queue=env.q(name)) for name in AWKWARD}
    counts = await env.driver.counts(env.now)
    for name, job in jobs.items():
        assert counts[job.queue] == {"ready": 1}
        assert await env.all_ids(queue=job.queue) == [job.id], f"listing {name!r}"
    for name, job in jobs.items():
        await env.driver.pause(job.queue)
        assert await env.take(queues=[job.queue]) == []
        await env.driver.resume(job.queue)
        assert await env.taken_ids(queues=[job.queue]) == [job.id], f"reserving {name!r}"


@case(NO_COLLISION)
async def all_queues_in_one_call(env: Environment) -> None:
    jobs = [await env.add(queue=env.q(name)) for name in AWKWARD]
    taken = await env.take(queues=[job.queue for job in jobs])
    assert sorted(held.job.id for held in taken) == [job.id for job in jobs]


@case(NO_COLLISION)
async def ids_of_every_kind(env: Environment) -> None:
    for name in AWKWARD:
        job = await env.add(id=env.name(f"id{name}"))
        held = await env.take_one()
        assert held.job.id == job.id
        await env.ack(held, result=name.encode())
    for name in AWKWARD:
        id = env.name(f"id{name}")
        assert await env.driver.results([id]) == {id: name.encode()}
    answers = await env.driver.delete([env.name(f"id{name}") for name in AWKWARD])
    assert answers == [None] * len(AWKWARD)


@case(NO_COLLISION)
async def groups_of_every_kind(env: Environment) -> None:
    """Each group of its own: one of each may run."""
    for name in AWKWARD:
        await env.add_many(2, group=name, type=name)
    taken = await env.take(1000)
    assert sorted(str(held.job.group) for held in taken) == sorted(AWKWARD)
    for name in AWKWARD:
        assert len(await env.all_ids(group=name)) == 2
        assert len(await env.all_ids(type=name)) == 2


@case(NO_COLLISION)
async def flows_of_every_kind(env: Environment) -> None:
    for name in AWKWARD:
        first = env.job(flow_id=env.name(name), id=env.name(f"1{name}"))
        await env.put(first, env.job(flow_id=env.name(name), id=env.name(f"2{name}"), depends_on=(first.id,)))
    for name in AWKWARD:
        found = await env.driver.flow(env.name(name), env.now)
        assert found.edges == ((env.name(f"1{name}"), env.name(f"2{name}")),)
    assert len(await env.drain()) == 2 * len(AWKWARD)


@case(NO_COLLISION)
async def workers_of_every_kind(env: Environment) -> None:
    jobs = await env.add_many(len(AWKWARD))
    for name in AWKWARD:
        await env.take_one(worker=env.name(name))
    for name in AWKWARD:
        assert await env.driver.release(env.name(name), env.at(1)) == 1, f"releasing {name!r}"
    assert await env.counts(1) == {"ready": len(jobs)}
