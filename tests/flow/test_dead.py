"""What `JobDead` tells of a job's last error, on every store and through every handle; and what it never tells."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from taskharbor import Harbor, JobDead, Unrecoverable
from taskharbor.flow import chain, chord, group
from taskharbor.testing import drain

CANARY = "4111-1111-1111-1111"


class Refused(Exception):
    """An error of the application's own."""


class Doomed:
    """Tasks that die in every way there is."""

    def __init__(self, harbor: Harbor) -> None:
        @harbor.task(name="fails", max_attempts=1)
        def fails(card: str) -> str:
            raise Refused(f"card {card} was declined\nsecond line")

        @harbor.task(name="gives up", max_attempts=1)
        def gives_up(card: str) -> str:
            raise Unrecoverable(f"no such card: {card}")

        @harbor.task(name="final", max_attempts=5, unrecoverable=KeyError)
        def final(card: str) -> str:
            raise KeyError(card)

        @harbor.task(name="silent", max_attempts=1)
        def silent(card: str) -> str:
            raise Refused

        @harbor.task(name="grows", max_attempts=1)
        def grows(card: str) -> Any:
            return chain(fails.s(card), last.s())

        @harbor.task(name="last")
        def last(given: str) -> str:
            return given

        self.fails, self.gives_up, self.final, self.silent = fails, gives_up, final, silent
        self.grows, self.last = grows, last


@pytest.fixture
def doomed(harbor: Harbor) -> Doomed:
    return Doomed(harbor)


def died(handle: Any) -> JobDead:
    with pytest.raises(JobDead) as caught:
        handle.result(1)
    return caught.value


WAYS: dict[str, Callable[[Doomed], Any]] = {
    "a job": lambda doomed: doomed.fails.enqueue(CANARY),
    "a job whose workflow took its place": lambda doomed: doomed.grows.enqueue(CANARY),
    "a chain": lambda doomed: chain(doomed.fails.s(CANARY), doomed.last.s()).enqueue(),
    "a group": lambda doomed: group(doomed.fails.s(CANARY), doomed.fails.s(CANARY)).enqueue(),
    "a chord": lambda doomed: chord([doomed.fails.s(CANARY)], doomed.last.s()).enqueue(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_dead_job_carries_and_shows_class_and_text(harbor: Harbor, doomed: Doomed, way: str) -> None:
    handle = WAYS[way](doomed)
    drain(harbor)
    error = died(handle)
    assert (error.reason, error.error_class) == ("failed 1 of 1 attempts", f"{__name__}.Refused")
    assert str(error) == f"job {error.job_id} is dead: failed 1 of 1 attempts: Refused: card ••• was declined"
    assert error.last_error.startswith("Refused: card ••• was declined\nsecond line")
    assert "in fails" in error.last_error, "where it was raised"
    for shown in (str(error), repr(error), repr(vars(error)), str(vars(pickle.loads(pickle.dumps(error))))):
        assert CANARY not in shown


@pytest.mark.parametrize(
    ("name", "reason", "kind", "told"),
    [
        ("gives_up", "no such card: •••", "taskharbor.Unrecoverable", "Unrecoverable: no such card: •••"),
        ("final", "unrecoverable KeyError: '•••'", "KeyError", "unrecoverable KeyError: '•••'"),
        ("silent", "failed 1 of 1 attempts", f"{__name__}.Refused", "failed 1 of 1 attempts: Refused"),
    ],
)
def test_other_ways_to_die(harbor: Harbor, doomed: Doomed, name: str, reason: str, kind: str, told: str) -> None:
    handle = getattr(doomed, name).enqueue(CANARY)
    drain(harbor)
    error = died(handle)
    assert (error.reason, error.error_class) == (reason, kind)
    assert str(error) == f"job {handle.id} is dead: {told}"
