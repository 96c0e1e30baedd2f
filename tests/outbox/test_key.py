"""`ctx.key`: the same in every execution of a job."""

import pytest

from taskharbor import Fixed, Harbor, JobContext
from taskharbor.testing import ManualClock, context


@pytest.mark.parametrize("colour", ["plain", "coroutine"])
def test_a_key_survives_failures_and_a_requeue(colour: str) -> None:
    harbor, keys = Harbor("memory://", clock=ManualClock()), list[str]()

    def charge(ctx: JobContext) -> None:
        keys.append(ctx.key("charge"))
        if len(keys) < 4:
            raise ConnectionError

    async def acharge(ctx: JobContext) -> None:
        charge(ctx)

    task = harbor.task(retry=Fixed(0), max_attempts=3)(charge if colour == "plain" else acharge)
    with harbor:
        job = task.enqueue()
        harbor.worker().run(until_empty=True)
        assert job.status() == "dlq"
        job.requeue()
        harbor.worker().run(until_empty=True)
        assert job.status() == "done"
    assert keys == [f"{job.id}:charge"] * 4


def test_a_context_for_tests_has_keys() -> None:
    ctx = context()
    assert ctx.key("a") == context(ctx.job, attempt=3).key("a") != context().key("a")
