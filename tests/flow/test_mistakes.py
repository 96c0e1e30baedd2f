"""The oldest mistakes of chords, made on purpose in the store: the runs of test_kills.py notice each of them."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.memory import settle as settling
from taskharbor.drivers.memory.flows import release_dependents
from taskharbor.flow import chord
from taskharbor.model.outcome import Retry
from tests.flow.simulated_kills import Yard
from tests.flow.test_kills import Declared


class LateRelease(MemoryDriver):
    """Releases dependents after the transaction that settles the last of what they wait for."""

    def sibling(self) -> "LateRelease":
        other = LateRelease(self._dsn)
        other.store = self.store
        return other

    async def settle(self, outcomes: Any, now: Any) -> Any:
        PENDING.clear()
        answers = await super().settle(outcomes, now)
        mine = list(PENDING)
        await asyncio.sleep(0.05)  # here the process dies
        for entry, dependents in mine:
            with self.store.lock:
                release_dependents(self.store, entry, dependents, now)
        return answers


PENDING: list[Any] = []


class CountingTwice(MemoryDriver):
    """Counts members that have ended instead of knowing which: an outcome that is sent again counts again."""

    def sibling(self) -> "CountingTwice":
        other = CountingTwice(self._dsn)
        other.store = self.store
        return other

    async def settle(self, outcomes: Any, now: Any) -> Any:
        with self.store.lock:
            for outcome in outcomes:
                entry = self.store.entries.get(outcome.lease.job_id)
                if entry is not None and entry.settled == (outcome.lease.token, type(outcome)):
                    for dependent in entry.dependents:
                        uncounted = max(dependent.open, key=lambda one: one.stored, default=entry)
                        release_dependents(self.store, uncounted, [dependent], now)
        return await super().settle(outcomes, now)


def played(store: MemoryDriver) -> Yard:
    ran: Counter[Any] = Counter()
    chances = random.Random(1)

    def fate(verb: str, when: str) -> bool | str:
        if verb == "settle" and when == "after" and chances.random() < 0.1:
            return "lost"
        return verb != "wait" and chances.random() < 0.02

    yard = Yard(lambda harbor: Shaky(harbor, ran), fate, seed=1, store=store)

    async def enqueue(tasks: Declared) -> Any:
        for n in range(60):
            await chord((tasks.member.s(n, i) for i in range(8)), tasks.last.s(n=n)).aenqueue()

    yard.run(enqueue)
    return yard


class Shaky(Declared):
    """The same tasks, but each member fails the first time."""

    def __init__(self, harbor: Harbor, ran: Counter[Any]) -> None:
        super().__init__(harbor, ran)
        member = self.member.handler.function

        async def shaky(n: int, i: int) -> int:
            if not ran["member", n, i]:
                ran["member", n, i] += 1
                raise ValueError("not yet")
            return int(await member(n, i))

        self.member.handler.function = shaky


def problems(yard: Yard) -> list[str]:
    return sorted({" ".join(problem.split()[:1] + problem.split()[2:5]) for problem in yard.book.problems})


def test_without_a_mutation_all_invariants_hold() -> None:
    yard = played(MemoryDriver("memory://"))
    assert yard.book.problems == []
    assert yard.book.unexplained() == {}


def test_releasing_outside_the_transaction_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "release_dependents", lambda store, *what: PENDING.append(what[:2]))
    assert problems(played(LateRelease("memory://"))) == ["last is blocked for"]


def test_counting_instead_of_a_set_is_caught() -> None:
    assert "last was released before" in problems(played(CountingTwice("memory://")))


def test_releasing_on_retry_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = settling._apply

    def released(store: Any, entry: Any, outcome: Any, now: Any) -> None:
        apply(store, entry, outcome, now)
        if isinstance(outcome, Retry):
            release_dependents(store, entry, entry.dependents, now)

    monkeypatch.setattr(settling, "_apply", released)
    assert "last was released before" in problems(played(MemoryDriver("memory://")))
