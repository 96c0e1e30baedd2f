"""The keeper and a store that is not the one of a process: nothing is called lost that nobody there knows."""

from typing import Any

import pytest

from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.events import Event
from taskharbor.model.job import JobRecord, WorkerInfo
from taskharbor.testing import ManualClock
from taskharbor.worker.supervisor import heart as keeper_module
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.heart import FleetHeart
from taskharbor.worker.supervisor.process import Process
from tests.supervisor.test_pieces import LEASE, NOW, heard, live, taken


@pytest.mark.parametrize("seen", [False, True])
@live
async def test_jobs_that_nobody_knows_are_lost_only_if_their_worker_was_seen(
    seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    monkeypatch.setattr(keeper_module, "tell", events.append)
    process = Process(0, ManualClock())
    process.worker = "w"
    keeper = FleetHeart(f"memory://elsewhere-{seen}", lambda: [process], lease=LEASE, every=3600)
    store = MemoryDriver(f"memory://elsewhere-{seen}")
    await store.open()
    await keeper._opened.wait()
    now = keeper._clock.now()
    if seen:
        await store.beat(WorkerInfo(worker="w", queues=("default",), running=1, started_at=NOW, seen_at=now), now)
    heard(process, messages.Taken([taken("a"), taken("b")], []))
    told: list[Any] = []
    process.kept = lambda renewed, lost: told.append((renewed, [name for _, name, _ in lost]))  # type: ignore[method-assign]
    await keeper.beat()
    assert told == ([([], ["JobNotFound", "JobNotFound"])] if seen else [])
    assert [type(event).__name__ for event in events] == ([] if seen else ["StoreDiffers"])
    assert bool(process.renewable(0)) is seen
    await keeper.beat()
    assert len(events) == (not seen)
    await keeper.stop()
    await store.close()


@live
async def test_one_known_job_is_enough_to_believe_the_store() -> None:
    process = Process(0, ManualClock())
    process.worker = "w"
    keeper = FleetHeart("memory://known", lambda: [process], lease=LEASE, every=3600)
    store = MemoryDriver("memory://known")
    await store.open()
    await keeper._opened.wait()
    now = keeper._clock.now()
    await store.enqueue([JobRecord(id="a", type="t")], now)
    [reserved] = await store.reserve(["default"], now, LEASE, 1, "w")
    heard(process, messages.Taken([taken(reserved.lease.token), taken("deleted")], []))
    process.leases[reserved.lease.token].lease = reserved.lease
    told: list[Any] = []
    process.kept = lambda renewed, lost: told.append((len(renewed), [name for _, name, _ in lost]))  # type: ignore[method-assign]
    await keeper.beat()
    assert told == [(1, ["JobNotFound"])]
    await keeper.stop()
    await store.close()
