"""The heart of the supervisor: renews the leases of all processes, and notices a store that is not theirs."""

import asyncio
from typing import Any

import pytest

from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.events import Event, Observers
from taskharbor.model.job import JobRecord, WorkerInfo
from taskharbor.model.lease import Lease
from taskharbor.testing import ManualClock
from taskharbor.worker.supervisor import heart as heart_module
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.heart import FleetHeart
from taskharbor.worker.supervisor.process import Process
from tests.supervisor.child_messages import LEASE, NOW, async_test, receive, taken


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
    assert [token for renewed, _ in told for token, _ in renewed] == [lease.token for lease in leases[:2]]
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
