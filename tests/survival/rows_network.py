"""A TCP proxy between workers and their store: reset, black hole, slow, cut after the request and before the reply."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from taskharbor.drivers import BackendUnavailable, JobRecord, open_driver
from tests import lanes
from tests.servers.proxy import Proxy, proxy
from tests.survival.field import field_on
from tests.survival.figures import Figures, of_verdict
from tests.survival.registry import row
from tests.survival.stores import Store, shared_store


class Wire:
    """The proxy, on an event loop of its own thread."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended: asyncio.Event
        self._up = threading.Event()
        self.proxy: Proxy
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._live(port)), daemon=True)
        self._thread.start()
        assert self._up.wait(30)

    async def _live(self, port: int) -> None:
        self._ended = asyncio.Event()
        async with proxy("127.0.0.1", port) as self.proxy:
            self._up.set()
            await self._ended.wait()

    def do(self, name: str, *args: Any) -> None:
        self._loop.call_soon_threadsafe(getattr(self.proxy, name), *args)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()


@contextmanager
def wired(store: Store) -> Iterator[tuple[Wire, Store]]:
    """A store, and the same store through a proxy."""
    wire = Wire(store.ports[0])
    try:
        yield wire, replace(store, dsn=wire.proxy.address(store.dsn))
    finally:
        wire.end()


@row("network", stores=("postgres", "redis"), seconds=150)
def network(store: str, folder: Path) -> Figures:
    """Workers and a producer behind a proxy that resets, swallows, slows and cuts."""
    kinds = lanes.few(["reset", "black hole", "slow", "cut", "refused"], ["cut"]) * lanes.figure(test=1, chaos=3)
    jobs, hole = lanes.figure(test=60, chaos=6000), lanes.figure(test=1, chaos=12)
    direct = shared_store(store, folder)
    noticed = []
    with wired(direct) as (wire, through), field_on(through, folder, lease=20.0, concurrency=4) as field:
        alive = [field.worker() for _ in range(3)]
        pause = len(kinds) * 9.0 / (jobs / 10) if lanes.run() == "chaos" else 0.01
        sending = field.spawn("producer", first=0, count=jobs, pause=pause)
        field.ready(*alive, sending)
        for kind in kinds:
            field.goes_on(jobs)
            begin = time.monotonic()
            with field.fault(kind):
                if kind == "reset":
                    wire.do("reset")
                else:
                    wire.do("become", kind)
                    time.sleep(hole if kind == "black hole" else hole / 4)
                    wire.do("become", "whole")
            if kind == "black hole":
                raised = [note.time - begin for note in field.notes("raised") if note.time > begin]
                noticed += raised[:1]
            if lanes.run() == "chaos":
                time.sleep(field.chance.uniform(1, 3))
        field.ended(sending, patience=300)
        field.ran(jobs, 300)
        field.store = direct
        verdict = field.verdict(field.settled(jobs))
    what = ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds))
    note = f"a black hole was noticed after {max(noticed):.1f} s at most" if noticed else ""
    return of_verdict(verdict, len(kinds), what, note)


@row("cut-replies", stores=("postgres", "redis"), seconds=120)
def cut_replies(store: str, folder: Path) -> Figures:
    """The request arrives, the reply is cut: sent again under the same id, each job is stored once."""
    count = lanes.figure(test=20, chaos=10_000)
    direct = shared_store(store, folder)

    async def live() -> tuple[int, int, int]:
        async with proxy("127.0.0.1", direct.ports[0]) as between:
            driver = open_driver(between.address(direct.dsn))
            await driver.open()
            again, now = 0, await driver.server_time()
            for n in range(count):
                job = JobRecord(id=f"j{n:06}", type="work")
                between.become("cut")
                while True:
                    try:
                        [found] = await driver.enqueue([job], now)
                    except BackendUnavailable:
                        continue
                    again += found.existed
                    break
                assert found.id == job.id
            between.become("whole")
            counts = await driver.counts(await driver.server_time())
            await driver.close()
            stored = sum(number for states in counts.values() for number in states.values())
            return between.cuts, stored, again

    async def listed() -> set[str]:
        driver = open_driver(direct.dsn)
        await driver.open()
        found, cursor = set(), None
        while True:
            page = await driver.list(now=await driver.server_time(), cursor=cursor, limit=1000)
            found |= {info.job.id for info in page.items}
            if (cursor := page.cursor) is None:
                break
        await driver.close()
        return found

    cuts, stored, again = asyncio.run(live())
    ids = asyncio.run(listed())
    assert ids == {f"j{n:06}" for n in range(count)}
    assert stored == count
    assert cuts >= count // 2, "hardly a reply was cut"
    return Figures(jobs=count, faults=cuts, what="replies cut after the request arrived",
                   note=f"{again} found stored already when sent again, no id twice")  # fmt: skip
