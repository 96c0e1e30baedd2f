"""Figures: what happened in which minute, added up by queue and kept for 72 hours.

The minutes of a case lie on a day of their own, and its queues have names of their own.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.conformance.parts import FIGURES
from taskharbor.drivers import Figures, InvalidJob
from taskharbor.drivers.base import FIGURES_KEPT_FOR

ADDED = "`add_figures` adds each number to that of the same minute, queue and name."
READ = (
    "`figures` returns the minutes from `since` to before `until`, of one queue or of all, in the order of minutes, "
    "then queues, without zeros."
)
FORGOTTEN = "`add_figures` forgets minutes that lie more than 72 hours before `now`."
INVALID = "A row that is out of bounds is `InvalidJob`, and nothing of the call is added."
NO_QUEUE = "Figures neither make a queue nor keep one."
MINUTE = timedelta(minutes=1)


def minute(env: Environment, number: int = 0) -> datetime:
    """A whole minute of the case's day."""
    return env.now.replace(second=0, microsecond=0) + number * MINUTE


async def add(env: Environment, *rows: Figures, at: datetime | None = None) -> None:
    await env.driver.add_figures(rows, at or env.now)


async def read(env: Environment, first: int = -100, last: int = 100, queue: str | None = None) -> list[Figures]:
    """The figures of the case's own queues."""
    found = await env.driver.figures(minute(env, first), minute(env, last), queue)
    return [row for row in found if row.queue in env.used]


@case(ADDED, needs=FIGURES)
async def added_up(env: Environment) -> None:
    rows = [Figures(minute(env), env.queue, {"done": 3, "failed": 1}), Figures(minute(env, 1), env.queue, {"done": 5})]
    await add(env, *rows)
    assert await read(env) == rows
    await add(env, Figures(minute(env), env.queue, {"done": 4, "run_ms": 20}))
    assert await read(env) == [
        Figures(minute(env), env.queue, {"done": 7, "failed": 1, "run_ms": 20}),
        Figures(minute(env, 1), env.queue, {"done": 5}),
    ]


@case(ADDED, needs=FIGURES)
async def the_same_row_twice_in_a_call(env: Environment) -> None:
    row = Figures(minute(env), env.queue, {"done": 2})
    await add(env, row, row)
    await add(env, row)
    await add(env)
    assert await read(env) == [Figures(minute(env), env.queue, {"done": 6})]


@case(ADDED, needs=FIGURES)
async def large_numbers(env: Environment) -> None:
    """The sum of many that are as large as one may be."""
    row = Figures(minute(env), env.queue, {"run_ms": 2**31 - 1})
    await add(env, row, row, row)
    assert await read(env) == [Figures(minute(env), env.queue, {"run_ms": 3 * (2**31 - 1)})]


@case(ADDED, needs=FIGURES)
async def added_by_many_at_once(env: Environment) -> None:
    others = await env.siblings(4)
    row = Figures(minute(env), env.queue, {"done": 1, "failed": 2})
    calls = [each.add_figures([row], env.now) for each in others for _ in range(5)]
    await asyncio.gather(*calls)
    assert await read(env) == [Figures(minute(env), env.queue, {"done": 20, "failed": 40})]


@case(READ, needs=FIGURES)
async def from_since_to_before_until(env: Environment) -> None:
    await add(env, *(Figures(minute(env, number), env.queue, {"n": number + 1}) for number in range(4)))
    assert [row.counts["n"] for row in await read(env, 1, 3)] == [2, 3]
    assert await read(env, 3, 3) == await read(env, 3, 1) == await read(env, 4, 9) == []
    within = await env.driver.figures(
        minute(env) + timedelta(milliseconds=1), minute(env, 2) + timedelta(milliseconds=1)
    )
    assert [row.counts["n"] for row in within if row.queue == env.queue] == [2, 3]


@case(READ, needs=FIGURES)
async def in_order(env: Environment) -> None:
    """By minute, then by the name of the queue in code points; and of one queue alone."""
    names = [env.q(name) for name in ("b", "B", "é", "a", "z:1")]
    rows = [Figures(minute(env, number), name, {"done": 1}) for number in (2, 0, 1) for name in names]
    await add(env, *rows)
    assert await read(env) == sorted(rows, key=lambda row: (row.minute, row.queue))
    assert [row.minute for row in await read(env, queue=env.q("b"))] == [minute(env, number) for number in range(3)]
    for unknown in (env.name("nowhere"), "a\x00b", "\ud800", "", "x" * 300):
        assert await read(env, queue=unknown) == []


@case(READ, needs=FIGURES)
async def without_zeros(env: Environment) -> None:
    empty = Figures(minute(env), env.q("empty"), {})
    zeros = Figures(minute(env), env.q("zeros"), {"done": 0, "failed": 0})
    await add(env, empty, zeros, Figures(minute(env), env.queue, {"done": 1, "failed": 0}))
    assert await read(env) == [Figures(minute(env), env.queue, {"done": 1})]


@case(FORGOTTEN, needs=FIGURES)
async def after_72_hours(env: Environment) -> None:
    """To the minute: what is exactly 72 hours old is there."""
    old = minute(env)
    await add(env, Figures(old, env.queue, {"done": 1}), Figures(old + MINUTE, env.queue, {"done": 2}), at=old)
    now = old + FIGURES_KEPT_FOR
    await add(env, Figures(minute(env, 5), env.queue, {"done": 3}), at=now)
    assert [row.counts["done"] for row in await read(env)] == [1, 2, 3]
    await add(env, at=now + timedelta(milliseconds=1))
    assert [row.counts["done"] for row in await read(env)] == [2, 3]
    await add(env, Figures(old, env.queue, {"done": 9}), at=now + MINUTE)
    assert [row.counts["done"] for row in await read(env)] == [2, 3]
    await add(env, at=now + 60 * MINUTE)
    assert await read(env) == []


@case(FORGOTTEN, needs=FIGURES)
async def many_old_ones(env: Environment) -> None:
    """What one call does not get to is forgotten by those that follow."""
    rows = [Figures(minute(env, number % 10), env.q(f"{number}"), {"done": 1}) for number in range(2500)]
    await add(env, *rows)
    assert len(await read(env)) == 2500
    for _ in range(4):
        await add(env, at=minute(env, 100) + FIGURES_KEPT_FOR)
    assert await read(env) == []


@case(INVALID, needs=FIGURES)
async def out_of_bounds(env: Environment) -> None:
    good = Figures(minute(env), env.queue, {"done": 1})
    bad: list[Any] = [
        Figures(minute(env) + timedelta(seconds=1), env.queue, {"done": 1}),
        Figures(minute(env).replace(tzinfo=None), env.queue, {"done": 1}),
        Figures(minute(env), "", {"done": 1}),
        Figures(minute(env), "a\x00b", {"done": 1}),
        Figures(minute(env), env.queue, {"done": -1}),
        Figures(minute(env), env.queue, {"done": 2**31}),
        Figures(minute(env), env.queue, {"done": True}),
        Figures(minute(env), env.queue, {"Done": 1}),
        Figures(minute(env), env.queue, {"x" * 33: 1}),
        Figures(minute(env), env.queue, {f"n{number}": 1 for number in range(65)}),
    ]
    for wrong in bad:
        try:
            await add(env, good, wrong)
        except InvalidJob:
            continue
        raise AssertionError(f"{wrong} was added")
    assert await read(env) == []


@case(INVALID, needs=FIGURES)
async def at_the_bound(env: Environment) -> None:
    row = Figures(minute(env), env.q("é" * 100), {f"n{number:031d}": 1 for number in range(64)})
    await add(env, row)
    assert await read(env) == [row]


@case(NO_QUEUE, needs=FIGURES)
async def no_queue_is_made(env: Environment) -> None:
    await add(env, Figures(minute(env), env.queue, {"done": 1}))
    assert env.queue not in await env.driver.queues()
    assert env.queue not in await env.driver.counts(env.now)
    job = await env.add()
    await env.driver.delete([job.id])
    assert env.queue not in await env.driver.queues()
    assert len(await read(env)) == 1
