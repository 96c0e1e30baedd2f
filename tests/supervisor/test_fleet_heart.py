"""The heart of the supervisor: renews the leases of all processes, and notices a store that is not theirs."""

import asyncio
from typing import Any

import pytest

from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.events import Event, Observers
from taskharbor.model.executions import known_executions
from taskharbor.model.job import JobRecord, WorkerInfo
from taskharbor.model.lease import Lease, Lost
from taskharbor.testing import ManualClock
from taskharbor.worker.supervisor import heart as heart_module
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.heart import FleetHeart
from taskharbor.worker.supervisor.process import Process
from tests.supervisor.child_messages import LEASE, NOW, async_test, receive, taken, tick


@async_test
async def test_all_leases_are_renewed_in_one_call_and_lost_ones_reported() -> None:
    store = MemoryDriver("memory://fleet-heart-test")
    await store.open()
    await store.enqueue([JobRecord(id=name, type="t") for name in "abc"], NOW)
    heart = FleetHeart("memory://fleet-heart-test", lambda: processes, lease=LEASE, every=3600, observers=Observers())
    await heart._opened.wait()
    now = heart._clock.now()
    leases = [reserved.lease for reserved in await store.reserve(["default"], now, LEASE, 3, "w")]
    processes = [Process(number, ManualClock()) for number in (0, 1)]
    told: list[tuple[list[Any], list[Any]]] = []
    for process, own in zip(processes, (leases[:2], leases[2:]), strict=True):
        receive(process, messages.Taken([taken(lease.token) for lease in own], []))
        for lease in own:
            process.leases[lease.token].lease = lease
        process.kept = lambda renewed, lost: told.append((renewed, lost))  # type: ignore[method-assign]  # replaced for the test
    await store.cancel([leases[2].job_id], now)
    assert await heart.beat() is False
    assert [lease.token for renewed, _ in told for lease in renewed] == [lease.token for lease in leases[:2]]
    assert [(token, name) for _, lost in told for token, name, _ in lost] == [(leases[2].token, "JobNotInflight")]
    await heart.stop()
    await store.close()


@async_test
async def test_a_lease_that_cannot_be_renewed_now_is_not_lost() -> None:
    """Its record is locked: the renewal is retried soon, and nothing is reported to its process."""
    process = Process(0, ManualClock())
    receive(process, messages.Taken([taken("a")], []))
    told: list[object] = []
    process.kept = lambda renewed, lost: told.extend((*renewed, *lost))  # type: ignore[method-assign]  # replaced for the test
    heart = FleetHeart("memory://heart-locked-test", lambda: [process], lease=LEASE, every=3600, observers=Observers())
    await heart._opened.wait()

    async def locked(leases: list[Lease], *given: Any) -> list[BackendUnavailable]:
        return [BackendUnavailable("locked by another transaction")] * len(leases)

    heart._driver.extend = locked  # type: ignore[assignment, method-assign]
    assert await heart.beat() is True
    assert told == []
    await heart.stop()


@async_test
async def test_the_end_does_not_wait_for_the_second_release_after_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heart_module, "RELEASE_AGAIN_S", (0.0, 3600.0))
    store = MemoryDriver("memory://heart-end-test")
    await store.open()
    await store.enqueue([JobRecord(id="a", type="t")], NOW)
    heart = FleetHeart("memory://heart-end-test", list, lease=LEASE, every=3600, observers=Observers())
    await heart._opened.wait()
    await store.reserve(["default"], heart._clock.now(), LEASE, 1, "w")
    process = Process(0, ManualClock())
    process.worker = "w"
    process.ended(-9)
    recovering = asyncio.create_task(heart.recover(process))
    while (await store.inspect("a", heart._clock.now())).state != "ready":
        await asyncio.sleep(0)
    heart.end()
    await recovering
    await heart.stop()
    await store.close()


@pytest.mark.parametrize("seen", [False, True])
@async_test
async def test_unknown_jobs_are_lost_only_if_the_store_knows_their_worker(seen: bool) -> None:
    events: list[Event] = []
    process = Process(0, ManualClock())
    process.worker = "w"
    heart = FleetHeart(
        f"memory://elsewhere-{seen}", lambda: [process], lease=LEASE, every=3600, observers=Observers([events.append])
    )
    store = MemoryDriver(f"memory://elsewhere-{seen}")
    await store.open()
    await heart._opened.wait()
    now = heart._clock.now()
    if seen:
        await store.beat(WorkerInfo(worker="w", queues=("default",), running=1, started_at=NOW, seen_at=now), now)
    receive(process, messages.Taken([taken("a"), taken("b")], []))
    told: list[Any] = []
    process.kept = lambda renewed, lost: told.append((renewed, [name for _, name, _ in lost]))  # type: ignore[method-assign]  # replaced for the test
    await heart.beat()
    assert told == ([([], ["JobNotFound", "JobNotFound"])] if seen else [])
    assert [type(event).__name__ for event in events] == ([] if seen else ["StoreDiffers"])
    assert bool(process.renewable(0)) is seen
    await heart.beat()
    assert len(events) == (not seen)
    await heart.stop()
    await store.close()


@async_test
async def test_one_known_job_proves_that_the_store_is_the_right_one() -> None:
    process = Process(0, ManualClock())
    process.worker = "w"
    heart = FleetHeart("memory://known", lambda: [process], lease=LEASE, every=3600, observers=Observers())
    store = MemoryDriver("memory://known")
    await store.open()
    await heart._opened.wait()
    now = heart._clock.now()
    await store.enqueue([JobRecord(id="a", type="t")], now)
    [reserved] = await store.reserve(["default"], now, LEASE, 1, "w")
    receive(process, messages.Taken([taken(reserved.lease.token), taken("deleted")], []))
    process.leases[reserved.lease.token].lease = reserved.lease
    told: list[Any] = []
    process.kept = lambda renewed, lost: told.append((len(renewed), [name for _, name, _ in lost]))  # type: ignore[method-assign]  # replaced for the test
    await heart.beat()
    assert told == [(1, ["JobNotFound"])]
    await heart.stop()
    await store.close()


class Taking:
    """A store with one reserved job, a supervisor's heart on it, and the process that holds the job."""

    def __init__(self, name: str) -> None:
        self.dsn = f"memory://{name}"
        self.store = MemoryDriver(self.dsn)
        self.process = Process(0, ManualClock())

    async def __aenter__(self) -> "Taking":
        await self.store.open()
        await self.store.enqueue([JobRecord(id="a", type="t")], NOW)
        fleet = [self.process]
        self.heart = FleetHeart(self.dsn, lambda: fleet, lease=LEASE, every=3600, observers=Observers())
        await self.heart._opened.wait()
        [self.reserved] = await self.store.reserve(["default"], self.heart._clock.now(), LEASE, 1, "w")
        lease = self.reserved.lease
        lost = Lost("dead", None, NOW)
        held = messages.TakenLease(lease, 0, None, lost)
        receive(self.process, messages.Taken([held], []))
        self.process.worker = "w"
        self.process.on_message = lambda process, message: self.heart.notes.signal()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.heart.stop()
        await self.store.close()

    async def job(self) -> JobRecord:
        return (await self.store.inspect("a", self.heart._clock.now())).job

    def report(self, note: bytes) -> None:
        receive(self.process, tick(notes=[(self.reserved.lease.token, note), ("unknown", b"x")]))


@async_test
async def test_progress_of_a_process_is_stored_at_once_long_before_the_next_renewal() -> None:
    async with Taking("fleet-notes") as taking:
        taking.report(b"one")
        while (await taking.job()).note != b"one":
            await asyncio.sleep(0)
        assert not taking.process.leases[taking.reserved.lease.token].note


@async_test
async def test_progress_that_could_not_be_stored_waits_unless_something_newer_has_come() -> None:
    async with Taking("fleet-notes-again") as taking:
        heart, held = taking.heart, taking.process.leases[taking.reserved.lease.token]
        taking.process.on_message = lambda process, message: None
        extend, newer = heart._driver.extend, [b"", b"two"]

        async def fails(*given: Any, **more: Any) -> Any:
            if note := newer.pop(0):
                taking.report(note)
            raise BackendUnavailable("away")

        for left in (b"one", b"two"):
            taking.report(b"one")
            heart._driver.extend = fails  # type: ignore[method-assign]  # replaced for the test
            with pytest.raises(BackendUnavailable):
                await heart.beat(only_notes=True)
            assert (held.note, heart.notes.waiting) == (left, True)
        heart._driver.extend = extend  # type: ignore[method-assign]  # as it was
        await heart.beat()
        assert ((await taking.job()).note, held.note) == (b"two", b"")


@async_test
async def test_without_progress_a_renewal_is_the_call_that_it_was() -> None:
    async with Taking("fleet-no-notes") as taking:
        calls: list[tuple[Any, ...]] = []

        async def extend(*given: Any) -> list[Lease]:
            calls.append(given[1:])
            return list(given[0])

        taking.heart._driver.extend = extend  # type: ignore[assignment, method-assign]  # replaced for the test
        await taking.heart.beat(only_notes=True)
        assert calls == []
        await taking.heart.beat()
        assert [len(given) for given in calls] == [2]


@async_test
async def test_what_a_killed_process_held_is_kept_as_given_back_and_so_is_the_loss_before_it() -> None:
    async with Taking("fleet-trail") as taking:
        await taking.store.release("w", taking.heart._clock.now())
        [taking.reserved] = await taking.store.reserve(["default"], taking.heart._clock.now(), LEASE, 1, "w")
        lease = taking.reserved.lease
        lost = taking.reserved.lost_by
        held = messages.TakenLease(lease, 0, None, lost)
        receive(taking.process, messages.Taken([held], [], all=True))
        taking.process.killed = True
        await taking.heart._give_back(taking.process)
        info = await taking.store.inspect("a", taking.heart._clock.now())
        kinds = [(each.number, each.kind.value, each.worker, each.error) for each in known_executions(info)]
        assert kinds == [(1, "lost", "w", ""), (2, "given_back", "w", "its process was killed")]


@async_test
async def test_a_suspect_that_no_process_could_run_is_kept_as_given_back() -> None:
    async with Taking("fleet-suspect") as taking:
        await taking.heart.give_back(taking.process.leases[taking.reserved.lease.token], 1.0)
        info = await taking.store.inspect("a", taking.heart._clock.now())
        assert [(each.number, each.kind.value) for each in known_executions(info)] == [(1, "given_back")]
