"""The loop of the simulation: time jumps, the schedule is seeded, processes freeze and die."""

import asyncio
import random

import pytest

from tests.simulation.loop import Deadlock, Livelock, VirtualLoop
from tests.simulation.machine import Process


def loop_of(seed: int = 0, *, shuffle: bool = False, steps: int = 10_000) -> VirtualLoop:
    return VirtualLoop(random.Random(seed), shuffle=shuffle, steps=steps)


def run(loop: VirtualLoop, coroutine) -> object:
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.dispose()


def test_a_day_passes_at_once() -> None:
    loop = loop_of()

    async def day() -> float:
        await asyncio.sleep(86_400)
        return loop.time()

    assert run(loop, day()) == 86_400


def test_a_deadlock_names_the_waiting_coroutines() -> None:
    async def for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="for_ever"):
        run(loop_of(), for_ever())


def test_a_livelock_is_found() -> None:
    async def busy() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="busy"):
        run(loop_of(steps=500), busy())


def test_callbacks_of_a_process_keep_their_order_and_processes_do_not() -> None:
    def order(seed: int) -> list[str]:
        loop, seen = loop_of(seed), list[str]()
        for name in ("a", "b"):
            process = Process(name, loop)
            for number in range(5):
                loop.call_soon(seen.append, f"{name}{number}", context=process.context)
        run(loop, asyncio.sleep(1))
        return seen

    runs = [order(seed) for seed in range(20)]
    for seen in runs:
        assert [each for each in seen if each[0] == "a"] == ["a0", "a1", "a2", "a3", "a4"]
    assert len({tuple(seen) for seen in runs}) > 10
    assert order(3) == order(3)


def test_tasks_of_a_process_are_shuffled_only_when_asked() -> None:
    def order(seed: int, shuffle: bool) -> tuple[int, ...]:
        loop, seen = loop_of(seed, shuffle=shuffle), list[int]()

        async def note(number: int) -> None:
            seen.append(number)

        async def main() -> None:
            await asyncio.gather(*(note(number) for number in range(5)))

        run(loop, main())
        return tuple(seen)

    assert {order(seed, False) for seed in range(20)} == {(0, 1, 2, 3, 4)}
    assert len({order(seed, True) for seed in range(20)}) > 10


def test_a_frozen_process_goes_on_where_it_was_and_a_dead_one_never() -> None:
    loop = loop_of()
    ticks: dict[str, list[float]] = {"frozen": [], "dead": []}
    cleaned: list[str] = []

    async def tick(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                ticks[name].append(loop.time())
        finally:
            cleaned.append(name)

    async def main() -> None:
        frozen, dead = Process("frozen", loop), Process("dead", loop)
        for process in (frozen, dead):
            process.spawn(tick(process.name), process.name)
        await asyncio.sleep(2.5)
        frozen.freeze(10)
        dead.kill("the test")
        await asyncio.sleep(12)
        assert not cleaned

    run(loop, main())
    assert ticks == {"frozen": [1, 2, 12.5, 13.5, 14.5], "dead": [1, 2]}
