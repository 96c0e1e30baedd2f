"""Handles and flows that are found again; the Mermaid text."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import Harbor, JobCancelled, JobDead, JobNotFound
from taskharbor.drivers import FlowInfo, FlowStatus, JobInfo, JobRecord, Page, State
from taskharbor.drivers.base import Driver
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.flow import chain, chord, group, mermaid
from taskharbor.testing import ManualClock, drain
from tests.flow.stores import call_store
from tests.flow.tasks import Tasks


def test_a_flow_is_found_by_its_id(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(tasks.number.s(1), group(tasks.add.s(), tasks.add.s()), tasks.total.s()).enqueue()
    found = harbor.flow(handle.id)
    assert isinstance(found, FlowInfo)
    assert (found.id, found.status, len(found.nodes), len(found.edges)) == (handle.id, "running", 4, 4)
    assert list(found.states.values()) == ["ready", "blocked", "blocked", "blocked"]
    assert found.handle == handle
    assert len({found.handle, handle}) == 1
    assert str(found.progress) == "0 of 4"
    drain(harbor)
    assert found.result(1) == 4
    assert found.status == "running"  # as it was
    assert found.handle.status() == "succeeded"
    with pytest.raises(JobNotFound):
        harbor.flow("nowhere")


def test_a_look_at_a_running_flow_reads_no_payloads(
    harbor: Harbor, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the whole flow in one call: it may have a hundred thousand jobs."""
    handle = chain(tasks.number.s(1), tasks.add.s(), tasks.add.s()).enqueue()
    kind = type(harbor.driver)
    asked, whole = [], kind.list

    async def watched(self: Any, **wanted: Any) -> Page:
        asked.append((wanted["payloads"], wanted["limit"]))
        return await whole(self, **wanted)

    async def never(self: Any, *arguments: Any) -> FlowInfo:
        raise AssertionError("the whole flow was read")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "list", watched)
        patch.setattr(kind, "flow", never)
        assert (handle.status(), str(handle.progress())) == ("running", "0 of 3")
    assert asked == [(False, 1_000)] * 2
    drain(harbor)
    assert (handle.status(), str(handle.progress())) == ("succeeded", "3 of 3")


def test_durations_count_from_the_moment_nothing_holds_a_job_up(harbor: Harbor, tasks: Tasks) -> None:
    clock = harbor.clock
    assert isinstance(clock, ManualClock)

    @harbor.task(name="slow")
    def slow(seconds: int) -> int:
        clock.advance(seconds)
        return seconds

    handle = chain(slow.s(2), slow.s(), tasks.number.s(1), tasks.nothing.s().options(delay=100)).enqueue()
    drain(harbor)
    assert list(harbor.flow(handle.id).durations.values()) == [timedelta(seconds=2)] * 2 + [timedelta(), None]


def test_the_step_that_died_is_found_in_a_large_flow(
    harbor: Harbor, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page looks at some thousand records: it may be empty, and not the last."""
    whole = Driver.list

    async def first_empty(self: Any, *, cursor: str | None = None, **wanted: Any) -> Page:
        return Page((), encode_cursor("0")) if cursor is None else await whole(self, cursor=cursor, **wanted)

    monkeypatch.setattr(Driver, "list", first_empty)
    tasks.broken.add(1)
    handle = chain(tasks.number.s(1), tasks.add.s(), tasks.add.s()).enqueue()
    drain(harbor)
    with pytest.raises(JobDead, match="1 is broken"):
        handle.result(1)


def test_cancelling(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(tasks.number.s(1).options(queue="first"), tasks.add.s(), tasks.add.s()).enqueue()
    harbor.worker(queues=["first"], heart="loop").run(until_empty=True)
    assert handle.cancel() == 2
    assert handle.status() == "cancelled"
    with pytest.raises(JobCancelled, match="flow cancelled"):
        handle.result(1)
    drain(harbor)
    assert tasks.names() == ["number"]
    assert harbor.flow(handle.id).cancel() == 0


def test_records_that_are_gone(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(tasks.number.s(1)).enqueue()
    drain(harbor)
    clock = harbor.clock
    assert isinstance(clock, ManualClock)
    clock.advance(48 * 3600)
    client, now = harbor.client, clock.now()
    assert call_store(client, lambda d: d.prune(now, 10)) == 1
    for ask in (handle.status, handle.result, handle.progress):
        with pytest.raises(JobNotFound, match=f"flow {handle.id} has no records"):
            ask()


def test_a_flow_whose_only_step_is_a_plain_job_that_was_known(harbor: Harbor, tasks: Tasks) -> None:
    tasks.number.options(idempotency_key="k").enqueue(5)
    handle = chain(tasks.number.s(1).options(idempotency_key="k")).enqueue()
    assert (handle.existed, handle.status()) == (True, "running")
    drain(harbor)
    assert (handle.status(), handle.result(1)) == ("succeeded", 5)


# Mermaid


def test_the_mermaid_text(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {2}
    handle = chain(tasks.number.s(1), group(tasks.add.s(), tasks.add.s(2)), on_failure=tasks.alert.s()).enqueue()
    drain(harbor)
    assert harbor.flow(handle.id).mermaid() == (
        "flowchart TD\n"
        '    n0[/"alert<br/>done"/]:::done\n'
        '    n1["number<br/>done"]:::done\n'
        '    n2["add<br/>done"]:::done\n'
        '    n3["add<br/>dlq"]:::dlq\n'
        '    n4(("join<br/>blocked")):::blocked\n'
        "    n1 --> n2\n"
        "    n1 --> n3\n"
        "    n2 --> n4\n"
        "    n3 --> n4\n"
        "    classDef done fill:#cfc,stroke:#888\n"
        "    classDef blocked fill:#eee,stroke:#888\n"
        "    classDef dlq fill:#fcc,stroke:#888\n"
    )


def test_a_workflow_that_took_a_place_is_drawn_with_a_dotted_arrow(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(tasks.counted.s(2), tasks.collect.s()).enqueue()
    drain(harbor)
    text = harbor.flow(handle.id).mermaid()
    assert text.count(" -.-> ") == 1
    assert text.count(" --> ") == 3


def test_a_large_group_is_one_box(harbor: Harbor, tasks: Tasks) -> None:
    handle = chord((tasks.number.s(i) for i in range(200)), tasks.total.s()).enqueue()
    text = harbor.flow(handle.id).mermaid()
    assert '    n0["200 × number<br/>ready"]:::ready\n' in text
    assert text.count(" --> ") == 1


def test_a_name_cannot_break_out_of_its_box() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    job = JobRecord(id="a", type='x"]; click <b>\u202e', flow_id="f")
    info = FlowInfo("f", FlowStatus.RUNNING, now, now, (JobInfo(job, State.READY),), ())
    assert mermaid(info).splitlines()[1] == '    n0["x#34;]#59; click #60;b#62;#8238;<br/>ready"]:::ready'


def test_a_last_step_known_from_a_failed_flow_ends_the_wait(harbor: Harbor, tasks: Tasks) -> None:
    tasks.broken = {2}
    last = tasks.add.s().options(idempotency_key="last")
    first = chain(tasks.number.s(1), tasks.add.s(), tasks.add.s(), last).enqueue()
    second = chain(tasks.number.s(1), last).enqueue()
    drain(harbor)
    for handle in (first, second):
        with pytest.raises(JobDead, match="2 is broken"):
            handle.result(1)


def test_a_flow_is_waited_for_and_watched_like_a_job(harbor: Harbor, tasks: Tasks) -> None:
    handle = chain(tasks.number.s(1), tasks.add.s()).enqueue()
    with pytest.raises(TimeoutError, match=r"runs after 0\.001 seconds; no worker"):
        handle.wait(0.001)
    seen = []
    for info in handle.watch(timeout=60):
        seen.append((info.status, sum(node.state is State.DONE for node in info.nodes)))
        if len(seen) == 1:
            with pytest.raises(TimeoutError, match="runs after"):
                list(handle.watch(timeout=0.001))
            drain(harbor)
    assert seen == [("running", 0), ("succeeded", 2)]
    assert handle.wait() is FlowStatus.SUCCEEDED
    assert [node.state for node in handle.info().nodes] == ["done", "done"]
    cancelled = chain(tasks.number.s(1), tasks.add.s()).enqueue()
    cancelled.cancel()
    assert cancelled.wait() is FlowStatus.CANCELLED
    assert [info.status for info in cancelled.watch()] == ["cancelled"]


async def test_a_flow_is_watched_on_an_event_loop() -> None:
    async with Harbor("memory://") as harbor:

        @harbor.task(name="plain")
        def plain() -> int:
            return 1

        handle = await chain(plain.s()).aenqueue()
        seen = []
        async for info in handle.awatch(timeout=60):
            seen.append(info.status)
            if len(seen) == 1:
                await harbor.worker().arun(until_empty=True)
        assert seen == ["running", "succeeded"]
        assert await handle.await_(timeout=60) == "succeeded"
        assert len((await handle.ainfo()).nodes) == 1


def test_the_handle_of_a_workflow_knows_names_of_other_libraries(harbor: Harbor, tasks: Tasks) -> None:
    handle: Any = chain(tasks.number.s(1), tasks.add.s()).enqueue()
    for name, hint in {"get": "handle.result(timeout=…)", "ready": "handle.status()", "nowhere": "'nowhere'"}.items():
        with pytest.raises(AttributeError, match=re.escape(hint)):
            getattr(handle, name)
