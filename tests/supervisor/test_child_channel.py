"""The worker's end of the channel to its supervisor: what it reports, and what it does on orders."""

import socket
from datetime import UTC, datetime
from typing import Any

import pytest

from taskharbor import Worker
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.errors import JobNotInflight, LeaseMismatch, TaskHarborError
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease, Lost
from taskharbor.model.progress import read_note
from taskharbor.tasks.handler import Handler, HandlerRegistry
from taskharbor.testing import ManualClock
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.health import Health
from taskharbor.worker.losses import Losses
from taskharbor.worker.progress_notes import ProgressNotes
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.child_channel import ChildChannel
from tests.supervisor.child_messages import LEASE, NOW, async_test, taken
from tests.worker.workbench import parts_of


class Line:
    """Both ends of a link, and a worker that only notes what is asked of it."""

    def __init__(self) -> None:
        self.parent, child = socket.socketpair()
        self.child, self.lines = child, child.makefile("rb")
        self.channel = ChildChannel(child, self.lines)
        self.held: dict[str, Delivery] = {}
        self.lost: list[tuple[str, TaskHarborError]] = []
        self.channel._held = self.held
        self.channel._on_lost = lambda delivery, error: self.lost.append((delivery.lease.token, error))

    def close(self) -> None:
        for each in (self.parent, self.lines, self.child):
            each.close()

    def hold(self, token: str, limit: float | None = None) -> Delivery:
        self.channel.taken([taken(token, limit)])
        run = Delivery(JobRecord(id=f"job-{token}", type="t"), Lease(f"job-{token}", "default", token, NOW), None)
        self.held[token] = run
        self.channel.deliveries_exist()
        return run

    def said(self) -> list[messages.ToParent]:
        self.parent.setblocking(False)
        data = b""
        while True:
            try:
                data += self.parent.recv(1 << 20)
            except BlockingIOError:
                return [messages.read_by_parent(line) for line in data.splitlines()]


@pytest.fixture
def line() -> Any:
    made = Line()
    yield made
    made.close()


def test_a_released_lease_is_reported_once(line: Line) -> None:
    line.hold("a")
    line.hold("b")
    del line.held["a"]
    line.hold("c")
    [*_, third] = line.said()
    assert isinstance(third, messages.Taken)
    assert (third.gone, [each.lease.token for each in third.leases]) == (["a"], ["c"])
    assert line.channel._gone() == []


def test_a_lease_is_not_reported_as_gone_before_its_delivery_exists(line: Line) -> None:
    line.channel.taken([taken("a")])
    assert line.channel._gone() == []
    line.channel.deliveries_exist()
    assert line.channel._gone() == ["a"]  # it was settled before the first check


def test_a_parent_that_does_not_read_blocks_nothing_and_gets_the_full_state_later(line: Line) -> None:
    number = 0
    while not line.channel._missed:
        number += 1
        line.hold(f"token-{number}" * 20)
    del line.held["token-1" * 20]
    line.said()
    line.hold("last")
    told = [message for message in line.said() if isinstance(message, messages.Taken)]
    [whole] = [message for message in told if message.all]
    assert {each.lease.token for each in whole.leases} == set(line.held)


def test_renewed_and_lost_leases_reach_the_deliveries(line: Line) -> None:
    kept, gone, cancelled = line.hold("kept"), line.hold("gone"), line.hold("cancelled")
    renewed = Lease("job-kept", "default", "kept", datetime(2030, 1, 1, tzinfo=UTC))
    line.channel._receive(
        messages.Kept([renewed], [("gone", "LeaseMismatch", "m"), ("cancelled", "JobNotInflight", ""), ("x", "", "")])
    )
    assert kept.lease == renewed
    assert [(token, type(error)) for token, error in line.lost] == [
        (gone.lease.token, LeaseMismatch),
        (cancelled.lease.token, JobNotInflight),
    ]


def test_a_job_that_has_not_started_has_its_whole_timeout_left(line: Line) -> None:
    waiting, running, free = line.hold("waiting", 5), line.hold("running", 5), line.hold("free")
    running.task, running.due = waiting.task, 103.0
    assert free.due is None
    assert dict(line.channel._due(100.0)) == {"waiting": 5.0, "running": 3.0}


def test_an_order_that_arrives_before_the_worker_exists_is_carried_out(line: Line) -> None:
    line.channel._receive(messages.ProcessOrder("stop"))
    worker = Worker("memory://")
    line.channel.attach(worker)
    worker.run()  # returns at once
    assert worker._channel is line.channel


@async_test
async def test_a_lease_that_expired_during_the_reserve_is_not_started() -> None:
    line, clock = Line(), ManualClock()
    driver = MemoryDriver("memory://")
    await driver.open()
    await driver.enqueue([JobRecord(id="a", type="t"), JobRecord(id="b", type="t")], clock.now())
    handlers = HandlerRegistry()
    handlers.add(Handler("t", lambda: None, timeout=7))
    parts = parts_of(driver, clock, handlers=handlers)
    reserve = line.channel.hand_over(parts, Losses(parts))
    [reserved] = await reserve(clock.now(), 1)
    assert reserved.job.id == "a"
    before = clock.now()
    clock.advance(31)  # the process stood still between the question and the answer
    assert await reserve(before, 1) == []
    [told, nothing] = [message for message in line.said() if isinstance(message, messages.Taken)]
    assert ([each.limit for each in told.leases], nothing.leases) == ([7.0], [])
    await driver.close()
    line.close()


def test_no_message_has_a_field_for_a_payload() -> None:
    named = {
        name
        for each in (messages.TakenLease, Lease, Lost, messages.Taken, messages.Tick, Health, messages.Setup)
        for name in each.__struct_fields__
    }
    assert named.isdisjoint({"payload", "result", "metadata"})


def reporting(line: Line) -> ProgressNotes:
    notes = line.channel.notes = ProgressNotes(ManualClock())
    line.channel.attach(Worker("memory://"))
    line.channel.dsn = "redis://somewhere"
    return notes


def ticked(line: Line) -> list[tuple[str, bytes]]:
    line.said()
    line.channel.tick(ManualClock())
    [tick] = line.said()
    assert isinstance(tick, messages.Tick)
    return tick.notes


def test_progress_travels_with_the_next_heartbeat_and_each_only_once(line: Line) -> None:
    notes, first, second = reporting(line), line.hold("a"), line.hold("b")
    assert ticked(line) == []
    notes.report(first, 1, 2, "one")
    notes.report(first, 2, 2, "two")
    assert [(token, read_note(note)) for token, note in ticked(line)] == [("a", first.progress)]
    notes.report(second, 1, None, "")
    assert [token for token, _ in ticked(line)] == ["b"]
    assert ticked(line) == []
    del line.held["a"]
    notes.report(second, 2, None, "")
    assert [token for token, _ in ticked(line)] == ["b"]
    assert set(line.channel._sent_progress) == {"b"}


def test_progress_that_a_parent_did_not_read_is_sent_again(line: Line) -> None:
    notes, run = reporting(line), line.hold("a")
    while not line.channel._unsent:
        line.channel.tick(ManualClock())
    notes.report(run, 1, None, "")
    line.channel.tick(ManualClock())  # dropped
    line.said()
    line.channel.tick(ManualClock())
    told = [message for message in line.said() if isinstance(message, messages.Tick)]
    assert [token for message in told for token, _ in message.notes] == ["a"]


def test_a_worker_whose_store_is_its_own_keeps_its_progress_for_its_own_heart(line: Line) -> None:
    notes, run = reporting(line), line.hold("a")
    line.channel.dsn = None
    notes.report(run, 1, None, "")
    assert ticked(line) == []
    assert notes.gate.waiting


@async_test
async def test_the_loss_before_a_suspect_travels_with_it() -> None:
    line, clock = Line(), ManualClock()
    driver = MemoryDriver("memory://")
    await driver.open()
    await driver.enqueue([JobRecord(id="a", type="t")], clock.now())
    handlers = HandlerRegistry()
    handlers.add(Handler("t", lambda: None))
    for _ in range(2):
        await driver.reserve(["default"], clock.now(), LEASE, 1, "dead")
        clock.advance(LEASE)
    line.channel.dsn = "redis://somewhere"
    parts = parts_of(driver, clock, handlers=handlers)
    reserve = line.channel.hand_over(parts, Losses(parts))
    assert await reserve(clock.now(), 1) == []
    [told] = [message for message in line.said() if isinstance(message, messages.SuspectTaken)]
    line.channel.suspect = told.lease
    [reserved] = await reserve(clock.now(), 1)
    assert reserved.lost_by == Lost("dead", clock.now() - LEASE, clock.now())
    assert (reserved.job.deliveries, reserved.job.ran_on) == (3, parts.settings.name)
    await driver.close()
    line.close()
