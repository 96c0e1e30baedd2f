"""The checker sees each kind of mistake: a journal in which all is well, with one thing changed."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.survival.checker import Fault, Stored, check, recovery
from tests.survival.journal import Note

KILLED, LIVING = 10, 11


@dataclass
class World:
    """Three jobs: one that ran once, one whose first process was killed, one that is dead."""

    notes: list[Note] = field(
        default_factory=lambda: [
            Note(0.0, 1, "sent", [[1, 2, 3]]),
            Note(0.1, 1, "stored", [[1, 2, 3], ["a", "b", "c"]]),
            Note(1.0, LIVING, "reserved", [[["a", 1], ["c", 1]], 1]),
            Note(1.1, LIVING, "start", [1, "a", 1]),
            Note(1.2, LIVING, "end", [1, "a", 1]),
            Note(1.25, LIVING, "start", [3, "c", 1]),
            Note(1.3, LIVING, "call", ["settle", 2, ["a", "c"]]),
            Note(1.4, LIVING, "settled", [[["a", 1, True, True], ["c", 1, True, True]], 2]),
            Note(2.0, KILLED, "reserved", [[["b", 1]], 1]),
            Note(2.1, KILLED, "start", [2, "b", 1]),
            Note(5.0, LIVING, "reserved", [[["b", 2]], 3]),
            Note(5.1, LIVING, "start", [2, "b", 2]),
            Note(5.2, LIVING, "end", [2, "b", 2]),
            Note(5.3, LIVING, "call", ["settle", 4, ["b"]]),
            Note(5.4, LIVING, "settled", [[["b", 2, True, True]], 4]),
        ]
    )
    faults: list[Fault] = field(default_factory=lambda: [Fault("SIGKILL", 2.5, 2.5, frozenset({KILLED}))])
    stored: dict[str, Stored] = field(
        default_factory=lambda: {
            "a": Stored("done", max_attempts=3),
            "b": Stored("done", lost=1, max_attempts=3),
            "c": Stored("dlq", attempts=3, max_attempts=3, reason="3 attempts", last_error="ValueError"),
        }
    )

    def check(self) -> list[str]:
        self.notes.sort()
        return check(self.notes, self.faults, self.stored, dead=frozenset({3}), max_lost=3).wrong


def without(word: str, number: int) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.notes = [note for note in world.notes if not (note.word == word and note.data[0] == number)]

    return change


def stored(id: str, record: Stored | None) -> Callable[[World], None]:
    def change(world: World) -> None:
        del world.stored[id]
        if record is not None:
            world.stored[id] = record

    return change


def more(*notes: Note) -> Callable[[World], None]:
    return lambda world: world.notes.extend(notes)


def no_fault(world: World) -> None:
    world.faults.clear()


MISTAKES: dict[str, tuple[Callable[[World], None], str]] = {
    "an acknowledged job that the store does not know": (stored("a", None), "is lost"),
    "a job that is done, and its handler never ended": (without("end", 1), "is lost"),
    "a job that is still waiting": (stored("b", Stored("ready")), "is lost"),
    "a job that never ended, and was not acknowledged": (
        lambda world: world.stored.update(d=Stored("inflight")),
        "not ended",
    ),
    "a job that is dead and should not be": (stored("b", Stored("dlq", reason="crashed")), "is dead"),
    "a second execution without a cause": (no_fault, "no fault explains it"),
    "a kill of another process": (
        lambda world: world.faults.__setitem__(0, Fault("SIGKILL", 2.5, 2.5, frozenset({99}))),
        "no fault explains it",
    ),
    "a kill after the second execution": (
        lambda world: world.faults.__setitem__(0, Fault("SIGKILL", 7.0, 7.0, frozenset({KILLED}))),
        "no fault explains it",
    ),
    "an execution after the outcome was accepted": (
        more(Note(1.5, KILLED, "start", [1, "a", 2])),
        "after its outcome was accepted",
    ),
    "a fence that does not grow": (more(Note(5.15, LIVING, "start", [2, "b", 1])), "did not grow"),
    "a settle of an older delivery": (
        more(
            Note(6.0, KILLED, "call", ["settle", 9, ["b"]]), Note(6.1, KILLED, "settled", [[["b", 1, True, True]], 9])
        ),
        "was settled after 2 was granted",
    ),
    "an extension of an older delivery": (
        more(Note(6.0, KILLED, "call", ["extend", 9, ["b"]]), Note(6.1, KILLED, "extended", [[["b", 1]], 9])),
        "was extended after 2 was granted",
    ),
    "a delivery that is granted twice": (more(Note(5.05, KILLED, "reserved", [[["b", 2]], 9])), "granted twice"),
    "two jobs of one number": (more(Note(6.0, LIVING, "start", [1, "z", 1])), "number 1 is 2 jobs"),
    "a job that was never sent": (more(Note(6.0, LIVING, "start", [8, "z", 1])), "was never sent"),
    "too many attempts": (stored("a", Stored("done", attempts=4, max_attempts=3)), "4 attempts of 3"),
    "too many losses": (stored("b", Stored("done", lost=4)), "lost 4 times of 3"),
    "a dead letter without a reason": (stored("c", Stored("dlq", attempts=3)), "lacks its reason"),
    "a dead letter without a payload": (stored("c", Stored("dlq", reason="x", payload=False)), "lacks its reason"),
}


def test_a_good_journal_has_no_violation() -> None:
    assert World().check() == []


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name: str) -> None:
    world = World()
    change, words = MISTAKES[name]
    change(world)
    found = world.check()
    assert any(words in sentence for sentence in found), found


def test_a_refused_settle_of_an_older_delivery_is_no_violation() -> None:
    world = World()
    world.notes += [
        Note(6.0, KILLED, "call", ["settle", 9, ["b"]]),
        Note(6.1, KILLED, "settled", [[["b", 1, False, True]], 9]),
    ]
    assert world.check() == []


def test_figures() -> None:
    world = World()
    found = check(world.notes, world.faults, world.stored, dead=frozenset({3}))
    assert (found.jobs, found.executions, found.duplicates, found.unexplained, found.lost) == (3, 4, 1, 0, 0)
    assert found.recovery == pytest.approx(5.1 - 2.5)


def test_recovery_after_the_store_was_away() -> None:
    """From the end of the outage until the slower of two workers has a reply; one that came later does not count."""
    replies = [(0.5, 1), (0.6, 2), (4.0, 1), (5.5, 2), (9.0, 3)]
    notes = [Note(moment, pid, "reply", ["reserve", 1]) for moment, pid in replies]
    assert recovery(notes, [Fault("restart", 1.0, 3.0)]) == pytest.approx(2.5)
    assert recovery(notes, []) is None
