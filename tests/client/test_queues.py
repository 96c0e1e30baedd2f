"""Queues that only a call names: no worker serves them by itself, so the client warns of them or refuses them."""

import asyncio
import enum
import logging
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor, JobRequest
from taskharbor.flow import chain
from taskharbor.tasks.declared_queues import MAX_WARNINGS
from taskharbor.testing import adrain, drain

pytestmark = pytest.mark.usefixtures("each_way")

UNSERVED = r"which no task declares: harbor\.worker\(\) would not have run them; list them in"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "no task declares it" in record.getMessage()]


def declare(harbor: Harbor) -> Any:
    @harbor.task(name="work", queue="mail")
    def work(x: int = 0) -> int:
        return x

    return work


@pytest.mark.parametrize(
    "send",
    [
        lambda harbor, work: work.options(queue="vip").enqueue(),
        lambda harbor, work: asyncio.run(work.options(queue="vip").aenqueue()),
        lambda harbor, work: harbor.enqueue_many([work.s(), work.s().options(queue="vip")]),
        lambda harbor, work: chain(work.s(), work.s().options(queue="vip")).enqueue(),
        lambda harbor, work: harbor.client.enqueue(JobRequest(type="work", queue="vip")),
    ],
    ids=["enqueue", "aenqueue", "enqueue_many", "flow", "request"],
)
def test_a_queue_that_no_task_declares_is_warned_of_once(send: Any, caplog: pytest.LogCaptureFixture) -> None:
    with Harbor("memory://") as harbor:
        work = declare(harbor)
        with caplog.at_level(logging.WARNING, "taskharbor"):
            work.enqueue()
            assert told(caplog) == []
            send(harbor, work)
            send(harbor, work)
        (text,) = told(caplog)
        assert text.startswith(
            "the queue 'vip' got a job, but no task declares it, so harbor.worker() does not serve it"
        )


def test_drain_warns_of_queues_that_a_worker_would_not_serve() -> None:
    with Harbor("memory://") as harbor:
        work = declare(harbor)
        handle = work.options(queue="vip").enqueue(3)
        harbor.worker().run(until_empty=True)
        assert handle.status() == "ready"
        with pytest.warns(UserWarning, match=f"drain ran jobs of the queues 'vip', {UNSERVED}"):
            assert drain(harbor) == 1
        assert handle.result() == 3
        drain(harbor)  # nothing was run: nothing to say


def test_adrain_warns_of_queues_that_a_worker_would_not_serve() -> None:
    async def main() -> None:
        async with Harbor("memory://") as harbor:
            await declare(harbor).options(queue="vip").aenqueue()
            with pytest.warns(UserWarning, match=UNSERVED):
                await adrain(harbor)

    asyncio.run(main())


def test_a_listed_queue_is_served_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Name(enum.StrEnum):
        VIP = "vip"

    with Harbor("memory://", queues=["mail", Name.VIP]) as harbor:
        work = declare(harbor)
        assert harbor.declared_queues == ("default", "mail", "vip")
        handles = [work.options(queue="vip").enqueue(1), work.enqueue(2)]
        harbor.worker().run(until_empty=True)
        assert [handle.result(1) for handle in handles] == [1, 2]
        work.options(queue=Name.VIP).enqueue()
        assert drain(harbor) == 1
    assert told(caplog) == []


def test_a_queue_that_is_not_listed_is_refused() -> None:
    with Harbor("memory://", queues=["mail", "vip"]) as harbor:
        work = declare(harbor)
        refused = (
            r"work: queue: expected one of those that Harbor\(queues=…\) lists, got 'vpi'; did you mean 'vip'\? they"
        )
        for use in (lambda: work.options(queue="vpi"), lambda: work.s().options(queue="vpi")):
            with pytest.raises(ValueError, match=refused):
                use()
        with pytest.raises(ValueError, match=r"got 'sms'; they are: default, mail, vip"):
            harbor.task(name="other", queue="sms")(lambda: None)
        assert "other" not in harbor.tasks
        harbor.task(name="plain")(lambda: None).options(queue="default").enqueue()
        with pytest.raises(TypeError, match="queue: expected text, got int"):
            work.options(queue=3)


@pytest.mark.parametrize("wrong", ["mail", 3])
def test_queues_are_a_list_of_names(wrong: Any) -> None:
    with pytest.raises(TypeError, match="queues: expected a list of queue names, got"):
        Harbor("memory://", queues=wrong)
    with pytest.raises(ValueError, match="queues: expected"):
        Harbor("memory://", queues=[""])


def test_a_program_without_tasks_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    with Harbor("memory://") as harbor:
        harbor.client.enqueue(JobRequest(type="theirs", queue="theirs"))
    assert told(caplog) == []


def test_at_most_ten_queues_are_warned_of(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with Harbor("memory://") as harbor:
        work = declare(harbor)
        for number in range(3 * MAX_WARNINGS):
            work.options(queue=f"tenant-{number}").enqueue()
    assert len(told(caplog)) == MAX_WARNINGS


def test_a_task_that_is_declared_later_counts(caplog: pytest.LogCaptureFixture) -> None:
    with Harbor("memory://") as harbor:
        early = declare(harbor).options(queue="late")
        harbor.task(name="late", queue="late")(lambda: None)
        early.enqueue()
    assert told(caplog) == []
