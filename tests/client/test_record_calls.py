"""Looking at one job and mending it: info, attempts, progress, amend, delete and requeue, in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import (
    AttemptKind,
    BackendUnavailable,
    Client,
    FeatureMissing,
    Harbor,
    InvalidJob,
    JobInfo,
    JobNotFound,
    JobRequest,
    Progress,
    State,
    WrongState,
)
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.amendment import Amend
from taskharbor.model.errors import TaskHarborError
from taskharbor.model.executions import Attempt, write_trail
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Reserved
from taskharbor.model.outcome import Ack, Fail, Outcome, Retry
from taskharbor.model.progress import write_note
from taskharbor.testing import Faults, ManualClock
from tests.client.tools import Waits, call
from tests.drivers.small_driver import SmallDriver

LEASE = timedelta(seconds=30)


def on_store(harbor: Harbor, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do something with a driver of its own on the harbor's store, as a worker elsewhere would."""

    async def main() -> Any:
        driver = harbor.driver.sibling()
        await driver.open()
        try:
            return await work(driver)
        finally:
            await driver.close()

    return asyncio.run(main())


def reserve(harbor: Harbor) -> Reserved:
    async def work(driver: Any) -> Reserved:
        (reserved,) = await driver.reserve(["default"], harbor.clock.now(), LEASE, 1, "w1")
        found: Reserved = reserved
        return found

    found: Reserved = on_store(harbor, work)
    return found


def settle(harbor: Harbor, outcome: Outcome) -> None:
    assert on_store(harbor, lambda driver: driver.settle([outcome], harbor.clock.now())) == [None]


def declare(harbor: Harbor) -> Any:
    @harbor.task(name="send")
    def send(to: str, times: int = 1, *extra: int, **more: str) -> str:
        return to

    return send


def test_info_is_the_job_itself_as_it_is_now(harbor: Harbor, colour: str) -> None:
    send = declare(harbor)
    handle = send.options(priority=4).enqueue("ada")
    info = call(colour, harbor.client, harbor.job(handle.id), "info")
    assert (info.state, info.job.type, info.job.priority, info.worker) == (State.READY, "send", 4, "")
    reserved = reserve(harbor)
    info = call(colour, harbor.client, send.job(handle.id), "info")
    assert (info.state, info.worker, info.lease_expires_at) == (State.INFLIGHT, "w1", reserved.lease.expires_at)
    assert (info.job.began_at, info.job.ran_on) == (harbor.clock.now(), "w1")


def test_what_the_record_holds_does_not_follow_a_workflow_that_took_its_place(harbor: Harbor, colour: str) -> None:
    handle = declare(harbor).enqueue("ada")
    heir = JobRecord(id="heir", type="t", queue="other", flow_id="f")
    settle(harbor, Ack(reserve(harbor).lease, spawn=(heir,), handover="heir"))
    info = call(colour, harbor.client, handle, "info")
    assert (info.job.id, info.state, info.job.handed_to) == (handle.id, State.DONE, "heir")
    assert call(colour, harbor.client, handle, "status") is State.READY  # what stands for it
    assert [each.kind for each in call(colour, harbor.client, handle, "executions")] == [AttemptKind.DONE]
    call(colour, harbor.client, handle, "delete")
    assert call(colour, harbor.client, harbor.job("heir"), "status") is State.READY


def test_attempts_are_listed_without_the_values_of_the_payload(harbor: Harbor, colour: str) -> None:
    handle = declare(harbor).enqueue("CANARY-4111")
    first = Attempt(number=1, kind=AttemptKind.FAILED, worker="w1", error_class="OSError", error="no CANARY-4111")
    lease = reserve(harbor).lease
    settle(harbor, Retry(lease, None, 1, "no CANARY-4111", error_class="OSError", trail=write_trail([first])))
    settle(harbor, Fail(reserve(harbor).lease, "failed 2 of 2 attempts", 2, None, "gone: CANARY-4111"))
    found = call(colour, harbor.client, handle, "executions")
    assert [(each.number, each.error) for each in found] == [(1, "no •••"), (2, "gone: •••")]
    assert (found[0].error_class, found[1].worker, found[1].kind) == ("OSError", "w1", "failed")


def test_progress_is_what_the_handler_reported_last(harbor: Harbor, colour: str) -> None:
    handle = declare(harbor).enqueue("ada")
    assert call(colour, harbor.client, handle, "progress") is None
    lease = reserve(harbor).lease
    said = Progress(done=3, total=12, note="pages", at=harbor.clock.now())
    notes = {lease.token: write_note(said)}
    on_store(harbor, lambda driver: driver.extend([lease], harbor.clock.now(), LEASE, notes))
    assert call(colour, harbor.client, handle, "progress") == said


def test_a_job_without_a_record_is_explained_by_every_call(harbor: Harbor, colour: str) -> None:
    declare(harbor)
    job = harbor.job("nobody")
    for method in ("info", "executions", "progress", "delete", "watch"):
        with pytest.raises(JobNotFound, match=r"job nobody has no record: it was deleted"):
            call(colour, harbor.client, job, method)
    with pytest.raises(JobNotFound, match=r"job nobody has no record"):
        call(colour, harbor.client, job, "amend", priority=1)
    with pytest.raises(JobNotFound):
        call(colour, harbor.client, job, "requeue")


# Amending ----------------------------------------------------------------------------------------------------


def test_amend_replaces_what_is_given_and_keeps_the_rest(harbor: Harbor, colour: str) -> None:
    send = declare(harbor)
    handle = send.options(metadata={"a": "1", "b": "2", "kept": "4"}, timeout=9).enqueue(
        "ada", 2, 7, lang="en", tone="dry"
    )
    at = harbor.clock.now() + timedelta(hours=1)
    call(
        colour,
        harbor.client,
        send.job(handle.id),
        "amend",
        payload={"to": "eve", "tone": "warm"},
        run_at=at,
        priority=-3,
        max_attempts=9,
        timeout=None,
        metadata={"a": "x", "b": None, "c": "3"},
    )
    job = handle.info().job
    more = b'{"lang":"en","tone":"warm"}'
    assert job.payload == b'{"to":"eve","times":2,"extra":[7],"more":' + more + b"}"
    assert (job.run_at, job.priority, job.max_attempts, job.timeout) == (at, -3, 9, None)
    assert (job.metadata, job.edits) == ({"a": "x", "c": "3", "kept": "4"}, 1)
    assert handle.status() is State.SCHEDULED
    call(colour, harbor.client, handle, "amend", run_at=None, timeout=timedelta(seconds=5))
    assert (handle.status(), handle.info().job.timeout) == (State.READY, timedelta(seconds=5))


def test_amend_without_a_task_merges_the_object_as_it_is(harbor: Harbor, colour: str) -> None:
    handle = harbor.client.enqueue(JobRequest(type="t", payload={"a": 1, "b": [1.5]}))
    call(colour, harbor.client, harbor.job(handle.id), "amend", payload={"a": "one", "new": None})
    assert handle.info().job.payload == b'{"a":"one","b":[1.5],"new":null}'


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({}, TypeError, "expected at least one change: payload="),
        ({"payload": ["ada"]}, TypeError, "payload: expected the arguments to replace by name"),
        ({"payload": {1: 2}}, TypeError, "payload: expected names of arguments, got a key of type int"),
        ({"run_at": 5}, TypeError, "run_at: expected a datetime, got int"),
        ({"run_at": datetime(2030, 1, 1)}, ValueError, "run_at: expected a datetime with a time zone"),  # noqa: DTZ001 - naive on purpose
        ({"priority": "high"}, TypeError, "priority: expected a whole number, got str"),
        ({"priority": 2**40}, InvalidJob, "priority: expected -2147483648 to"),
        ({"max_attempts": 0}, InvalidJob, "max_attempts: expected 1 to"),
        ({"max_attempts": True}, TypeError, "max_attempts: expected a whole number, got bool"),
        ({"timeout": 0}, ValueError, "timeout: expected more than zero seconds"),
        ({"timeout": "5"}, TypeError, "timeout: expected seconds or a timedelta, got str"),
        ({"metadata": ["a"]}, TypeError, "metadata: expected a mapping"),
        ({"metadata": {"a": 1}}, TypeError, "metadata: expected text to text or None, got int"),
        ({"metadata": {"taskharbor.bind": "x"}}, InvalidJob, "metadata: keys that begin with 'taskharbor.'"),
        ({"priority": 1, "expect": "info"}, TypeError, r"expect: expected the JobInfo that info\(\) returned, got str"),
        ({"payload": {"to": 5}}, TypeError, "send: parameter 'to': expected str, got int"),
        ({"payload": {"times": "two"}}, TypeError, "send: parameter 'times': expected int, got str"),
    ],
)
def test_amend_refuses_what_makes_no_sense(colour: str, given: dict[str, Any], kind: Any, told: str) -> None:
    with Harbor("memory://") as harbor:
        handle = declare(harbor).enqueue("ada")
        with pytest.raises(kind, match=told):
            call(colour, harbor.client, handle, "amend", **given)
        assert handle.info().job.edits == 0


def test_amend_refuses_what_is_expected_of_another_job() -> None:
    with Harbor("memory://") as harbor:
        send = declare(harbor)
        one, other = send.enqueue("ada"), send.enqueue("eve")
        with pytest.raises(ValueError, match=f"expect: expected what was read of job {one.id}, got that of {'job '}"):
            one.amend(priority=1, expect=other.info())


def test_amend_refuses_arguments_of_another_task() -> None:
    with Harbor("memory://") as harbor:
        send = declare(harbor)
        other = harbor.client.enqueue(JobRequest(type="other", payload={"to": "ada"}))
        with pytest.raises(InvalidJob, match=rf"job {other.id} is a 'other', not a 'send'"):
            send.job(other.id).amend(payload={"to": "eve"})
        send.job(other.id).amend(priority=5)  # which any job has
        assert other.info().job.payload == b'{"to":"ada"}'


def test_amend_refuses_a_running_and_a_finished_job(harbor: Harbor, colour: str) -> None:
    handle = declare(harbor).enqueue("ada")
    lease = reserve(harbor).lease
    with pytest.raises(WrongState, match="amend takes what is neither done nor under a lease"):
        call(colour, harbor.client, handle, "amend", priority=1)
    settle(harbor, Ack(lease))
    with pytest.raises(WrongState, match="is done"):
        call(colour, harbor.client, handle, "amend", priority=1)


def test_amend_refuses_a_job_that_is_not_as_expected(harbor: Harbor, colour: str) -> None:
    handle = declare(harbor).enqueue("ada")
    seen = handle.info()
    call(colour, harbor.client, handle, "amend", priority=1, expect=seen)
    with pytest.raises(WrongState, match="was reserved or amended since"):
        call(colour, harbor.client, handle, "amend", priority=2, expect=seen)
    with pytest.raises(WrongState, match="was reserved or amended since"):
        call(colour, harbor.client, handle, "amend", payload={"to": "eve"}, expect=seen)
    assert handle.info().job.priority == 1
    # A listing without payloads is enough to expect.
    (seen,) = harbor.jobs().preview()
    call(colour, harbor.client, handle, "amend", payload={"to": "eve"}, expect=seen)
    assert handle.info().job.payload == b'{"to":"eve"}'


class Busy(MemoryDriver):
    """Another editor changes the job between each read and the write that follows it, `times` times."""

    times = 0
    calls = 0

    async def amend(self, changes: Any, now: datetime) -> list[TaskHarborError | None]:
        type(self).calls += 1
        if self.times:
            type(self).times -= 1
            (mine,) = changes
            other = Amend(id=mine.id, deliveries=mine.deliveries, edits=mine.edits, max_attempts=40 + self.times)
            assert await super().amend([other], now) == [None]
        return await super().amend(changes, now)

    def sibling(self) -> Busy:
        other = Busy()
        other.store = self.store
        return other


@pytest.mark.parametrize("times", [4, 5])
def test_amend_reads_again_when_the_job_changed_meanwhile(
    colour: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Busy, "times", times)
    with Harbor(Busy()) as harbor:
        handle = declare(harbor).enqueue("ada")
        if times == 4:
            call(colour, harbor.client, handle, "amend", payload={"to": "eve"})
            job = handle.info().job
            assert (job.payload, job.max_attempts, job.edits) == (b'{"to":"eve"}', 40, 5)  # nothing was overwritten
        else:
            with pytest.raises(WrongState, match="amended since"):
                call(colour, harbor.client, handle, "amend", payload={"to": "eve"})
            assert handle.info().job.payload == b'{"to":"ada"}'


def test_amend_is_not_tried_again_when_the_state_is_the_reason(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Busy, "calls", 0)
    with Harbor(Busy()) as harbor:
        handle = declare(harbor).enqueue("ada")
        reserve(harbor)
        with pytest.raises(WrongState):
            call(colour, harbor.client, handle, "amend", priority=1)
        assert Busy.calls == 1


@pytest.mark.usefixtures("waits")
def test_an_amend_whose_reply_was_lost_is_made_once(colour: str) -> None:
    faults = Faults()
    with Harbor(faults.wrap("memory://")) as harbor:
        handle = declare(harbor).enqueue("ada")
        faults.fail("amend", after=True)
        call(colour, harbor.client, handle, "amend", priority=3, expect=handle.info())
        faults.fail("amend")
        call(colour, harbor.client, handle, "amend", payload={"to": "eve"})
        job = handle.info().job
        assert (job.priority, job.payload, job.edits, faults.pending()) == (3, b'{"to":"eve"}', 2, {})
        faults.fail("amend", times=5)
        with pytest.raises(BackendUnavailable, match=r"amend, tried 5 times .* It may or may not be amended"):
            call(colour, harbor.client, handle, "amend", priority=4)


def test_amend_needs_a_driver_that_can(colour: str) -> None:
    with Harbor(SmallDriver()) as harbor:
        handle = declare(harbor).enqueue("ada")
        with pytest.raises(FeatureMissing, match="amend needs a store that keeps it; SmallDriver does not"):
            call(colour, harbor.client, handle, "amend", priority=3)
        assert call(colour, harbor.client, handle, "executions") == []  # what can be done without is done
        assert call(colour, harbor.client, handle, "progress") is None


# Deleting and bringing back ------------------------------------------------------------------------------------


def test_delete_forgets_a_job_unless_another_needs_it(harbor: Harbor, colour: str) -> None:
    clock = harbor.clock
    jobs = [JobRecord(id="a", type="t"), JobRecord(id="b", type="t", depends_on=("a",))]
    on_store(harbor, lambda driver: driver.enqueue(jobs, clock.now()))
    with pytest.raises(WrongState, match="job a is needed"):
        call(colour, harbor.client, harbor.job("a"), "delete")
    for id in ("b", "a"):
        call(colour, harbor.client, harbor.job(id), "delete")
    assert harbor.jobs().count().n == 0


@pytest.mark.usefixtures("waits")
def test_a_delete_whose_reply_was_lost_is_a_success(colour: str) -> None:
    faults = Faults()
    with Harbor(faults.wrap("memory://")) as harbor:
        handle = declare(harbor).enqueue("ada")
        faults.fail("delete", after=True)
        call(colour, harbor.client, handle, "delete")
        assert faults.pending() == {}
        with pytest.raises(JobNotFound):
            call(colour, harbor.client, handle, "delete")


def kill(harbor: Harbor) -> None:
    settle(harbor, Fail(reserve(harbor).lease, "because", 3, None))


def test_requeue_brings_dead_and_cancelled_jobs_back(harbor: Harbor, colour: str) -> None:
    handle = declare(harbor).enqueue("ada")
    kill(harbor)
    call(colour, harbor.client, handle, "requeue")
    info = handle.info()
    assert (info.state, info.job.attempts) == (State.READY, 0)
    kill(harbor)
    call(colour, harbor.client, handle, "requeue", reset_attempts=False, delay=60)
    info = handle.info()
    assert (info.state, info.job.attempts) == (State.SCHEDULED, 3)
    assert info.job.run_at == harbor.clock.now() + timedelta(minutes=1)
    handle.cancel()
    at = datetime(2031, 1, 1, tzinfo=UTC)
    call(colour, harbor.client, handle, "requeue", run_at=at)
    assert handle.info().job.run_at == at
    with pytest.raises(WrongState, match="is scheduled; requeue takes dlq and cancelled"):
        call(colour, harbor.client, handle, "requeue")


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, ValueError, "expected delay or run_at, got both"),
        ({"delay": -1}, ValueError, "delay: expected zero or more"),
        ({"run_at": "now"}, TypeError, "run_at: expected a datetime, got str"),
        ({"reset_attempts": 1}, TypeError, "reset_attempts: expected True or False, got int"),
    ],
)
def test_requeue_refuses_what_makes_no_sense(colour: str, given: dict[str, Any], kind: Any, told: str) -> None:
    with Client("memory://") as client:
        handle = client.enqueue(JobRequest(type="t"))
        handle.cancel()
        with pytest.raises(kind, match=told):
            call(colour, client, handle, "requeue", **given)


@pytest.mark.usefixtures("waits")
def test_a_requeue_whose_reply_was_lost_is_a_success(colour: str) -> None:
    faults = Faults()
    with Harbor(faults.wrap("memory://")) as harbor:
        handle = declare(harbor).enqueue("ada")
        handle.cancel()
        faults.fail("requeue", after=True)
        call(colour, harbor.client, handle, "requeue")
        assert (handle.status(), faults.pending()) == (State.READY, {})
        faults.fail("requeue")
        with pytest.raises(WrongState):  # it was ready before the first try
            call(colour, harbor.client, handle, "requeue")


def test_requeue_follows_to_the_workflow_that_took_the_place(harbor: Harbor, colour: str) -> None:
    handle = declare(harbor).enqueue("ada")
    steps = (JobRecord(id="a", type="t", flow_id="f"), JobRecord(id="b", type="t", flow_id="f", depends_on=("a",)))
    settle(harbor, Ack(reserve(harbor).lease, spawn=steps, handover="b"))
    with pytest.raises(WrongState, match="no job is dead in the workflow that took its place"):
        call(colour, harbor.client, handle, "requeue")
    kill(harbor)
    assert handle.wait() is State.DLQ
    call(colour, harbor.client, handle, "requeue")
    assert harbor.job("a").status() is State.READY


def test_requeue_of_a_workflow_is_a_success_when_the_reply_was_lost(waits: Waits) -> None:
    faults = Faults()
    with Harbor(faults.wrap("memory://"), clock=ManualClock()) as harbor:
        handle = declare(harbor).enqueue("ada")
        settle(harbor, Ack(reserve(harbor).lease, spawn=(JobRecord(id="a", type="t", flow_id="f"),), handover="a"))
        kill(harbor)
        faults.fail("requeue", after=True)
        handle.requeue()
        assert (handle.status(), faults.pending()) == (State.READY, {})


def test_every_blocking_call_names_its_twin_on_a_running_loop() -> None:
    with Harbor("memory://") as harbor:
        handle = declare(harbor).enqueue("ada")

        async def main() -> list[str]:
            texts = []
            calls: list[Callable[[], Any]] = [
                handle.info,
                handle.executions,
                handle.progress,
                handle.delete,
                handle.requeue,
                lambda: handle.amend(priority=1),
                handle.wait,
                handle.watch,
            ]
            for made in calls:
                with pytest.raises(Exception, match="would block the running event loop") as caught:
                    made()
                texts.append(str(caught.value).partition("use: ")[2])
            return texts

        assert asyncio.run(main()) == [
            *(
                f"await handle.a{name}(...)"
                for name in ("info", "executions", "progress", "delete", "requeue", "amend")
            ),
            "await handle.await_(...)",
            "async for info in handle.awatch()",
        ]


def test_info_shows_no_payload_in_its_repr() -> None:
    with Harbor("memory://") as harbor:
        info = declare(harbor).enqueue("CANARY").info()
        assert isinstance(info, JobInfo)
        assert "CANARY" not in repr(info)


@pytest.mark.parametrize("put", [1, 2])
@pytest.mark.parametrize("is_stored", [True, False])
def test_an_outage_around_the_audit_repeats_neither_entry_nor_action(
    waits: Waits, colour: str, put: int, is_stored: bool
) -> None:
    log: list[str] = []

    class Cut(MemoryDriver):
        def sibling(self) -> Cut:
            other = Cut()
            other.store = self.store
            return other

        async def put_audit(self, entries: Any, now: datetime) -> None:
            log.append("put")
            is_cut = log.count("put") == put
            if is_stored or not is_cut:
                await super().put_audit(entries, now)
            if is_cut:
                raise BackendUnavailable("the store went away")

        async def requeue(self, *args: Any, **named: Any) -> Any:
            log.append("requeue")
            return await super().requeue(*args, **named)

    with Harbor(Cut(), clock=ManualClock()) as harbor:
        handle = declare(harbor).enqueue("ada")
        handle.cancel()
        call(colour, harbor.client, handle, "requeue", by="ada")
        (entry,) = harbor.audit()
    assert log == (["put", "put", "requeue", "put"] if put == 1 else ["put", "requeue", "put", "put"])
    assert (entry.action, entry.by, entry.done, entry.refused) == ("requeue", "ada", 1, 0)
