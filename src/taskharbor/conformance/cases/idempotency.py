"""Idempotency: keys and ids that are already known write nothing."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import Enqueued

KNOWN = "An idempotency key already known in that queue writes nothing: the known id is returned with `existed=True`."
ID_KNOWN = (
    "An id that already exists writes nothing and is returned with `existed=True`, so the call may be sent again."
)
ID_DECIDES = "If id and key disagree, the id decides."
LIFETIME = "A key lives as long as its record: after `delete` or `prune` it is free again."


@case(KNOWN)
async def known_key(env: Environment) -> None:
    first = await env.add(idempotency_key="key", payload=b"first")
    second = env.job(idempotency_key="key", payload=b"second", priority=9)
    assert await env.put(second) == [Enqueued(first.id, True)]
    assert await env.all_ids() == [first.id]
    assert (await env.info(first)).job == first


@case(KNOWN)
async def known_in_every_state(env: Environment) -> None:
    """Running, scheduled again, done, dead or cancelled: the record is there, so the key is known."""
    first = await env.add(idempotency_key="key")

    async def still_known(at: float) -> None:
        assert await env.put(env.job(idempotency_key="key"), at=at) == [Enqueued(first.id, True)]

    held = await env.take_one()
    await still_known(1)
    await env.retry(held, at=2, run_at=5)
    await still_known(3)
    await env.fail(await env.take_one(at=5), at=6)
    await still_known(7)
    await env.driver.requeue([first.id], env.at(8))
    await still_known(8)
    await env.driver.cancel([first.id], env.at(9))
    await still_known(9)
    await env.driver.requeue([first.id], env.at(10))
    await env.ack(await env.take_one(at=10), at=11)
    await still_known(12)
    assert await env.all_ids() == [first.id]


@case("The same key twice inside one call is one job.")
async def same_key_in_one_call(env: Environment) -> None:
    first, other = env.job(idempotency_key="key"), env.job()
    second, third = env.job(idempotency_key="key"), env.job(idempotency_key="key")
    answers = await env.put(first, second, other, third)
    assert answers == [
        Enqueued(first.id, False),
        Enqueued(first.id, True),
        Enqueued(other.id, False),
        Enqueued(first.id, True),
    ]
    assert await env.all_ids() == [first.id, other.id]


@case("The same key in another queue is another job.")
async def other_queue(env: Environment) -> None:
    first = await env.add(idempotency_key="key")
    second = env.job(idempotency_key="key", queue=env.q("other"))
    assert await env.put(second) == [Enqueued(second.id, False)]
    assert await env.put(env.job(idempotency_key="key")) == [Enqueued(first.id, True)]
    third, fourth = env.job(idempotency_key="two", queue=env.q("a")), env.job(idempotency_key="two", queue=env.q("b"))
    assert await env.put(third, fourth) == [Enqueued(third.id, False), Enqueued(fourth.id, False)]


@case(
    "No name collides with another, whatever characters it is made of.", "The same key in another queue is another job."
)
async def queue_and_key_are_not_pasted_together(env: Environment) -> None:
    pairs = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a", "b\x00c"),
        ("a b", "c"),
        ("a", " b c"),
        ("a'", "c"),
        ("a", "'c"),
        ("a/b", "c"),
    ]
    jobs = [env.job(queue=env.q(queue), idempotency_key=key) for queue, key in pairs]
    for job in jobs:
        assert await env.put(job) == [Enqueued(job.id, False)]
    for job in jobs:
        again = env.job(queue=job.queue, idempotency_key=job.idempotency_key)
        assert await env.put(again) == [Enqueued(job.id, True)]


@case("Idempotency keys are 1 to 512 bytes of any UTF-8 text, NUL included.")
async def keys_are_compared_byte_by_byte(env: Environment) -> None:
    """No trimming, no case folding, no normalising, no end at a NUL, no text read as a number."""
    keys = [
        "a",
        "A",
        "a ",
        " a",
        "a\x00",
        "a\x00b",
        "\x00",
        "é",
        "e\u0301",
        "1",
        "01",
        "1.0",
        "%",
        "_",
        "\\",
        "\n",
        "{a}",
        "💥",
    ]
    jobs = [env.job(idempotency_key=key) for key in keys]
    assert await env.put(*jobs) == [Enqueued(job.id, False) for job in jobs]
    again = [env.job(idempotency_key=key) for key in keys]
    assert await env.put(*again) == [Enqueued(job.id, True) for job in jobs]
    assert [(await env.info(job)).job.idempotency_key for job in jobs] == keys


@case(LIFETIME)
async def free_after_delete(env: Environment) -> None:
    """Also when the queue lives on."""
    await env.add(idempotency_key="other")
    first = await env.add(idempotency_key="key")
    assert await env.driver.delete([first.id]) == [None]
    second = env.job(idempotency_key="key")
    assert await env.put(second) == [Enqueued(second.id, False)]
    assert await env.put(env.job(idempotency_key="key")) == [Enqueued(second.id, True)]


@case(LIFETIME)
async def free_after_prune(env: Environment) -> None:
    await env.add(idempotency_key="other", run_at=env.at(60))
    await env.finished(idempotency_key="key")
    assert await env.driver.prune(env.at(1), 10) == 1
    second = env.job(idempotency_key="key")
    assert await env.put(second) == [Enqueued(second.id, False)]


@case(LIFETIME)
async def deleting_another_frees_nothing(env: Environment) -> None:
    """A job that was known by its key never owned it."""
    first = await env.add(idempotency_key="key")
    shadow = env.job(idempotency_key="key")
    await env.put(shadow)
    assert type((await env.driver.delete([shadow.id]))[0]).__name__ == "JobNotFound"
    assert await env.put(env.job(idempotency_key="key")) == [Enqueued(first.id, True)]


@case(ID_KNOWN)
async def known_id(env: Environment) -> None:
    first = await env.add(payload=b"first")
    again = env.job(id=first.id, payload=b"second", type="other")
    assert await env.put(again) == [Enqueued(first.id, True)]
    assert (await env.info(first)).job == first
    assert await env.taken_ids() == [first.id]


@case(ID_KNOWN)
async def known_id_in_another_queue(env: Environment) -> None:
    """An id is unique in the store, not in its queue."""
    first = await env.add()
    assert await env.put(env.job(id=first.id, queue=env.q("other"))) == [Enqueued(first.id, True)]
    assert await env.all_ids(queue=env.q("other")) == []


@case(ID_KNOWN)
async def known_id_keeps_its_state(env: Environment) -> None:
    """Sending an enqueue again after the job was done starts nothing."""
    first = await env.finished()
    assert await env.put(first, at=1) == [Enqueued(first.id, True)]
    assert await env.state(first, at=1) == "done"
    assert await env.take(at=1) == []


@case("The same id twice inside one call is one job.")
async def same_id_in_one_call(env: Environment) -> None:
    first = env.job(payload=b"first")
    second = env.job(id=first.id, payload=b"second")
    assert await env.put(first, second) == [Enqueued(first.id, False), Enqueued(first.id, True)]
    assert (await env.info(first)).job == first
    assert await env.counts() == {"ready": 1}


@case(ID_DECIDES)
async def id_before_key(env: Environment) -> None:
    first = await env.add(idempotency_key="one")
    second = await env.add(idempotency_key="two")
    mixed = env.job(id=first.id, idempotency_key="two")
    assert await env.put(mixed) == [Enqueued(first.id, True)]
    assert await env.put(env.job(idempotency_key="two")) == [Enqueued(second.id, True)]


@case(ID_DECIDES)
async def known_id_claims_no_key(env: Environment) -> None:
    first = await env.add(idempotency_key="one")
    assert await env.put(env.job(id=first.id, idempotency_key="new")) == [Enqueued(first.id, True)]
    second = env.job(idempotency_key="new")
    assert await env.put(second) == [Enqueued(second.id, False)]


@case(ID_DECIDES)
async def id_before_key_in_one_call(env: Environment) -> None:
    first, second = env.job(idempotency_key="one"), env.job(idempotency_key="two")
    mixed = env.job(id=first.id, idempotency_key="two")
    third = env.job(idempotency_key="two")
    answers = await env.put(first, mixed, second, third)
    assert answers == [
        Enqueued(first.id, False),
        Enqueued(first.id, True),
        Enqueued(second.id, False),
        Enqueued(second.id, True),
    ]
