"""What callers and other programs get wrong: it is refused before anything happens, or set down as a failure."""

import asyncio
import threading

import pytest

from taskharbor.omniq import AsyncOmniQ, NotActive, OmniQError
from tests.omniq.conftest import url
from tests.servers.redis import until


async def coroutine(ctx) -> None:
    raise AssertionError("nobody awaits this")


class Callable:
    async def __call__(self, ctx) -> None:
        raise AssertionError("nobody awaits this")


@pytest.mark.parametrize("handler", ["print", None, coroutine, Callable()])
def test_a_handler_that_cannot_run_takes_no_job(q, store, handler):
    q.publish("jobs", {}, job_id="a")
    with pytest.raises(TypeError, match="handler: expected a"):
        q.consume("jobs", handler)
    assert store.where("a") == ["wait"]


def test_an_asynchronous_handler_must_be_callable(server, q, store):
    q.publish("jobs", {}, job_id="a")

    async def story() -> None:
        async with AsyncOmniQ(url(server)) as client:
            await client.consume("jobs", "print")  # type: ignore[arg-type]  # wrong on purpose

    with pytest.raises(TypeError, match="handler: expected a function"):
        asyncio.run(story())
    assert store.where("a") == ["wait"]


def test_a_coroutine_that_is_never_awaited_is_a_failure(q, store):
    """Else a job would count as done of which nothing was done."""
    q.publish("jobs", {}, job_id="a", max_attempts=1)
    consuming = threading.Thread(target=lambda: q.consume("jobs", lambda ctx: coroutine(ctx)))
    consuming.start()
    until(lambda: store.where("a") == ["failed"], "the job to fail")
    q.stop()
    consuming.join()
    assert "awaitable, which is never awaited" in store.job("a")["last_error"]


@pytest.mark.parametrize("field", ["max_attempts", "timeout_ms", "backoff_ms", "created_ms"])
def test_a_number_that_another_program_damaged_stops_no_client(q, store, raw, field):
    q.publish("jobs", {}, job_id="a")
    raw.hset("{jobs}:job:a", field, "many")
    job = q.reserve("jobs")
    assert (job.job_id, job.attempt) == ("a", 1)
    assert job.max_attempts >= 1
    assert q.ack_fail("jobs", "a", job.lease_token)[0] == ("FAILED" if field == "max_attempts" else "RETRY")


def test_bytes_that_are_not_text_come_and_go_unchanged(q, store, raw):
    q.publish("jobs", {}, job_id="a", gid="g")
    fields = {"id": b"\xff", "payload": b'{"n":"\xfe"}', "state": "wait", "attempt": 0, "max_attempts": 3}
    raw.hset(b"{jobs}:job:\xff", mapping=fields)
    raw.rpush("{jobs}:wait", b"\xff")
    found = {job.job_id: job for job in (q.reserve("jobs"), q.reserve("jobs"))}
    job = found["\udcff"]
    with pytest.raises(ValueError, match="not JSON"):
        job.json()
    q.heartbeat("jobs", job.job_id, job.lease_token)
    q.ack_success("jobs", job.job_id, job.lease_token)
    with pytest.raises(NotActive):
        q.ack_success("jobs", job.job_id, job.lease_token)


def test_batches_are_any_iterable_of_ids(q):
    assert [item.error for item in q.retry_failed_batch("jobs", (id for id in ("a", "b")))] == ["NO_JOB"] * 2
    for nothing in ("abc", None, (), iter(())):
        with pytest.raises(OmniQError, match="BAD_ARGS"):
            q.retry_failed_batch("jobs", nothing)


def test_text_that_cannot_be_sent_is_refused(q):
    for arguments in (("\ud800", "t"), ("a", "\ud800")):
        with pytest.raises(ValueError, match="without lone surrogates"):
            q.ack_success("jobs", *arguments)


def test_a_payload_that_redis_cannot_take_is_refused(q, store, monkeypatch):
    monkeypatch.setattr("taskharbor.omniq.operations.MAX_PAYLOAD_BYTES", 100)
    with pytest.raises(ValueError, match="payload: expected at most 100 bytes of JSON, got 101"):
        q.publish("jobs", ["x" * 97])
    assert q.publish("jobs", ["x" * 96], job_id="a") == "a"


def test_a_cancelled_call_leaves_its_reply_to_no_other_call(server):
    """At every step of a call: the next one gets its own reply."""

    async def story() -> None:
        async with AsyncOmniQ(url(server)) as q:
            for steps in range(60):
                call = asyncio.ensure_future(q.publish("jobs", {}, job_id=f"a{steps}"))
                for _ in range(steps % 20):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                assert await q.publish("jobs", {}, job_id=f"b{steps}") == f"b{steps}"
                assert await q.is_paused("jobs") is False

    asyncio.run(story())
