"""The index of a queue's ids: pages of a bounded size, in the order of ids, whatever comes, goes, or is taken away."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.redis import scripts
from taskharbor.drivers.redis.sweeping import SWEPT
from taskharbor.model.ids import new_id
from taskharbor.model.times import to_ms
from tests import lanes
from tests.drivers.redis_stores import emptied, live, on_store
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROBE = """
local what, ids, count = unpack(ARGS)
if what == 'add' then add_ids('q', ids) end
if what == 'append' then add_ids('q', ids, page_of('q', ids[1])) end
if what == 'remove' then for _, id in ipairs(ids) do remove_id('q', id) end end
if what == 'has' then return has_id('q', ids[1]) and 1 or 0 end
if what == 'after' then
  local found, last, lost = ids_after('q', ids[1], count)
  return {found, last or false, lost}
end
if what == 'before' then
  local found, last, lost = ids_before('q', ids[1], count)
  return {found, last or false, lost}
end
return 0
"""
SMALL = (b"listpack", b"ziplist")
LARGEST = int(
    re.findall(r"^local PAGE = (\d+)", scripts.source(scripts.PACKAGE, "lib/16_id_pages.lua"), re.MULTILINE)[0]
)

numbers = st.integers(0, 2000)
spans = st.tuples(numbers, st.integers(1, 200), st.sampled_from([1, 1, 3, 7]))
steps = st.one_of(
    st.tuples(st.just("append"), spans),
    st.tuples(st.just("add"), spans),
    st.tuples(st.just("remove"), spans),
    st.tuples(st.just("text"), st.lists(st.text(max_size=8).map(lambda text: "x" + text), max_size=5)),
)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if lanes.shrinks() else []))


def ids_of(span: tuple[int, int, int]) -> list[str]:
    first, count, step = span
    return [f"{number:05}" for number in range(first, first + count * step, step)]


class Index:
    """The pages of queue `q`, by the functions of the scripts."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.script = client.register_script(scripts.compose("probe", PROBE).text)

    def run(self, what: str, ids: Sequence[str], count: int = 0) -> Any:
        return self.script(keys=["{q}:meta"], args=[scripts.pack((what, list(ids), count))])

    def pages(self) -> list[list[bytes]]:
        """The ids of each page; checked for what must hold."""
        client = self.client
        bounds = client.zrange("{q}:th:ids", 0, -1)
        pages = [client.zrange(b"{q}:th:ids:" + bound, 0, -1) for bound in bounds]
        assert set(client.scan_iter("{q}:th:ids:*", count=1000)) == {b"{q}:th:ids:" + bound for bound in bounds}
        for number, (bound, ids) in enumerate(zip(bounds, pages, strict=True)):
            assert 0 < len(ids) <= LARGEST
            assert client.object("encoding", b"{q}:th:ids:" + bound) in SMALL
            assert (bound == b"") == (number == 0)
            assert bound <= ids[0]
            assert number + 1 == len(bounds) or ids[-1] < bounds[number + 1]
        return pages

    def walk(self, count: int, way: str = "after") -> list[bytes]:
        found: list[bytes] = []
        last: bytes | None = b""
        while last is not None:
            ids, last, lost = self.script(keys=["{q}:meta"], args=[scripts.pack((way, [scripts.binary(last)], count))])
            assert lost == []
            assert not found or not ids or (ids[0] > found[-1]) == (way == "after")
            found += ids
        return found


def check(index: Index, wanted: set[str]) -> None:
    sorted_ids = sorted(id.encode() for id in wanted)
    pages = index.pages()
    assert [id for page in pages for id in page] == sorted_ids
    assert index.client.get("{q}:th:count") == (str(len(wanted)).encode() if wanted else None)
    assert index.walk(LARGEST // 2 + 1) == sorted_ids
    assert index.walk(LARGEST // 2 + 1, "before") == sorted_ids[::-1]


def play(history: Sequence[tuple[str, Any]], kind: servers.Kind) -> None:
    """Go through a history, look at all that must hold after each step, and take out what is left."""
    emptied(kind)
    wanted: set[str] = set()
    with servers.shared(kind).client() as client:
        index = Index(client)
        for what, given in history:
            ids = given if what == "text" else ids_of(given)
            if what == "remove":
                wanted -= set(ids)
                index.run(what, ids)
            elif ids:
                wanted |= set(ids)
                index.run("add" if what == "text" else what, ids)
            check(index, wanted)
        for id in [*sorted(wanted)[:3], "nobody"]:
            assert index.run("has", [id]) == (id in wanted)
        index.run("remove", sorted(wanted))
        assert client.dbsize() == 0


HISTORIES: dict[str, list[tuple[str, Any]]] = {
    "between others": [("append", (0, 200, 3)), ("append", (1, 60, 1)), ("append", (9, 200, 1))],
    "before all": [("append", (1000, 64, 1)), ("add", (0, 200, 1)), ("remove", (0, 190, 1)), ("append", (1, 1, 1))],
    "twice": [("append", (0, 64, 1)), ("add", (5, 1, 1)), ("append", (5, 1, 1)), ("append", (0, 65, 1))],
    "behind others": [("text", ["zebra"]), ("append", (0, 64, 1)), ("append", (64, 10, 1)), ("append", (74, 200, 1))],
    "falling behind a full page": [
        ("append", (0, 64, 1)),
        *(("append", (number, 1, 1)) for number in range(200, 160, -1)),
        ("append", (150, 3, 1)),
        ("append", (100, 40, 1)),
    ],
    "over two pages": [("append", (0, 128, 3)), ("remove", (150, 20, 3)), ("append", (160, 14, 3))],
    "few are left": [("append", (0, 200, 1)), ("remove", (0, 60, 1)), ("remove", (70, 62, 1)), ("append", (62, 9, 1))],
    "from the middle": [
        ("append", (0, 200, 1)),
        ("remove", (70, 64, 1)),
        ("remove", (0, 64, 1)),
        ("append", (0, 9, 1)),
    ],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history(name):
    play(HISTORIES[name], "redis7")


@settings(max_examples=lanes.figure(test=20, full=300), phases=PHASES)
@given(st.lists(steps, min_size=1, max_size=25), st.sampled_from(["redis7", "redis6"]))
def test_pages_hold_what_a_sorted_set_would(history, kind):
    play(history, kind)


def test_ids_that_grow_fill_their_pages():
    """Whatever the size of a call, and behind ids that are greater than all of them."""
    emptied()
    with servers.shared("redis7").client() as client:
        index = Index(client)
        index.run("append", ["zebra"])
        made = 0
        for count in (1, 1, 100, 3, 500, 1, 64, 7, 1, 1) * 4:
            index.run("append", [f"{made + number:06}" for number in range(count)])
            made += count
        pages = index.pages()
        assert sum(map(len, pages)) == made + 1
        assert len(pages) <= made / LARGEST + 3


@pytest.mark.parametrize("count", [1, 10], ids=["one by one", "ten at a time"])
def test_ids_that_fall_share_pages_behind_a_full_one(count):
    emptied()
    with servers.shared("redis7").client() as client:
        index = Index(client)
        index.run("append", [f"a{number:06}" for number in range(LARGEST)])
        for first in range(2000, 0, -count):
            index.run("append", [f"b{first + number:06}" for number in range(count)])
        assert len(index.pages()) <= 2 + 2000 / (LARGEST / 2 - count)


def test_what_is_left_of_many_pages_is_kept_in_few():
    emptied()
    with servers.shared("redis7").client() as client:
        index = Index(client)
        ids = [f"{number:06}" for number in range(100 * LARGEST)]
        index.run("append", ids)
        index.run("remove", [id for number, id in enumerate(ids) if number % LARGEST != 7])
        assert sum(map(len, index.pages())) == 100
        assert len(index.pages()) < 10


# The driver on a damaged index


def job(number: int) -> JobRecord:
    return JobRecord(id=f"j{number:05}", type="t", queue="q", created_at=NOW)


async def listed(driver) -> list[str]:
    """The ids in their order; the other way round they are the same."""
    upwards, downwards = [await walked(driver, order) for order in ("id", "-id")]
    assert upwards == downwards[::-1]
    return upwards


async def walked(driver, order: str) -> list[str]:
    found, cursor = [], None
    while True:
        page = await driver.list(now=NOW, queue="q", limit=100, cursor=cursor, order=order)
        found += [info.job.id for info in page.items]
        if page.cursor is None:
            return found
        cursor = page.cursor


async def swept(driver) -> None:
    """A whole round of the sweep."""
    for _ in range(20):
        await driver.opened.sweeper.sweep("q", int(NOW.timestamp() * 1000))


def swapped(client, page) -> None:
    client.rename(page, "kept")
    client.rename("{q}:th:ids:j00256", page)
    client.rename("kept", "{q}:th:ids:j00256")


DAMAGES = {
    "a page is gone": lambda client, page: client.delete(page),
    "a page is in place of another": lambda client, page: client.rename(page, "{q}:th:ids:j00256"),
    "another is in place of the page": lambda client, page: client.rename("{q}:th:ids:j00256", page),
    "a page is there twice": lambda client, page: client.copy(page, "{q}:th:ids:j00256", replace=True),
    "two pages changed places": swapped,
    "the directory leads to a page that does not exist": lambda client, page: client.zadd("{q}:th:ids", {"j00005x": 0}),
    "the directory has lost its first bound": lambda client, page: client.zrem("{q}:th:ids", ""),
    "a page holds something else": lambda client, page: (client.delete(page), client.set(page, "what is this")),
    "the directory is gone": lambda client, page: client.delete("{q}:th:ids"),
    "the directory holds something else": lambda client, page: client.set("{q}:th:ids", "what is this"),
}


@on_store
async def test_a_busy_queue_is_counted_again_by_the_first_sweep(driver, client):
    """Ids come and go between any two slices of a sweep."""
    await driver.enqueue([job(number) for number in range(1000)], NOW)
    client.delete("{q}:th:ids:j00256")
    await driver.enqueue([JobRecord(id="j00256x", type="t", queue="q", created_at=NOW)], NOW)
    assert client.get("{q}:th:count") == b"?"
    for number in range(1000, 1003):
        await driver.enqueue([job(number)], NOW)
        await driver.opened.sweeper.sweep("q", to_ms(NOW))
        assert int(client.get("{q}:th:count")) == len(Index(client).walk(50))
    client.set("{q}:th:count", 7)
    await swept(driver)
    assert int(client.get("{q}:th:count")) == len(Index(client).walk(50))


@pytest.mark.left_to("full", except_for=lanes.Chosen("another page"))
@pytest.mark.parametrize("first", [True, False], ids=["the first page", "another page"])
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_index_hides_no_waiting_job_and_stops_no_call(how, first):
    """What it has lost is found in the lanes, at once, by every list; the sweep goes on with what is left."""
    jobs = [job(number) for number in range(500)]
    ids = [each.id for each in jobs]

    async def story(driver, client):
        await driver.enqueue(jobs, NOW)
        assert await listed(driver) == ids
        pages = sorted(client.scan_iter("{q}:th:ids:*", count=1000))
        DAMAGES[how](client, pages[0] if first else pages[2])
        assert await listed(driver) == ids
        assert await driver.delete([ids.pop(1 if first else 2 * LARGEST + 1)]) == [None]
        more = [job(number) for number in range(500, 600)]
        await driver.enqueue(more, NOW)
        again = [JobRecord(id=f"{each.id}x", type="t", queue="q", created_at=NOW) for each in jobs[:10]]
        await driver.enqueue(again, NOW)
        wanted = sorted([*ids, *(each.id for each in more), *(each.id for each in again)])
        assert await listed(driver) == wanted
        if "directory" not in how:
            client.delete(sorted(client.scan_iter("{q}:th:ids:*", count=1000))[4])
        await swept(driver)
        assert await listed(driver) == wanted
        if "directory" not in how:
            Index(client).pages()
        for start in range(0, len(wanted), 100):
            assert await driver.delete(wanted[start : start + 100]) == [None] * len(wanted[start : start + 100])
        for _ in range(2):  # a sweep first takes ids out that stand in a page that is not theirs
            client.delete(SWEPT)
            await driver.prune(NOW, 10)
        assert await listed(driver) == []
        left = [*client.scan_iter("{q}:th:ids*", count=1000), *client.scan_iter("{th:ids:0}*", count=1000)]
        if "directory" in how:  # pages that nothing leads to stay
            left = [key for key in left if client.type(key) != b"zset"]
        assert left == []
        assert not client.exists("{q}:th:count")

    live(story)


@on_store
async def test_a_queue_without_its_directory_is_pruned_all_the_same(driver, client):
    await driver.enqueue([job(1)], NOW)
    (held,) = await driver.reserve(["q"], NOW, timedelta(seconds=30), 1, "w")
    await driver.settle([Ack(held.lease)], NOW)
    client.delete("{q}:th:ids")
    assert await driver.prune(NOW - timedelta(days=1), 10) == 0
    assert client.zrange("{th}:queues", 0, -1) == [b"q"]
    assert await driver.prune(NOW + timedelta(days=1), 10) == 1
    assert client.zrange("{th}:queues", 0, -1) == []


@pytest.mark.parametrize("number", [150, 700], ids=["one script", "several"])
@pytest.mark.parametrize("wrong", ["7", "many", None])
@on_store
async def test_the_sweep_counts_again(driver, client, number, wrong):
    await driver.enqueue([job(each) for each in range(number)], NOW)
    assert client.get("{q}:th:count") == str(number).encode()
    if wrong is None:
        client.delete("{q}:th:count")
    else:
        client.set("{q}:th:count", wrong)
    assert len(await listed(driver)) == number
    client.hset("{q}:th:sweep", "id", "j00100")  # a round that another client began and did not count
    await swept(driver)
    assert client.get("{q}:th:count") == str(number).encode()


@on_store
async def test_a_number_that_changed_while_it_was_counted_is_not_taken(driver, client):
    await driver.enqueue([job(number) for number in range(500)], NOW)
    await driver.opened.sweeper.sweep("q", 0)
    await driver.delete(["j00000"])
    await driver.enqueue([job(1000)], NOW)
    for _ in range(2):
        await driver.opened.sweeper.sweep("q", 0)
    assert not client.exists("{q}:th:sweep")
    assert client.get("{q}:th:count") == b"500"


@on_store
async def test_a_store_that_is_emptied_between_calls_begins_anew(driver, client):
    for start in range(0, 1000, 100):
        jobs = [job(number) for number in range(start, start + 100)]
        await driver.enqueue(jobs, NOW)
        assert await listed(driver) == [each.id for each in jobs]
        client.flushdb()
        assert await listed(driver) == []


@pytest.mark.parametrize("kind", ["redis7", "redis6", "valkey"])
@on_store
async def test_every_key_of_an_index_is_small(driver, client, kind):
    """So that Redis keeps it as one block of bytes."""
    moment = NOW
    for size in (1, 1, 1, 500, 1000, 64, 1):
        moment += timedelta(milliseconds=1)
        jobs = [JobRecord(id=new_id(to_ms(moment)), type="t", queue="q") for _ in range(size)]
        await driver.enqueue(jobs, moment)
    keys = [*client.scan_iter("{q}:th:ids:*", count=1000), *client.scan_iter("{th:ids:0}:*", count=1000)]
    assert len(keys) > 20
    assert {client.object("encoding", key) for key in keys} <= set(SMALL)


@pytest.mark.parametrize("other", ["string", "list"])
@on_store
async def test_notes_that_hold_something_else_are_thrown_away(driver, client, other):
    await driver.enqueue([job(1)], NOW)
    (notes,) = client.scan_iter("{th:ids:0}:*", count=1000)
    client.delete(notes)
    if other == "string":
        client.set(notes, "what is this")
    else:
        client.rpush(notes, "x")
    assert (await driver.inspect("j00001", NOW)).state == "ready"  # looked for in every queue
    await driver.enqueue([JobRecord(id="k00001", type="t", queue="q", created_at=NOW)], NOW)
    assert client.type(notes) == b"hash"
    assert (await driver.inspect("k00001", NOW)).state == "ready"
