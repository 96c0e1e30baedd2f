"""The audit: entries by moment and id, replaced by those with the same id, and kept for 90 days.

The entries of a case lie on a day of their own, and have ids of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import MS, Environment
from taskharbor.conformance.parts import AUDIT
from taskharbor.drivers import AuditPage, InvalidJob, JobNotFound, StoredAudit
from taskharbor.drivers.base import MAX_SCANNED_AUDIT
from taskharbor.model.audit import AUDIT_KEPT_FOR, MAX_AUDIT_BYTES

STORED = "A stored entry comes back as it was given, byte for byte."
REPLACED = "An entry replaces the one with the same id, also one with another `at`, and also one of the same call."
ORDER = "`audit` returns pages of entries in the order of `at`, then of `id` by code point, the last one first."
FILTERS = "Of the audit `since` and `until` (exclusive) are compared with `at`, and `by` with the whole name."
CURSOR = "A cursor of the audit stays valid when entries are stored, replaced or forgotten."
BAD = (
    "A damaged cursor or one of another listing, a limit below 1, and a moment without a time zone is a `ValueError` "
    "in `audit`, too."
)
SCANNED = (
    "A call of `audit` looks at no more than 10,000 entries: then its page is short or empty and has a cursor. Without "
    "a cursor, the last entry was reached."
)
FORGOTTEN = (
    "`put_audit` forgets entries whose `at` lies more than 90 days before `now`: the oldest first, at most 1,000 in a "
    "call."
)
INVALID = "An entry that is out of bounds is `InvalidJob`, and nothing of the call is stored."
TOGETHER = "Entries that several callers store at the same time are all kept."
BESIDE = "The audit makes neither a queue nor a job, and neither delete nor prune changes it."
LIST_CURSOR = "A cursor stays valid when jobs are inserted, and a damaged one is a `ValueError`."
DAY = 86_400.0


def entry(env: Environment, name: str, at: float = 0, by: str = "ada", data: bytes = b"{}") -> StoredAudit:
    """An entry with a name of the case's own, of a person with such a name."""
    return StoredAudit(id=env.name(name), at=env.at(at), by=env.name(by), data=data)


async def put(env: Environment, *entries: StoredAudit, now: datetime | None = None) -> None:
    await env.driver.put_audit(entries, now or env.now)


async def page(env: Environment, **asked: Any) -> AuditPage:
    """A page of the case's day, unless other bounds are given."""
    return await env.driver.audit(**{"since": env.at(-DAY / 2), "until": env.at(DAY / 2), **asked})


async def pages(env: Environment, limit: int = 1000, **asked: Any) -> list[tuple[StoredAudit, ...]]:
    """All pages."""
    found: list[tuple[StoredAudit, ...]] = []
    cursor = None
    while True:
        got = await page(env, limit=limit, cursor=cursor, **asked)
        assert len(got.items) <= limit
        found.append(got.items)
        cursor = got.cursor
        if cursor is None:
            return found
        assert len(found) < 1000, "the pages never end"


async def read(env: Environment, limit: int = 1000, **asked: Any) -> list[StoredAudit]:
    """The entries of all pages."""
    return [each for items in await pages(env, limit, **asked) for each in items]


def in_order(entries: Sequence[StoredAudit]) -> list[StoredAudit]:
    return sorted(entries, key=lambda each: (each.at, each.id), reverse=True)


@case(STORED, needs=AUDIT)
async def comes_back(env: Environment) -> None:
    assert await page(env) == AuditPage(())
    await put(env)
    one = entry(env, "one", 1.001, data=bytes(range(256)) * 4)
    two = entry(env, "two", 2, by="system", data=b"")
    await put(env, one, two)
    assert await page(env) == AuditPage((two, one))
    other = await env.sibling()
    assert (await other.audit(since=env.now, until=env.at(60))).items == (two, one)


@case(STORED, "No name collides with another, whatever characters it is made of.", needs=AUDIT)
async def text_of_any_kind(env: Environment) -> None:
    """Names that look alike, or that a store could mistake for its own, are different names."""
    names = [
        "é",
        "e\u0301",
        "E\u0301",
        "ß",
        "ss",
        "😀",
        "مرحبا",
        "a b",
        "a:b",
        "a/b",
        "a\\b",
        "%",
        "_",
        "*",
        "'",
        '"',
        "­a",
        "a",
    ]
    entries = [entry(env, name, by=name, data=name.encode()) for name in names]
    await put(env, *entries)
    assert await read(env, 4) == in_order(entries)
    for each in entries:
        assert await read(env, by=each.by) == [each]


@case(STORED, INVALID, needs=AUDIT)
async def at_the_bound(env: Environment) -> None:
    full = StoredAudit(id=env.long_name(255), at=env.now, by=env.long_name(255, "😀"), data=b"\xff" * MAX_AUDIT_BYTES)
    await put(env, full)
    assert await read(env, by=full.by) == [full]
    many = [entry(env, f"{number:03d}", number, data=b"\x00" * MAX_AUDIT_BYTES) for number in range(200)]
    await put(env, *many)
    assert await read(env) == in_order([full, *many])


@case(REPLACED, needs=AUDIT)
async def replaced(env: Environment) -> None:
    """As core does: once before the action and once after it."""
    begun, beside = entry(env, "one", 1, data=b"begun"), entry(env, "two", 1)
    await put(env, begun, beside)
    ended = replace(begun, data=b"ended")
    await put(env, ended)
    assert await read(env) == [beside, ended]
    await put(env, ended)
    assert await read(env, 1) == [beside, ended]


@case(REPLACED, ORDER, needs=AUDIT)
async def replaced_by_one_of_another_moment(env: Environment) -> None:
    """It has one place, the new one, whichever way it moves."""
    one, two, three = (entry(env, f"{number}", number) for number in (1, 2, 3))
    await put(env, one, two, three)
    for at in (9, 0, 2.5, 2, 3):
        one = replace(one, at=env.at(at), data=b"%d" % at)
        await put(env, one)
        assert await read(env) == in_order([one, two, three])
        assert await read(env, 1) == in_order([one, two, three])
        assert await read(env, since=one.at, until=one.at + MS, by=one.by) == in_order(
            [each for each in (one, two, three) if each.at == one.at]
        )


@case(REPLACED, FILTERS, needs=AUDIT)
async def replaced_by_one_of_another_person(env: Environment) -> None:
    one = entry(env, "one", by="ada")
    await put(env, one)
    other = replace(one, by=env.name("bob"))
    await put(env, other)
    assert await read(env, by=env.name("ada")) == []
    assert await read(env, by=env.name("bob")) == await read(env) == [other]


@case(REPLACED, needs=AUDIT)
async def twice_in_a_call(env: Environment) -> None:
    """The last one counts."""
    entries = [entry(env, "one", at, by, b"%d" % at) for at, by in ((1, "a"), (5, "b"), (3, "c"))]
    two = entry(env, "two", 4)
    await put(env, entries[0], two, *entries[1:])
    assert await read(env) == [two, entries[2]]
    assert await read(env, by=env.name("b")) == []


@case(ORDER, needs=AUDIT)
async def by_moment_then_id(env: Environment) -> None:
    """To the millisecond; and by code point, however the store orders text."""
    names = ["b", "B", "a", "Z", "é", "e", "z", "10", "9", "ﬀ", "😀", "_", "~", "-", "a b", "ab"]
    entries = [entry(env, f"{name}{at}", at / 1000) for at in (2, 0, 1, 5) for name in names]
    await put(env, *entries[20:])
    await put(env, *entries[:20])
    for limit in (1, 3, 16, 1000):
        assert await read(env, limit) == in_order(entries)


@case(ORDER, needs=AUDIT)
async def page_by_page(env: Environment) -> None:
    """No cursor after the last page; and a limit may be as large as one likes."""
    entries = [entry(env, f"{number}", number // 3) for number in range(7)]
    await put(env, *entries)
    for limit, sizes in ((1, [1] * 7), (2, [2, 2, 2, 1]), (3, [3, 3, 1]), (7, [7]), (8, [7]), (10**12, [7])):
        found = await pages(env, limit)
        assert [each for items in found for each in items] == in_order(entries)
        assert [len(items) for items in found if items] == sizes
    assert (await page(env, limit=7)).cursor is None
    assert [len(items) for items in await pages(env, 3, by=env.name("ada")) if items] == [3, 3, 1]


@case(FILTERS, needs=AUDIT)
async def since_until_and_by(env: Environment) -> None:
    entries = [entry(env, f"{number}", number, by="ada" if number % 2 else "bob") for number in range(6)]
    await put(env, *entries)
    ada, bob = env.name("ada"), env.name("bob")
    assert await read(env, since=env.at(2), until=env.at(4)) == [entries[3], entries[2]]
    assert await read(env, since=env.at(2) + MS, until=env.at(4) + MS) == [entries[4], entries[3]]
    assert await read(env, since=env.at(3), until=env.at(3)) == await read(env, since=env.at(4), until=env.at(2)) == []
    assert await read(env, since=env.at(6)) == await read(env, until=env.now) == []
    assert await read(env, by=ada) == entries[5::-2]
    assert await read(env, 1, by=bob, since=env.at(1)) == [entries[4], entries[2]]
    assert await read(env, 2, by=bob, since=env.at(1), until=env.at(4)) == [entries[2]]
    assert set(entries) <= set((await env.driver.audit(until=env.at(60), limit=1000)).items)
    assert await read(env, since=env.at(-1000), until=env.at(1000)) == in_order(entries)


@case(FILTERS, "A text that is not a valid name is treated like an unknown name, and spoils nothing else in the call.",
      needs=AUDIT)  # fmt: skip
async def nobody_of_that_name(env: Environment) -> None:
    await put(env, entry(env, "one"), entry(env, "two", by="ad%"))
    whole = env.name("ada")
    near = [whole[:-1], whole + "a", whole.upper() + "A", env.name("ad_"), env.name("*"), env.name("Ada"), " " + whole]
    for unknown in (*near, env.name("nobody"), "", "a\x00b", "\ud800", "{", "x" * 300, "%"):
        assert await read(env, by=unknown) == []
        assert (await page(env, by=unknown)).cursor is None


@case(CURSOR, needs=AUDIT)
async def entries_are_stored_meanwhile(env: Environment) -> None:
    """What is stored before the cursor is not seen, what is stored behind it is, nothing is seen twice."""
    entries = [entry(env, f"m{number}", 10 * number) for number in range(6)]
    await put(env, *entries)
    first = await page(env, limit=3)
    assert list(first.items) == entries[:2:-1]
    tie_before, tie_behind = entry(env, "m35", 30), entry(env, "m", 30)
    newer, between, older = entry(env, "newer", 90), entry(env, "between", 15), entry(env, "older", -5)
    await put(env, newer, tie_before, tie_behind, between, older)
    rest = await page(env, cursor=first.cursor)
    assert list(rest.items) == [tie_behind, entries[2], between, entries[1], entries[0], older]
    again = await page(env, limit=2, cursor=first.cursor)
    assert list(again.items) == [tie_behind, entries[2]]


@case(CURSOR, needs=AUDIT)
async def entries_are_replaced_meanwhile(env: Environment) -> None:
    """Also the one that the cursor stands on."""
    entries = [entry(env, f"{number}", number) for number in range(6)]
    await put(env, *entries)
    first = await page(env, limit=3)
    ended = replace(entries[1], data=b"ended")
    await put(env, replace(entries[3], at=env.at(50)), ended, replace(entries[0], at=env.at(60)))
    rest = await page(env, cursor=first.cursor, limit=10)
    assert rest == AuditPage((entries[2], ended))


@case(CURSOR, FORGOTTEN, needs=AUDIT)
async def entries_are_forgotten_meanwhile(env: Environment) -> None:
    entries = [entry(env, f"{number}", number) for number in range(6)]
    await put(env, *entries)
    first = await page(env, limit=2)
    await put(env, now=env.at(2) + AUDIT_KEPT_FOR)
    assert await page(env, cursor=first.cursor, limit=10) == AuditPage((entries[3], entries[2]))
    await put(env, now=env.at(5) + AUDIT_KEPT_FOR)
    assert await page(env, cursor=first.cursor, limit=10) == AuditPage(())


@case(BAD, LIST_CURSOR, needs=AUDIT)
async def bad_arguments(env: Environment) -> None:
    await put(env, entry(env, "one"), entry(env, "two"))
    await env.add_many(2)
    good = (await page(env, limit=1)).cursor
    of_jobs = (await env.driver.list(now=env.now, queue=env.queue, limit=1)).cursor
    assert good is not None
    assert of_jobs is not None
    bad: list[dict[str, Any]] = [
        *({"cursor": cursor} for cursor in ("", "x", good[:-1], good[1:], good + "A", good.swapcase(), "é", of_jobs)),
        {"limit": 0},
        {"limit": -1},
        {"since": env.now.replace(tzinfo=None)},
        {"until": env.now.replace(tzinfo=None)},
        {"until": "yesterday"},
    ]
    for asked in bad:
        try:
            await page(env, **asked)
        except ValueError:
            continue
        raise AssertionError(f"audit took {asked}")
    try:
        await env.driver.list(now=env.now, queue=env.queue, cursor=good)
    except ValueError:
        return
    raise AssertionError("list took a cursor of the audit")


@case(SCANNED, needs=AUDIT)
async def more_than_one_call_looks_at(env: Environment) -> None:
    """Matches are rarer than the scan limit: some pages are empty, but every match is found."""
    number = MAX_SCANNED_AUDIT + 30
    rare = (0, 5, number - 1)
    entries = [
        entry(env, f"{place:05d}", place // 7 / 1000, by="rare" if place in rare else "usual")
        for place in range(number)
    ]
    for start in range(0, number, 1000):
        await put(env, *entries[start : start + 1000])
    expected = [entries[place] for place in rare[::-1]]
    for limit in (1, 2, 1000):
        assert await read(env, limit, by=env.name("rare")) == expected
    assert await read(env, by=env.name("nobody")) == []
    assert await read(env, since=entries[5].at, until=entries[7].at) == entries[6::-1]
    assert await read(env, since=env.at(60)) == []
    assert await read(env, 4000) == entries[::-1]


@case(FORGOTTEN, needs=AUDIT)
async def after_90_days(env: Environment) -> None:
    """To the millisecond: what is exactly 90 days old is there."""
    first, second, third = (entry(env, f"{number}", number / 1000) for number in range(3))
    await put(env, first, second, third)
    now = first.at + AUDIT_KEPT_FOR
    await put(env, now=now)
    assert await read(env) == [third, second, first]
    await put(env, entry(env, "new", 9), now=now + MS)
    assert await read(env) == [entry(env, "new", 9), third, second]
    assert await read(env, by=first.by, until=second.at) == []
    old = entry(env, "old", -1)
    await put(env, old, first, now=now + 2 * MS)
    assert await read(env) == [entry(env, "new", 9), third]
    await put(env, now=now + timedelta(days=1))
    assert await read(env) == []


@case(FORGOTTEN, REPLACED, needs=AUDIT)
async def by_the_newest_moment(env: Environment) -> None:
    """An entry that was replaced is as old as the one in its place."""
    one, two = entry(env, "one", 0), entry(env, "two", 10)
    await put(env, one, two)
    one, two = replace(one, at=env.at(10)), replace(two, at=env.at(0))
    await put(env, one, two)
    await put(env, now=env.at(5) + AUDIT_KEPT_FOR)
    assert await read(env) == await read(env, by=one.by) == [one]
    await put(env, two)  # a call whose `now` is behind another's
    assert await read(env) == [one, two]


@case(FORGOTTEN, needs=AUDIT)
async def many_old_ones(env: Environment) -> None:
    """What one call does not get to is forgotten by those that follow."""
    entries = [entry(env, f"{number:04d}", number // 10) for number in range(2500)]
    for start in range(0, 2500, 500):
        await put(env, *entries[start : start + 500])
    late = env.at(DAY) + AUDIT_KEPT_FOR
    await put(env, now=late)
    left = await read(env)
    assert 1500 <= len(left) < 2500
    assert left == in_order(entries)[: len(left)]
    for _ in range(4):
        await put(env, now=late)
    assert await read(env) == []


@case(INVALID, needs=AUDIT)
async def out_of_bounds(env: Environment) -> None:
    known = entry(env, "known", -1)
    await put(env, known)
    good = entry(env, "good")
    bad: list[Any] = [
        None,
        {"id": "a", "at": env.now, "by": "ada"},
        *(replace(good, id=id) for id in ("", "a\x00b", "a\nb", "{", "\ud800", "x" * 256, "é" * 128, 7, None)),
        *(replace(good, by=by) for by in ("", "a\x00b", "a\nb", "}", "\udfff", "x" * 256, None)),
        replace(good, at=env.now.replace(tzinfo=None)),
        replace(good, at=datetime(1969, 12, 31, tzinfo=UTC)),
        replace(good, at="now"),
        replace(good, at=None),
        *(replace(good, data=data) for data in ("text", None, bytearray(b"1"), b"x" * (MAX_AUDIT_BYTES + 1))),
    ]
    for wrong in bad:
        try:
            await put(env, good, wrong, entry(env, "last"), now=env.now + AUDIT_KEPT_FOR)
        except InvalidJob:
            continue
        raise AssertionError(f"{wrong!r} was stored")
    assert await read(env) == [known]


@case(TOGETHER, needs=AUDIT)
async def stored_by_many_at_once(env: Environment) -> None:
    others = await env.siblings(4)
    batches = [
        [entry(env, f"{who}-{turn}-{n}", n, by=f"w{who}") for n in range(3)] for who in range(4) for turn in range(5)
    ]
    await asyncio.gather(*(others[number % 4].put_audit(batch, env.now) for number, batch in enumerate(batches)))
    assert await read(env, 7) == in_order([each for batch in batches for each in batch])


@case(TOGETHER, REPLACED, needs=AUDIT)
async def the_same_entry_by_many_at_once(env: Environment) -> None:
    """One of them is there, once and as a whole, whichever came last."""
    others = await env.siblings(4)
    for turn in range(5):
        same = [entry(env, f"same{turn}", 1 + who, by=f"w{who}", data=b"%d" % who) for who in range(4)]
        also = [entry(env, f"also{turn}", 9 - who, by=f"w{who}", data=b"%d" % who) for who in range(4)]
        calls = [
            driver.put_audit(pair if who % 2 else pair[::-1], env.now)
            for who, (driver, pair) in enumerate(zip(others, map(list, zip(same, also, strict=True)), strict=True))
        ]
        await asyncio.gather(*calls)
        found = [each for each in await read(env, 3) if each.id in (same[0].id, also[0].id)]
        assert sorted(each.id for each in found) == sorted([same[0].id, also[0].id])
        assert set(found) <= {*same, *also}
        for each in found:
            assert each in await read(env, by=each.by)


@case(BESIDE, needs=AUDIT)
async def beside_the_jobs(env: Environment) -> None:
    """Also where an entry has the id of a job, and its person the name of a queue."""
    entries = [StoredAudit(id=env.name(name), at=env.now, by=env.queue, data=b"1") for name in ("000001", "x")]
    await put(env, *entries)
    assert env.queue not in await env.driver.queues()
    assert env.queue not in await env.driver.counts(env.now)
    assert await env.all_ids() == await env.all_ids(queue=None, type="work") == []
    for each in entries:
        try:
            await env.info(each.id)
        except JobNotFound:
            continue
        raise AssertionError("an entry was found as a job")
    job = await env.finished(id=env.name("000001"))
    other = await env.finished()
    assert await env.counts() == {"done": 2}
    assert await env.driver.delete([job.id, entries[1].id]) != [None, None]
    assert await env.driver.prune(env.at(1), 100) == 1
    assert await env.gone(other)
    assert await read(env, by=env.queue) == in_order(entries)
    assert env.queue not in await env.driver.queues()
