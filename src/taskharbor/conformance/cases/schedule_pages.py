"""Listings of schedules: by name, and those that are due with what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.cases.schedules import add, apply, change, due, read, schedule
from taskharbor.conformance.cases.text import AWKWARD
from taskharbor.conformance.environment import Environment
from taskharbor.conformance.parts import SCHEDULES
from taskharbor.drivers import SchedulePage, StoredSchedule
from taskharbor.drivers.queries import MAX_SCHEDULES_PER_PAGE

BY_NAME = (
    "`schedules` returns pages of rows in the order of their names by code point, filtered by `names` and `queue`."
)
DUE = (
    "`due_schedules` returns pages of the rows of these queues with `next_at <= now`, in the order of `next_at`, then "
    "of names by code point. A row without `next_at` is never due."
)
AHEAD = (
    "Each of these pages, also one behind a cursor, has in `upcoming` the earliest `next_at` after `now` in these "
    "queues, or None. It may be early, as beside a damaged row, but never late."
)
PAGES = (
    "A page has at most `limit` rows and at most 1,000. Where rows are large or damaged it may have fewer, or none, "
    "and still a cursor; without a cursor it is the last."
)
CURSOR = (
    "A cursor of schedules stays valid when rows are added, changed, moved or deleted, and one of due schedules at "
    "another `now`, too."
)
BAD = (
    "A damaged cursor or one of another listing, a limit below 1, and a moment without a time zone is a `ValueError` "
    "in `schedules` and `due_schedules`, too."
)
UNKNOWN = "A text that is not a valid name is treated like an unknown name, and spoils nothing else in the call."
ODD = (
    "b",
    "B",
    "a",
    "Z",
    "é",
    "e",
    "z",
    "10",
    "9",
    "ﬀ",
    "😀",
    "_",
    "~",
    "-",
    "a b",
    "ab",
    "a",
    "\uffff",
    "\U0010ffffa",
)
NOBODY = ("", "a\x00b", "\ud800", "{", "a}b", "a\nb", "x" * 300, "%", "'; --")


def in_order(rows: Sequence[StoredSchedule]) -> list[StoredSchedule]:
    """As they become due."""
    return sorted((row for row in rows if row.next_at is not None), key=lambda row: (row.next_at, row.name))


async def due_page(env: Environment, at: float = 0, *queues: str, **asked: Any) -> SchedulePage:
    """One page of what is due."""
    return await env.driver.due_schedules(queues or [env.queue], env.at(at), **asked)


async def ahead(env: Environment, at: float = 0, *queues: str) -> datetime | None:
    return (await due_page(env, at, *queues)).upcoming


# By name


@case(BY_NAME, needs=SCHEDULES)
async def by_code_point(env: Environment) -> None:
    """However the store orders text, and in whatever order the rows come."""
    rows = [schedule(env, name) for name in dict.fromkeys((*ODD, *AWKWARD))]
    await add(env, *rows[9:])
    await add(env, *rows[:9])
    expected = sorted(rows, key=lambda row: row.name)
    for limit in (1, 3, 16, 1000):
        assert await read(env, limit) == await read(env, limit, queue=env.queue) == expected
        assert await read(env, limit, names=[row.name for row in rows]) == expected


@case(BY_NAME, PAGES, needs=SCHEDULES)
async def page_by_page(env: Environment) -> None:
    """Small rows fill a page, and the last one has no cursor, however large the limit."""
    rows = [schedule(env, f"{number}", number // 3) for number in range(7)]
    await add(env, *rows)
    names = [row.name for row in rows]
    for limit, sizes in ((1, [1] * 7), (2, [2, 2, 2, 1]), (3, [3, 3, 1]), (7, [7]), (8, [7]), (10**12, [7])):
        asked: dict[str, Any]
        for asked in ({"queue": env.queue}, {"names": names}):
            assert await sizes_of(env, limit, **asked) == sizes
        assert await sizes_of(env, limit, at=9) == sizes
        assert await due(env, 9, limit=limit) == rows


async def sizes_of(env: Environment, limit: int, at: float | None = None, **asked: Any) -> list[int]:
    """The sizes of all pages; with `at`, of those that are due then."""
    sizes, cursor = list[int](), None
    for _ in range(50):
        if at is None:
            page = await env.driver.schedules(limit=limit, cursor=cursor, **asked)
        else:
            page = await due_page(env, at, limit=limit, cursor=cursor)
        sizes.append(len(page.items))
        cursor = page.cursor
        if cursor is None:
            return sizes
    raise AssertionError("the pages never end")


@case(PAGES, needs=SCHEDULES)
async def no_page_is_larger(env: Environment) -> None:
    rows = [schedule(env, f"{number:04d}", number // 300) for number in range(MAX_SCHEDULES_PER_PAGE + 5)]
    await add(env, *rows)
    names = [row.name for row in rows]
    for limit in (MAX_SCHEDULES_PER_PAGE, MAX_SCHEDULES_PER_PAGE + 3, 2**31, 2**70):
        for page in (
            await env.driver.schedules(queue=env.queue, limit=limit),
            await env.driver.schedules(names=[*names, *names], limit=limit),
            await due_page(env, 9, limit=limit),
        ):
            assert list(page.items) == rows[:MAX_SCHEDULES_PER_PAGE]
            assert page.cursor is not None
    assert await read(env, 2**70, queue=env.queue) == await due(env, 9, limit=2**70) == rows
    assert len((await env.driver.schedules(queue=env.queue)).items) == len((await due_page(env, 9)).items) == 100


@case(BY_NAME, needs=SCHEDULES)
async def names_and_queues(env: Environment) -> None:
    a, b = env.q("a"), env.q("b")
    rows = [schedule(env, f"{number}", queue=b if number % 2 else a) for number in range(6)]
    await add(env, *rows)
    names = [row.name for row in rows]
    assert await read(env, names=[names[4], names[1], names[4], env.name("none")]) == [rows[1], rows[4]]
    assert await read(env, queue=a) == rows[::2]
    assert await read(env, 1, queue=b) == rows[1::2]
    assert await read(env, 1, names=names[:4], queue=b) == [rows[1], rows[3]]
    assert await read(env, names=[names[0]], queue=b) == await read(env, names=[]) == []
    assert await read(env, queue=env.q("c")) == []
    assert [row for row in await read(env, 2) if row.name in names] == rows
    near = [name[:-1] for name in names] + [name + "0" for name in names] + [names[0].upper() + "A", " " + names[0]]
    assert await read(env, names=[name for name in near if name]) == []
    assert await read(env, names=(a[:-1], a + "a", "%", "*"), queue=a) == []


@case(BY_NAME, needs=SCHEDULES)
async def asked_for_many_names(env: Environment) -> None:
    """As a program does that declares many: most of them are there."""
    rows = [schedule(env, f"{number:04d}") for number in range(0, 3000, 10)]
    await add(env, *rows)
    names = [env.name(f"{number:04d}") for number in range(3000)]
    assert await read(env, names=names[::-1]) == rows
    assert await read(env, 70, names=names, queue=env.queue) == rows


@case(BY_NAME, DUE, UNKNOWN, needs=SCHEDULES)
async def names_that_cannot_exist(env: Environment) -> None:
    rows = [schedule(env, f"{number}", number) for number in range(3)]
    await add(env, *rows)
    names = [row.name for row in rows]
    for name in NOBODY:
        assert await env.driver.schedules(names=[name]) == await env.driver.schedules(queue=name) == SchedulePage(())
        assert await env.driver.schedules(names=names, queue=name) == SchedulePage(())
        assert await due_page(env, 9, name) == SchedulePage(())
        assert await read(env, names=[name, *names, name]) == rows
        assert await due_page(env, 1, name, env.queue, name) == SchedulePage(tuple(rows[:2]), None, rows[2].next_at)
    assert await read(env, names=[*NOBODY, names[1], *NOBODY]) == [rows[1]]


@case(CURSOR, BY_NAME, needs=SCHEDULES)
async def rows_change_between_pages(env: Environment) -> None:
    """What comes before the cursor is not seen, what comes behind it is, nothing is seen twice."""
    rows = [schedule(env, f"m{number}") for number in range(6)]
    await add(env, *rows)
    first = await env.driver.schedules(queue=env.queue, limit=3)
    assert list(first.items) == rows[:3]
    before, between, behind = schedule(env, "a"), schedule(env, "m20"), schedule(env, "z")
    changed = schedule(env, "m4", version=2, body=b"changed")
    moved = schedule(env, "m5", queue=env.q("other"), version=2)
    await add(env, before, between, behind)
    assert await apply(env, change(rows[2], None), change(rows[3], None), change(rows[4], changed)) == [True] * 3
    assert await apply(env, change(rows[5], moved)) == [True]
    rest = await env.driver.schedules(queue=env.queue, cursor=first.cursor)
    assert rest == SchedulePage((between, changed, behind))
    assert (await env.driver.schedules(queue=env.queue, cursor=first.cursor, limit=1)).items == (between,)
    assert await apply(env, *(change(row, None) for row in (between, changed, behind))) == [True] * 3
    assert await env.driver.schedules(queue=env.queue, cursor=first.cursor) == SchedulePage(())


# What is due


@case(DUE, needs=SCHEDULES)
async def from_its_very_moment_on(env: Environment) -> None:
    row, never = schedule(env, "s", 5.001), schedule(env, "never")
    await add(env, row, never)
    for at, expected in ((0, []), (5, []), (5.001, [row]), (5.002, [row]), (10**6, [row]), (5, [])):
        assert await due(env, at) == expected
    new = schedule(env, "s", 5.002, version=2)
    assert await apply(env, change(row, new)) == [True]
    assert await due(env, 5.001) == []
    assert await due(env, 5.002) == [new]
    assert await apply(env, change(new, schedule(env, "s", version=3))) == [True]
    assert await due(env, 10**6) == []


@case(DUE, needs=SCHEDULES)
async def by_moment_then_name(env: Environment) -> None:
    """To the millisecond; of the same moment by code point, however the store orders text, over all queues."""
    queues = [env.q("c"), env.q("a"), env.q("b")]
    rows = [
        schedule(env, f"{name}{at}", at / 1000, queue=queues[(at + place) % 3])
        for at in (2, 0, 1, 999, 5)
        for place, name in enumerate(dict.fromkeys(ODD))
    ]
    await add(env, *rows[20:])
    await add(env, *rows[:20])
    assert await due(env, 0.999, *queues) == in_order(rows)
    for limit in (1, 7, 16, 1000):
        expected = [row for row in in_order(rows) if row.next_at is not None and row.next_at <= env.at(0.002)]
        assert await due(env, 0.002, *queues, limit=limit) == expected
        assert await due(env, 0.002, queues[1], limit=limit) == [row for row in expected if row.queue == queues[1]]


@case(DUE, needs=SCHEDULES)
async def of_these_queues(env: Environment) -> None:
    a, b, c = (env.q(name) for name in "abc")
    rows = [schedule(env, f"{number}", 6 - number, queue=(a, b, c)[number % 3]) for number in range(6)]
    await add(env, *rows)
    assert await due(env, 9, a, c) == [rows[5], rows[3], rows[2], rows[0]]
    assert await due(env, 9, c, a, c, a) == [rows[5], rows[3], rows[2], rows[0]]
    assert await due(env, 3, b, env.q("unknown")) == [rows[4]]
    assert await due(env, 9, env.q("unknown"), a[:-1] or "x", a + "a", a.upper()) == []
    assert await env.driver.due_schedules([], env.at(9)) == SchedulePage(())
    many = [env.q(f"{number:03d}") for number in range(1000)]
    assert await due(env, 9, *many[:500], b, *many[500:]) == [rows[4], rows[1]]


@case(DUE, AHEAD, needs=SCHEDULES)
async def beside_many_of_others(env: Environment) -> None:
    """What is due in other queues, and what is never due, is passed over."""
    other = env.q("other")
    rows = [schedule(env, f"{number:03d}", number / 10, queue=other) for number in range(200)]
    mine = [schedule(env, "mine", 15), schedule(env, "next", 30)]
    await add(env, *rows, *(schedule(env, f"never{number}") for number in range(200)), *mine)
    assert await due_page(env, 20) == SchedulePage((mine[0],), None, env.at(30))
    assert await due_page(env, 10) == SchedulePage((), None, env.at(15))
    assert await due_page(env, 30, other, limit=1000) == SchedulePage(tuple(rows))


@case(AHEAD, needs=SCHEDULES)
async def what_comes_next(env: Environment) -> None:
    a, b = env.q("a"), env.q("b")
    assert await ahead(env, 0, a, b) is None
    rows = [schedule(env, f"{at}", at, queue=queue) for at, queue in ((60, a), (30.001, b), (90, b), (-5, a))]
    await add(env, *rows, schedule(env, "never", queue=a))
    for at, expected in ((-9, -5), (-5, 30.001), (30, 30.001), (30.001, 60), (89.999, 90)):
        assert await ahead(env, at, a, b) == env.at(expected)
    assert await ahead(env, 90, b, a) is None
    assert await ahead(env, 0, a) == env.at(60)
    assert await ahead(env, 60, a) is None


@case(AHEAD, needs=SCHEDULES)
async def what_comes_next_after_every_change(env: Environment) -> None:
    a, b = env.q("a"), env.q("b")
    first, last = schedule(env, "first", 10, queue=a), schedule(env, "last", 50, queue=a)
    await add(env, first, last)
    assert await ahead(env, 0, a) == env.at(10)
    old = first
    for version, (queue, at, expected) in enumerate(((a, 20, 20), (b, 5, 50), (a, 60, 50), (a, None, 50), (a, 1, 1))):
        new = schedule(env, "first", at, queue=queue, version=f"{version}!")
        assert await apply(env, change(old, new)) == [True]
        assert await ahead(env, 0, a) == env.at(expected)
        old = new
    assert await apply(env, change(old, None)) == [True]
    assert await ahead(env, 0, a) == env.at(50)
    assert await apply(env, change(last, None)) == [True]
    assert await ahead(env, 0, a, b) is None


@case(AHEAD, CURSOR, needs=SCHEDULES)
async def what_comes_next_on_every_page(env: Environment) -> None:
    """Whatever the limit, and also behind the last row that is due."""
    a, b = env.q("a"), env.q("b")
    rows = [schedule(env, f"{number}", number, queue=a) for number in range(5)]
    await add(env, *rows, schedule(env, "next", 7, queue=b), schedule(env, "later", 9, queue=a))
    for limit in (1, 2, 3, 5, 6):
        page = await due_page(env, 5, a, b, limit=limit)
        found = [*page.items]
        while page.cursor is not None and len(found) < 10:
            assert page.upcoming == env.at(7)
            page = await due_page(env, 5, a, b, limit=limit, cursor=page.cursor)
            found += page.items
        assert page.upcoming == env.at(7)
        assert found == rows
    cursor = (await due_page(env, 9, a, b, limit=6)).cursor
    assert await due_page(env, 5, a, b, cursor=cursor) == SchedulePage((), None, env.at(7))
    assert (await due_page(env, 7, a, b, cursor=cursor)).upcoming == env.at(9)


@case(CURSOR, DUE, needs=SCHEDULES)
async def due_rows_change_between_pages(env: Environment) -> None:
    """As a worker does that passes over rows and remembers the cursor: at a later moment there is more behind it."""
    other = env.q("other")
    rows = [schedule(env, f"m{number}", 10 * number) for number in range(6)]
    await add(env, *rows)
    first = await due_page(env, 30, limit=3)
    assert list(first.items) == rows[:3]
    tie_before, tie_behind = schedule(env, "m1", 20, version=2), schedule(env, "m20", 20)
    early, between = schedule(env, "early", 5), schedule(env, "between", 25)
    await add(env, early, between, tie_behind)
    moved = schedule(env, "m3", 30, queue=other, version=2)
    back = schedule(env, "m0", 27, version=2)
    assert await apply(env, change(rows[1], tie_before), change(rows[3], moved), change(rows[0], back)) == [True] * 3
    assert await due_page(env, 30, cursor=first.cursor) == SchedulePage((tie_behind, between, back), None, env.at(40))
    assert (await due_page(env, 30, env.queue, other, cursor=first.cursor)).items == (tie_behind, between, back, moved)
    assert (await due_page(env, 26, cursor=first.cursor)).items == (tie_behind, between)
    assert (await due_page(env, 45, cursor=first.cursor)).items == (tie_behind, between, back, rows[4])
    assert await apply(env, change(rows[2], None), change(between, None)) == [True] * 2
    assert (await due_page(env, 45, cursor=first.cursor, limit=2)).items == (tie_behind, back)
    assert await due_page(env, 10, cursor=first.cursor) == SchedulePage((), None, env.at(20))


@case(DUE, needs=SCHEDULES)
async def looking_changes_nothing(env: Environment) -> None:
    """Asked at a later moment, and then at an earlier one again."""
    rows = [schedule(env, f"{number}", number) for number in range(4)]
    await add(env, *rows)
    for at in (9, 1, 3, 0, 9):
        assert await due(env, at) == rows[: at + 1]
        assert await read(env) == rows


@case(BAD, needs=SCHEDULES)
async def bad_arguments(env: Environment) -> None:
    await add(env, *(schedule(env, f"{number}", 0) for number in range(3)))
    await env.add_many(2)
    by_name = (await env.driver.schedules(queue=env.queue, limit=1)).cursor
    of_due = (await due_page(env, limit=1)).cursor
    of_jobs = (await env.driver.list(now=env.now, queue=env.queue, limit=1)).cursor
    assert by_name is not None
    assert of_due is not None
    assert of_jobs is not None
    for good, foreign in ((by_name, of_due), (of_due, by_name)):
        bad: list[dict[str, Any]] = [
            *({"cursor": cursor} for cursor in ("", "x", good[:-1], good[1:], good + "A", "é", of_jobs, foreign)),
            {"cursor": good.swapcase()},
            {"limit": 0},
            {"limit": -1},
        ]
        for asked in bad:
            call = env.driver.schedules(queue=env.queue, **asked) if good is by_name else due_page(env, **asked)
            assert await raises_value_error(call), f"{asked} was taken"
    for now in (env.now.replace(tzinfo=None), "now", None):
        moment: Any = now
        assert await raises_value_error(env.driver.due_schedules([env.queue], moment))
    for cursor in (by_name, of_due):
        assert await raises_value_error(env.driver.list(now=env.now, queue=env.queue, cursor=cursor))


async def raises_value_error(call: Any) -> bool:
    try:
        await call
    except ValueError:
        return True
    return False
