"""Queues: what every front end reads of them (counts, heads), and what the drivers share of `heads`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from taskharbor.drivers.base import Driver
from taskharbor.model.job import QueueHead, State

MAX_NEXT = 100
"""`heads` returns at most this many jobs of a queue."""
LOOKS = 10_000
"""A call of `heads` looks at no more records, groups and priorities than this, divided between its queues, but at
`LEAST_LOOKS` in each. What does not follow from these is not known."""
LEAST_LOOKS = 100
MAX_ASKED_QUEUES = 1_000  # in one call


async def read_counts(driver: Driver, now: datetime, cap: int | None) -> dict[str, dict[str, int]]:
    """How many jobs are in which state, by queue, in the order of names and of states as a job goes through them. With
    a cap no number is higher: it then means "that many or more"."""
    found = await driver.counts(now, cap)
    return {
        name: {
            state.value: states[state] if cap is None else min(states[state], cap) for state in State if state in states
        }
        for name, states in sorted(found.items())
    }


async def read_waiting(
    driver: Driver, counts: Mapping[str, Mapping[str, int]], names: Iterable[str], now: datetime
) -> dict[str, QueueHead]:
    """Since when the oldest ready job of each of these queues waits; `counts` says in which of them jobs are ready."""
    names = list(names)
    waiting = await read_heads(driver, [name for name in names if counts.get(name, {}).get(State.READY)], now)
    return {name: waiting.get(name) or QueueHead(name) for name in names}


async def read_heads(driver: Driver, queues: Sequence[str], now: datetime, n: int = 0) -> dict[str, QueueHead]:
    """The heads of any number of queues, by name: how every front end learns what comes next, and how long the oldest
    job waits."""
    found: dict[str, QueueHead] = {}
    for first in range(0, len(queues), MAX_ASKED_QUEUES):
        found |= {head.queue: head for head in await driver.heads(queues[first : first + MAX_ASKED_QUEUES], now, n)}
    return found


def check_next(n: int) -> None:
    """ValueError for a number of jobs that `heads` does not return."""
    if not 0 <= n <= MAX_NEXT:
        raise ValueError(f"n: expected 0 to {MAX_NEXT} jobs of each queue, got {n!r}")


def looks_for_each(queues: Sequence[str]) -> int:
    """How many records a call looks at in each of its queues."""
    return max(LEAST_LOOKS, LOOKS // max(1, len(queues)))


def in_turn(ungrouped: Iterable[str], groups: Iterable[Sequence[str]], groups_next: bool, n: int) -> tuple[str, ...]:
    """The first `n` jobs as they would be reserved one after the other: grouped and ungrouped ones take turns, and so
    do the groups.

    `groups`: those that may run, in the order of their turns, each with as many of its first jobs as it has capacity.

    >>> in_turn(["a", "b"], [["g1", "g2"], ["h1"]], groups_next=True, n=9)
    ('g1', 'a', 'h1', 'b', 'g2')
    """
    line, turns = deque(ungrouped), deque(deque(members) for members in groups if members)
    found: list[str] = []
    while len(found) < n and (line or turns):
        if turns and (groups_next or not line):
            group = turns.popleft()
            found.append(group.popleft())
            if group:
                turns.append(group)
            groups_next = False
        else:
            found.append(line.popleft())
            groups_next = True
    return tuple(found)
