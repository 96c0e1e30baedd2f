"""The supervisor's parts one at a time: what they say to each other, what is renewed, what is read from files."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Worker
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.errors import BackendUnavailable, JobNotInflight, LeaseMismatch, TaskHarborError
from taskharbor.model.events import Event
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease
from taskharbor.tasks.handler import Handler, HandlerRegistry
from taskharbor.testing import ManualClock
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.heart import OVERDUE
from taskharbor.worker.settings import settings
from taskharbor.worker.supervisor import heart as keeper_module
from taskharbor.worker.supervisor import memory, messages, probes, process_session
from taskharbor.worker.supervisor import restart_loop as slot_module
from taskharbor.worker.supervisor.child_channel import ChildChannel
from taskharbor.worker.supervisor.heart import FleetHeart
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.restart_loop import RestartLoop
from taskharbor.worker.supervisor.source_watch import SourceWatch
from taskharbor.worker.supervisor.spare import LONGEST, SHORT, Spare

LEASE = timedelta(seconds=30)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def live(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def taken(token: str, limit: float | None = None) -> messages.TakenLease:
    return messages.TakenLease(f"job-{token}", "default", token, 1_000_000, 0, limit)


def heard(process: Process, message: messages.ToParent) -> None:
    process._hear(message, lambda ready: None)


def tick(**changes: Any) -> messages.Tick:
    facts: dict[str, Any] = {"ok": True, "state": "running", "busy": False, "running": 0, "polled_seconds_ago": 0.5}
    return messages.Tick(**{**facts, "store_error": "", "gone": [], "due": [], **changes})


# What is renewed


@live
async def test_a_lease_is_renewed_until_its_job_outlives_its_timeout() -> None:
    clock = ManualClock()
    process = Process(0, clock)
    heard(process, messages.Taken([taken("a", limit=5), taken("b")], []))
    clock.advance(5 + OVERDUE - 1)
    assert {held.lease.token for held in process.renewable(clock.monotonic())} == {"a", "b"}
    clock.advance(2)
    assert {held.lease.token for held in process.renewable(clock.monotonic())} == {"b"}
    heard(process, tick(due=[("a", 3.0)]))  # it has started later than it was taken
    assert {held.lease.token for held in process.renewable(clock.monotonic())} == {"a", "b"}


@live
async def test_nothing_is_renewed_for_a_process_that_is_stopped_or_gone() -> None:
    process = Process(0, ManualClock())
    heard(process, messages.Taken([taken("a")], []))
    assert len(process.renewable(0)) == 1
    process.stopped = True
    assert process.renewable(0) == []
    process.stopped = False
    process.ended(-9)
    assert process.renewable(0) == []
    assert process.cause == "signal SIGKILL"


@live
async def test_what_a_process_holds_follows_from_what_it_says() -> None:
    process = Process(0, ManualClock(), max_jobs=10)
    heard(process, messages.Taken([taken("a"), taken("b")], []))
    heard(process, messages.Taken([taken("c")], ["a"]))
    assert set(process.leases) == {"b", "c"}
    heard(process, tick(gone=["b"]))
    assert set(process.leases) == {"c"}
    heard(process, messages.Taken([taken("d"), taken("e")], [], all=True))
    assert set(process.leases) == {"d", "e"}
    assert not process.tired.is_set()
    heard(process, messages.Taken([taken(str(number)) for number in range(6)], []))
    assert process.tired.is_set()  # nine of its ten
    process.kept([], [("d", "LeaseMismatch", "")])
    assert "d" not in process.leases


@live
async def test_the_keeper_renews_all_in_one_call_and_says_what_is_lost() -> None:
    store = MemoryDriver("memory://keeper-test")
    await store.open()
    await store.enqueue([JobRecord(id=name, type="t") for name in "abc"], NOW)
    keeper = FleetHeart("memory://keeper-test", lambda: processes, lease=LEASE, every=3600)
    await keeper._opened.wait()
    now = keeper._clock.now()
    leases = [reserved.lease for reserved in await store.reserve(["default"], now, LEASE, 3, "w")]
    processes = [Process(number, ManualClock()) for number in (0, 1)]
    told: list[tuple[list[Any], list[Any]]] = []
    for process, own in zip(processes, (leases[:2], leases[2:]), strict=True):
        heard(process, messages.Taken([taken(lease.token) for lease in own], []))
        for lease in own:
            process.leases[lease.token].lease = lease
        process.kept = lambda renewed, lost: told.append((renewed, lost))  # type: ignore[method-assign]
    await store.cancel([leases[2].job_id], now)
    assert await keeper.beat() is False
    assert [token for renewed, _ in told for token, _ in renewed] == [lease.token for lease in leases[:2]]
    assert [(token, name) for _, lost in told for token, name, _ in lost] == [(leases[2].token, "JobNotInflight")]
    await keeper.stop()
    await store.close()


@live
async def test_a_lease_that_cannot_be_renewed_now_is_not_lost() -> None:
    """Somebody has its record locked: it is asked for again soon, and its process hears nothing."""
    process = Process(0, ManualClock())
    heard(process, messages.Taken([taken("a")], []))
    told: list[object] = []
    process.kept = lambda renewed, lost: told.extend((*renewed, *lost))  # type: ignore[method-assign]
    keeper = FleetHeart("memory://keeper-locked-test", lambda: [process], lease=LEASE, every=3600)
    await keeper._opened.wait()

    async def locked(leases: list[Lease], *given: Any) -> list[BackendUnavailable]:
        return [BackendUnavailable("locked by somebody else")] * len(leases)

    keeper._driver.extend = locked  # type: ignore[assignment, method-assign]
    assert await keeper.beat() is True
    assert told == []
    await keeper.stop()


@live
async def test_the_end_does_not_wait_for_the_last_look_after_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "AGAIN", (0.0, 3600.0))
    store = MemoryDriver("memory://keeper-end-test")
    await store.open()
    await store.enqueue([JobRecord(id="a", type="t")], NOW)
    keeper = FleetHeart("memory://keeper-end-test", list, lease=LEASE, every=3600)
    await keeper._opened.wait()
    await store.reserve(["default"], keeper._clock.now(), LEASE, 1, "w")
    process = Process(0, ManualClock())
    process.worker = "w"
    process.ended(-9)
    recovering = asyncio.create_task(keeper.recover(process))
    while (await store.inspect("a", keeper._clock.now())).state != "ready":
        await asyncio.sleep(0)
    keeper.end()
    await recovering
    await keeper.stop()
    await store.close()


# The worker's end of the line


class Line:
    """Both ends of a link, and a worker that only notes what is asked of it."""

    def __init__(self) -> None:
        self.parent, child = socket.socketpair()
        self.child, self.lines = child, child.makefile("rb")
        self.link = ChildChannel(child, self.lines)
        self.held: dict[str, Delivery] = {}
        self.lost: list[tuple[str, TaskHarborError]] = []
        self.link._held = self.held
        self.link._on_lost = lambda run, error: self.lost.append((run.lease.token, error))

    def close(self) -> None:
        for each in (self.parent, self.lines, self.child):
            each.close()

    def hold(self, token: str, limit: float | None = None) -> Delivery:
        self.link.taken([taken(token, limit)])
        run = Delivery(JobRecord(id=f"job-{token}", type="t"), Lease(f"job-{token}", "default", token, NOW), None)
        self.held[token] = run
        self.link.seen()
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


def test_what_is_held_no_longer_is_said_once(line: Line) -> None:
    line.hold("a")
    line.hold("b")
    del line.held["a"]
    line.hold("c")
    [*_, third] = line.said()
    assert isinstance(third, messages.Taken)
    assert (third.gone, [each.token for each in third.leases]) == (["a"], ["c"])
    assert line.link._gone() == []


def test_a_lease_that_is_not_held_yet_is_not_called_gone(line: Line) -> None:
    line.link.taken([taken("a")])
    assert line.link._gone() == []
    line.link.seen()
    assert line.link._gone() == ["a"]  # it was settled before anybody looked


def test_a_parent_that_does_not_listen_holds_nobody_up_and_hears_everything_later(line: Line) -> None:
    number = 0
    while not line.link._missed:
        number += 1
        line.hold(f"token-{number}" * 20)
    del line.held["token-1" * 20]
    line.said()
    line.hold("last")
    told = [message for message in line.said() if isinstance(message, messages.Taken)]
    [whole] = [message for message in told if message.all]
    assert {each.token for each in whole.leases} == set(line.held)


def test_what_the_parent_renewed_and_lost_reaches_the_runs(line: Line) -> None:
    kept, gone, cancelled = line.hold("kept"), line.hold("gone"), line.hold("cancelled")
    line.link._hear(
        messages.Kept(
            [("kept", 5000)], [("gone", "LeaseMismatch", "m"), ("cancelled", "JobNotInflight", ""), ("x", "", "")]
        )
    )
    assert kept.lease.expires_at == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert [(token, type(error)) for token, error in line.lost] == [
        (gone.lease.token, LeaseMismatch),
        (cancelled.lease.token, JobNotInflight),
    ]


def test_a_job_that_waits_for_its_start_has_all_of_its_time(line: Line) -> None:
    waiting, running, free = line.hold("waiting", 5), line.hold("running", 5), line.hold("free")
    running.task, running.due = waiting.task, 103.0
    assert free.due is None
    assert dict(line.link._due(100.0)) == {"waiting": 5.0, "running": 3.0}


def test_what_is_asked_before_there_is_a_worker_is_not_forgotten(line: Line) -> None:
    line.link._hear(messages.StopOrder())
    worker = Worker("memory://")
    line.link.attach(worker)
    worker.run()  # returns at once
    assert worker.channel is line.link


@live
async def test_what_expired_on_its_way_is_not_started() -> None:
    line, clock = Line(), ManualClock()
    driver = MemoryDriver("memory://")
    await driver.open()
    await driver.enqueue([JobRecord(id="a", type="t"), JobRecord(id="b", type="t")], clock.now())
    handlers = HandlerRegistry()
    handlers.add(Handler("t", lambda: None, timeout=7))
    handing = line.link.hand_over(driver, clock, handlers, settings(name="w"))
    [reserved] = await handing.reserve(["default"], clock.now(), LEASE, 1, "w")
    assert reserved.job.id == "a"
    before = clock.now()
    clock.advance(31)  # the process stood still between the question and the answer
    assert await handing.reserve(["default"], before, LEASE, 1, "w") == []
    [told, nothing] = [message for message in line.said() if isinstance(message, messages.Taken)]
    assert ([each.limit for each in told.leases], nothing.leases) == ([7.0], [])
    await driver.close()
    line.close()


# Slots, files, memory


@live
async def test_the_pauses_between_starts_grow_and_end_at_half_a_minute() -> None:
    async def start(number: int) -> Process:
        raise NotImplementedError

    slot = RestartLoop(0, ManualClock(), start)
    pauses = []
    for deaths in range(12):
        slot._deaths = deaths
        pauses.append(slot._pause())
    assert pauses[0] == 0
    assert all(pauses[n] >= min(30, 0.5 * 2 ** (n - 1)) for n in range(1, 12))
    assert max(pauses) <= 37.5


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda process: process.ended(0), "ProcessReplaced"),  # it took its last job before the next one served
        (lambda process: process.ended(-9), "ProcessDied"),
        (lambda process: (process.stop(), process.ended(0)), "ProcessEnded"),
    ],
)
@live
async def test_how_a_process_that_has_taken_its_jobs_ended_is_told(
    end: Callable[[Process], object], told: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    monkeypatch.setattr(slot_module, "tell", events.append)
    started: list[Process] = []

    async def start(number: int) -> Process:
        started.append(Process(number, ManualClock(), 1))
        started[-1].pid = 1_000_000 + len(started)  # one that was never started is told of elsewhere
        return started[-1]

    async def until(number: int) -> None:
        while len(started) < number:
            await asyncio.sleep(0)

    slot = RestartLoop(0, ManualClock(), start)
    running = asyncio.create_task(slot.run())
    await until(1)
    heard(started[0], messages.Taken([taken("a")], []))
    if not late:
        await until(2)  # the next one is about to start
    end(started[0])
    started[0].state = "gone"
    started[0].gone.set()
    await until(2)
    while slot.process is not started[1]:
        await asyncio.sleep(0)
    assert [type(event).__name__ for event in events] == [told]
    slot.close()
    await running


@live
async def test_a_slot_is_healthy_while_its_last_poll_is_recent_whoever_polled() -> None:
    clock = ManualClock()
    slot, process = RestartLoop(0, clock, lambda number: asyncio.sleep(0)), Process(0, clock)  # type: ignore[arg-type,return-value]

    def ok(fleet: list[Process], stopping: bool = False) -> bool:
        return probes.describe([slot], fleet, clock.monotonic(), 10.0, stopping).ok

    assert not ok([process])
    heard(process, tick())
    assert ok([process])
    assert not ok([process], stopping=True)
    clock.advance(5)
    assert ok([])  # it died, and the next one is about to serve
    clock.advance(6)
    assert not ok([])
    heard(process, tick(busy=True, polled_seconds_ago=100.0))
    assert ok([process])  # it has no room, and so no need to poll
    clock.advance(11)
    heard(process, tick(busy=True, polled_seconds_ago=100.0, store_error="BackendUnavailable"))
    assert not ok([process])


def test_sources_see_changes_and_leave_other_peoples_code_alone(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("one")
    for other in ("env/pyvenv.cfg", "env/lib.py", ".git/x.py", "node_modules/y.py", "data.txt"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_text("x")
    sources = SourceWatch(str(tmp_path))
    assert sources.changed() is None
    (tmp_path / "tasks.py").write_text("three")
    assert sources.changed() == str(tmp_path / "tasks.py")
    assert sources.changed() is None
    for other in ("env/lib.py", ".git/x.py", "node_modules/y.py", "data.txt"):
        (tmp_path / other).write_text("changed")
    assert sources.changed() is None
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "new.py").write_text("")
    assert sources.changed() == str(tmp_path / "package" / "new.py")
    (tmp_path / "tasks.py").unlink()
    assert sources.changed() == str(tmp_path / "tasks.py")


class Waiters:
    """Slots that serve, or not, and a spare for them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.started: list[Process] = []
        self.fails = False
        self.slot = RestartLoop(0, self.clock, lambda number: self.start())
        self.slot.process = Process(0, self.clock)
        self.spare = Spare(self.start)

    async def start(self) -> Process:
        self.started.append(Process(0, self.clock))
        if self.fails:
            self.started[-1].not_started()
        return self.started[-1]

    async def keep(self) -> int:
        await self.spare.keep([self.slot], self.clock.monotonic())
        return len(self.started)


@live
async def test_a_spare_is_started_when_all_others_serve_and_is_taken_once() -> None:
    waiters = Waiters()
    assert await waiters.keep() == 0  # the first process is not ready
    assert waiters.slot.process is not None
    heard(waiters.slot.process, messages.Ready("w", None))
    assert await waiters.keep() == 1
    assert await waiters.keep() == 1
    waiters.clock.advance(100)
    assert waiters.spare.take() is waiters.started[0]
    assert waiters.started[0].started_at == waiters.clock.monotonic()  # if it dies soon, that is soon
    assert waiters.spare.take() is None
    assert await waiters.keep() == 2
    waiters.started[1].stopped = True
    assert waiters.spare.take() is None
    waiters.started[1].stopped = False
    waiters.started[1].ended(-9)
    assert waiters.spare.take() is None


@live
async def test_after_a_spare_has_died_the_next_one_is_in_no_hurry() -> None:
    waiters = Waiters()
    assert waiters.slot.process is not None
    heard(waiters.slot.process, messages.Ready("w", None))
    pauses = []
    waiters.fails = True
    for _ in range(10):
        begun = waiters.clock.monotonic()
        before = len(waiters.started)
        while await waiters.keep() == before:
            waiters.clock.advance(1)
        pauses.append(waiters.clock.monotonic() - begun)
    assert pauses == [0, 5, 10, 20, 40, 80, 160, 320, LONGEST, LONGEST]


@live
async def test_there_is_no_spare_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    waiters = Waiters()
    assert waiters.slot.process is not None
    heard(waiters.slot.process, messages.Ready("w", None))
    sizes = {"free": 199}
    monkeypatch.setattr(memory, "resident", lambda pid: 100)
    monkeypatch.setattr(memory, "free", lambda: sizes["free"])
    assert await waiters.keep() == 0
    sizes["free"] = 200
    assert await waiters.keep() == 0
    waiters.clock.advance(SHORT)
    assert await waiters.keep() == 1


def test_free_memory_is_that_of_the_narrowest_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def group(name: str, limit: str, used: int, cache: int) -> None:
        folder = tmp_path / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")

    assert 0 < memory.free() < 2**50
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 8 kB\n")
    monkeypatch.setattr(memory, "ROOT", str(tmp_path))
    assert memory.free() == 8192  # no cgroup
    (proc / "self/cgroup").write_text("1:name=systemd:/x\n0::/outer/inner\n")
    assert memory.free() == 8192  # none with a limit
    group("outer/inner", "max", 10, 0)
    group("outer", "5000", 4000, 1000)
    assert memory.free() == 2000
    (proc / "self/cgroup").write_text("0::/\n")
    group("", "300", 100, 50)
    assert memory.free() == 250


def test_memory_is_measured() -> None:
    assert memory.measurable()
    before = memory.resident(os.getpid())
    assert before > 2**20
    assert memory.resident(2**22 + 1) == 0


def test_nothing_that_travels_shows_a_payload() -> None:
    named = {
        name
        for each in (messages.TakenLease, messages.Taken, messages.Tick, messages.Setup)
        for name in each.__struct_fields__
    }
    assert named.isdisjoint({"payload", "result", "metadata"})


@pytest.mark.parametrize("leader", [0, 1, -1, 4242])
def test_a_session_that_is_no_workers_is_left_alone(leader: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 is a process that was never started, and the session of what the system itself runs."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: sent.append(given))
    monkeypatch.setattr(os, "killpg", lambda *given: sent.append(given))
    monkeypatch.setattr(os, "getsid", lambda pid: 4242)  # somebody else leads the session that we are in
    with pytest.raises(ValueError, match="leads a session"):
        process_session.kill(leader)
    assert not sent
