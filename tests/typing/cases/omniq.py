"""Both clients of OmniQ: calls that must pass the type checkers, and some that must not. Never run."""

from typing import assert_type

from taskharbor.omniq import AckFailResult, AsyncOmniQ, BatchItem, JobContext, OmniQ, ReserveResult

q = OmniQ("redis://localhost")
assert_type(q.publish("jobs", {"n": 1}, job_id="a", due_ms=1), str)
assert_type(q.reserve("jobs"), ReserveResult)
assert_type(q.ack_fail("jobs", "a", "t", error="x"), AckFailResult)
assert_type(q.retry_failed_batch("jobs", ["a"]), list[BatchItem])
assert_type(q.is_paused("jobs"), bool)
q.publish("jobs", "text")  # E: arg-type
q.publish("jobs", {}, jobid="a")  # E: call-arg
q.publish("jobs", {}, "a")  # E: call-arg
q.remove_job("jobs", "a", "nowhere")  # E: arg-type


def handler(ctx: JobContext) -> None: ...


async def ahandler(ctx: JobContext) -> None: ...


q.consume("jobs", handler, drain=False, grace_s=2)
q.consume("jobs", handler, drains=False)  # E: call-arg
q.consume("jobs", "handler")  # E: arg-type


async def awaited() -> None:
    async with AsyncOmniQ("redis://localhost") as client:
        assert_type(await client.publish("jobs", [1]), str)
        assert_type(await client.heartbeat("jobs", "a", "t"), int)
        await client.heartbeat("jobs", "a")  # E: call-arg
        await client.consume("jobs", ahandler, poll_interval_s=1.0)
