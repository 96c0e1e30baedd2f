"""Chords under kills: every finalizer is released once, after all its members, whatever dies when.

Real workers on virtual time (tests/flow/simulated_kills.py). Real processes are killed in test_processes.py.
"""

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

from taskharbor import Harbor, Unrecoverable
from taskharbor.flow import chain, chord, group
from tests import lanes
from tests.flow.simulated_kills import Fate, Yard

SEEDS = range(lanes.seed(), lanes.seed() + lanes.figure(1, 15))
CHORDS = 1000
MEMBERS = 8


class Declared:
    """The tasks, as each process declares them; what was executed is noted for all of them together."""

    def __init__(self, harbor: Harbor, ran: Counter[Any]) -> None:
        @harbor.task(name="member")
        async def member(n: int, i: int) -> int:
            ran["member", n, i] += 1
            return n * 100 + i

        @harbor.task(name="last")
        async def last(parts: list[int], n: int) -> int:
            assert parts == [n * 100 + i for i in range(len(parts))]
            ran["last", n] += 1
            return sum(parts)

        @harbor.task(name="spread")
        async def spread(n: int, size: int) -> Any:
            await asyncio.sleep(0.1 * (n % 7))
            return group(member.s(n, i) for i in range(size))

        @harbor.task(name="dies")
        async def dies(n: int) -> None:
            raise Unrecoverable(f"{n} dies")

        @harbor.task(name="alert")
        async def alert(n: int) -> None:
            ran["alert", n] += 1

        self.member, self.last, self.spread, self.dies, self.alert = member, last, spread, dies, alert


def random_fates(seed: int, lost: float, killed: float) -> Fate:
    """Loses the reply of a settle, or kills the process at any call, with these probabilities."""
    chances = random.Random(seed)

    def fate(verb: str, when: str) -> bool | str:
        if verb == "settle" and when == "after" and chances.random() < lost:
            return "lost"
        return verb != "wait" and chances.random() < killed

    return fate


def settled(yard: Yard) -> Counter[Any]:
    """How many jobs of each type and state the store has at the end."""
    entries = yard.store.store.entries.values()
    return Counter((entry.record.type, entry.record.finished_at is not None) for entry in entries)


@pytest.mark.parametrize("seed", range(lanes.seed(), lanes.seed() + lanes.figure(1, 3)))
def test_a_thousand_chords_under_random_kills(seed: int) -> None:
    ran: Counter[Any] = Counter()
    yard = Yard(lambda harbor: Declared(harbor, ran), random_fates(seed, lost=0.05, killed=0.02), seed=seed)

    async def enqueue(tasks: Declared) -> list[Any]:
        members = range(MEMBERS)
        return [
            await chord((tasks.member.s(n, i) for i in members), tasks.last.s(n=n)).aenqueue() for n in range(CHORDS)
        ]

    yard.run(enqueue)
    assert yard.book.problems == []
    assert yard.book.unexplained() == {}
    assert yard.book.deaths > 50, "too few died for this to say anything"
    assert settled(yard) == {("member", True): CHORDS * MEMBERS, ("last", True): CHORDS}
    assert len([key for key in ran if key[0] == "last"]) == CHORDS
    again = sum(times - 1 for key, times in ran.items() if key[0] == "last")
    assert again <= sum(yard.book.lost.values())
    assert any(times > 1 for times in ran.values()), "no job was ever executed again"


@pytest.mark.parametrize("grows", [False, True], ids=["chord", "a chord that grows"])
def test_a_kill_at_every_step_of_a_chord(grows: bool) -> None:
    """The first process dies at its first, second, third … call; until it lives long enough to finish alone."""
    for number in range(1, 200):
        ran: Counter[Any] = Counter()
        declare = partial(Declared, ran=ran)
        calls = 0

        def fate(verb: str, when: str, number: int = number) -> bool:
            nonlocal calls
            calls += verb != "wait"
            return calls == number

        yard = Yard(declare, fate, workers=1, seed=number)

        async def enqueue(tasks: Declared) -> Any:
            if grows:
                return await chain(tasks.spread.s(0, 3), tasks.last.s(n=0)).aenqueue()
            return await chord([tasks.member.s(0, 0), tasks.member.s(0, 1)], tasks.last.s(n=0)).aenqueue()

        yard.run(enqueue)
        assert yard.book.problems == []
        assert yard.book.unexplained() == {}
        assert settled(yard)["last", True] == 1
        assert ran["last", 0] <= 2
        assert all(finished for _, finished in settled(yard))
        if not yard.book.deaths:
            break
    else:
        pytest.fail("it never finished alone")
    assert number > 15, "there were hardly any steps to die at"


@pytest.mark.parametrize("seed", SEEDS)
def test_nested_chords_under_random_kills(seed: int) -> None:
    ran: Counter[Any] = Counter()
    chances = random.Random(seed)
    yard = Yard(lambda harbor: Declared(harbor, ran), lambda verb, when: chances.random() < 0.03, seed=seed)

    async def enqueue(tasks: Declared) -> Any:
        def inner(n: int) -> Any:
            return chord((tasks.member.s(n, i) for i in range(5)), tasks.last.s(n=n))

        flows = [
            chord([inner(n), inner(n + 1), chain(tasks.spread.s(n, 4), tasks.last.s(n=n))], tasks.member.s(n, 9))
            for n in range(0, 60, 2)
        ]
        return [await flow.aenqueue() for flow in flows]

    yard.run(enqueue)
    assert yard.book.problems == []
    assert yard.book.unexplained() == {}
    assert settled(yard)["last", True] == 90
    assert all(finished for _, finished in settled(yard))


@pytest.mark.parametrize("seed", SEEDS)
def test_chords_with_zombies_and_lost_answers(seed: int) -> None:
    """Workers are stopped for three leases and come back: what they still say changes nothing."""
    ran: Counter[Any] = Counter()
    chances = random.Random(seed)

    def fate(verb: str, when: str) -> bool | str:
        dice = chances.random()
        if verb == "settle" and dice < 0.1:
            return "frozen" if when == "before" else "lost"
        return "frozen" if dice > 0.99 and verb != "wait" else False

    yard = Yard(lambda harbor: Declared(harbor, ran), fate, seed=seed)

    async def enqueue(tasks: Declared) -> Any:
        for n in range(100):
            await chord((tasks.member.s(n, i) for i in range(4)), tasks.last.s(n=n)).aenqueue()

    yard.run(enqueue)
    assert yard.book.problems == []
    assert yard.book.frozen > 3, "too few zombies for this to say anything"
    assert settled(yard) == {("member", True): 400, ("last", True): 100}


@pytest.mark.parametrize("seed", SEEDS)
def test_members_that_die_together_under_kills_release_one_failure_step(seed: int) -> None:
    ran: Counter[Any] = Counter()
    yard = Yard(lambda harbor: Declared(harbor, ran), random_fates(seed, lost=0.1, killed=0.03), seed=seed)

    async def enqueue(tasks: Declared) -> Any:
        for n in range(100):
            members = [*(tasks.dies.s(n) for _ in range(3)), *(tasks.member.s(n, i) for i in range(3))]
            await group(members, on_failure=tasks.alert.s(n)).aenqueue()

    yard.run(enqueue)
    assert yard.book.deaths > 5
    entries = [entry.record for entry in yard.store.store.entries.values()]
    alerts = Counter(record.flow_id for record in entries if record.type == "alert")
    assert len(alerts) == 100
    assert set(alerts.values()) == {1}
    assert sum(record.type == "dies" and record.reason.endswith("dies") for record in entries) == 300


@pytest.mark.parametrize("seed", SEEDS)
def test_jobs_spawned_while_their_flow_is_cancelled_are_cancelled(seed: int) -> None:
    """Each flow is cancelled at some moment: before, while or after one of its jobs hands over to a workflow."""
    ran: Counter[Any] = Counter()
    chances = random.Random(seed)
    yard = Yard(lambda harbor: Declared(harbor, ran), lambda verb, when: chances.random() < 0.01, seed=seed)

    async def enqueue(tasks: Declared) -> Any:
        cancels = []

        async def cancel_later(handle: Any) -> None:
            await asyncio.sleep(chances.uniform(0, 2))
            await handle.acancel()
            yard.book.cancelled.add(handle.id)

        for n in range(100):
            handle = await chain(tasks.spread.s(n, 4), tasks.last.s(n=n)).aenqueue()
            cancels.append(asyncio.ensure_future(cancel_later(handle)))
        return cancels

    yard.run(enqueue)
    assert yard.book.problems == []
    entries = list(yard.store.store.entries.values())
    handed = [entry.record for entry in entries if entry.record.handed_to is not None]
    open_ = [record for record in (entry.record for entry in entries) if record.finished_at is None]
    assert open_ == []
    assert 10 < len(handed) < 100, "the cancels came all before, or all after, the workflows"
    assert 0 < ran.total() < 500
