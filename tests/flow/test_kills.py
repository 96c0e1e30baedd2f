"""Chords under kills: every finalizer is released once, after all its members, whatever dies when.

Real workers on virtual time (tests/flow/kills.py). Real processes are killed in test_processes.py.
"""

import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.flow import chain, chord, group
from tests import lanes
from tests.flow.kills import Yard

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
            return group(member.s(n, i) for i in range(size))

        self.member, self.last, self.spread = member, last, spread


def settled(yard: Yard) -> Counter[Any]:
    """How many jobs of each type and state the store has at the end."""
    entries = yard.store.store.entries.values()
    return Counter((entry.record.type, entry.record.finished_at is not None) for entry in entries)


def test_a_thousand_chords_under_random_kills() -> None:
    ran: Counter[Any] = Counter()
    chances = random.Random(lanes.seed())

    def fate(verb: str, when: str) -> bool | str:
        if verb == "settle" and when == "after" and chances.random() < 0.05:
            return "lost"
        return verb != "wait" and chances.random() < 0.02

    yard = Yard(lambda harbor: Declared(harbor, ran), fate, seed=lanes.seed())

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


@pytest.mark.parametrize("seed", range(3))
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
