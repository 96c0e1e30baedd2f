"""The audit on Redis: damage, a full server, long walks, and what it leaves alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.drivers import BackendUnavailable, JobRecord
from taskharbor.drivers.base import MAX_SCANNED_AUDIT
from taskharbor.drivers.redis import audit
from taskharbor.model.audit import AUDIT_KEPT_FOR, MAX_AUDIT_BYTES, StoredAudit
from taskharbor.model.times import to_us
from tests.drivers.redis_stores import live, on_store
from tests.drivers.test_redis_full import full

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SERVERS = ["redis7", "cluster"]
ORDER, ENTRIES = "{th:audit}:order", "{th:audit}:entries"


def entry(id: str, seconds: float = 0, by: str = "anna", data: bytes = b"{}") -> StoredAudit:
    return StoredAudit(id=id, at=NOW + seconds * SECOND, by=by, data=data)


def place(one: StoredAudit) -> bytes:
    return f"{to_us(one.at):018}{one.id}\n{one.by}".encode()


async def everything(driver: Any, **wanted: Any) -> list[StoredAudit]:
    """All pages."""
    found: list[StoredAudit] = []
    page = await driver.audit(**wanted)
    while True:
        found += page.items
        if page.cursor is None:
            return found
        page = await driver.audit(**wanted, cursor=page.cursor)


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_entries_outlive_damage(driver, client, server):
    entries = [entry(f"e{number}", -number) for number in range(8)]
    await driver.put_audit(entries, NOW)
    for id, value in {"e0": "x", "e1": b"\xff" * 40, "e2": "0" * 18 + "anna\n{}", "e3": ""}.items():
        client.hset(ENTRIES, id, value)
    client.hdel(ENTRIES, "e4")
    client.zrem(ORDER, place(entries[5]))
    now = f"{to_us(NOW):018}".encode()
    strange = [
        b"",
        b"12ab",
        b"\xff",
        b"9" * 18 + b"a\nanna",
        now + b"\xff\nanna",
        now + b"a\n\xff",
        now,
        b"what is it",
    ]
    client.zadd(ORDER, dict.fromkeys(strange, 0))
    for member in strange:
        client.hset(ENTRIES, member[18:].partition(b"\n")[0], member[:18] + member.partition(b"\n")[2] + b"\n{}")
    for limit in (1, 2, 100):
        assert await everything(driver, limit=limit) == entries[6:]
        assert await everything(driver, limit=limit, by="anna") == entries[6:]
    await driver.put_audit(entries, NOW)
    assert await everything(driver) == entries
    await driver.put_audit([], NOW + AUDIT_KEPT_FOR + SECOND)
    assert await everything(driver) == []
    assert not client.hexists(ENTRIES, "e0")


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("key", [ORDER, ENTRIES])
@on_store
async def test_a_key_that_was_written_over_begins_anew(driver, client, server, key):
    await driver.put_audit([entry("a")], NOW)
    client.set(key, "damaged")
    assert await everything(driver) == []
    await driver.put_audit([entry("b")], NOW)
    assert await everything(driver) == [entry("b")]
    client.set(key, "damaged")
    await driver.put_audit([], NOW)


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_an_entry_replaces_the_one_with_its_id(driver, client, server):
    """Also sent again after a lost reply, with another moment, and with another name."""
    await driver.put_audit([entry("a", 1), entry("b", 2)], NOW)
    for new in (entry("a", 1), entry("a", 1, data=b"done"), entry("a", 3), entry("a", 0), entry("a", 0, by="bert")):
        for _ in range(2):
            await driver.put_audit([entry("a", 9), new], NOW)
        assert {one.id: one for one in await everything(driver)} == {"a": new, "b": entry("b", 2)}
        assert (client.zcard(ORDER), client.hlen(ENTRIES)) == (2, 2)
    assert await everything(driver, by="anna") == [entry("b", 2)]


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_a_full_server_stores_entries_because_operators_make_room_there(driver, client, server):
    await driver.enqueue([JobRecord(id="old", type="t", queue="q"), JobRecord(id="late", type="t", queue="q")], NOW)
    await driver.put_audit([entry("a"), entry("b", 1)], NOW)
    with full(server):
        await driver.put_audit([entry("a", 5), entry("c")], NOW)
        assert await everything(driver) == [entry("a", 5), entry("b", 1), entry("c")]
        await driver.put_audit([], NOW + AUDIT_KEPT_FOR + SECOND)
        assert await everything(driver) == [entry("a", 5), entry("b", 1)]
        harbor = Harbor(driver)
        await harbor.job("old").adelete(by="ada")
        await harbor.apause("q", by="ada")
        with pytest.raises(BackendUnavailable, match="Redis is full"):
            await driver.enqueue([JobRecord(id="new", type="t", queue="q")], NOW)
    assert await driver.counts(NOW) == {"q": {"ready": 1}}


@pytest.mark.parametrize("server", SERVERS)
@on_store
async def test_the_audit_makes_no_queue_known(driver, client, server):
    await driver.put_audit([entry("a")], NOW)
    assert await driver.queues() == []
    assert await driver.counts(NOW) == {}
    await driver.enqueue([JobRecord(id="a", type="t", queue="q")], NOW)
    assert await driver.delete(["a"]) == [None]
    assert await driver.queues() == []
    assert await everything(driver) == [entry("a")]
    keys = {key for key in client.scan_iter(count=1000) if key.startswith(b"{th:audit")}
    assert keys == {ORDER.encode(), ENTRIES.encode()}


@on_store
async def test_what_is_too_old_goes_in_slices(driver, client):
    entries = [entry(f"e{number:04}", number % 7) for number in range(1300)]
    await driver.put_audit(entries, NOW)
    assert await everything(driver) == sorted(entries, key=lambda one: (one.at, one.id), reverse=True)
    late = NOW + AUDIT_KEPT_FOR
    await driver.put_audit([], late)
    assert client.zcard(ORDER) == 1300
    client.config_resetstat()
    await driver.put_audit([entry("new", 100), entry("old", -1)], late + 10 * SECOND)
    assert client.info("commandstats")["cmdstat_zrangebylex"]["calls"] == 5
    left = sorted(entries, key=lambda one: (one.at, one.id), reverse=True)[:301]
    assert await everything(driver) == [entry("new", 100), *left]
    await driver.put_audit([], late + 10 * SECOND)
    assert (client.zcard(ORDER), client.hlen(ENTRIES)) == (1, 1)


@on_store
async def test_no_script_reads_more_than_some_megabytes(driver, client):
    entries = [entry(f"e{number:03}", -number, data=b"x" * MAX_AUDIT_BYTES) for number in range(200)]
    await driver.put_audit(entries, NOW)
    client.config_resetstat()
    assert list((await driver.audit(limit=200)).items) == entries
    stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 4
    assert stats["cmdstat_hget"]["calls"] == 200


@pytest.mark.parametrize("wanted", [{}, {"by": "nobody"}])
def test_a_call_looks_at_a_bounded_number_of_places(wanted, monkeypatch):
    monkeypatch.setattr(audit, "MAX_SCANNED_AUDIT", 50)
    monkeypatch.setattr(audit, "LOOKED_SLICE", 20)

    async def story(driver, client):
        entries = [entry(f"e{number:03}", -number) for number in range(120)]
        await driver.put_audit(entries, NOW)
        page = await driver.audit(limit=100, **wanted)
        assert len(page.items) == (0 if wanted else 50)
        assert page.cursor is not None
        assert await everything(driver, limit=100, **wanted) == ([] if wanted else entries)
        assert await everything(driver, limit=3, **wanted) == ([] if wanted else entries)
        assert (await driver.audit(limit=120 if not wanted else 1, since=NOW - 49 * SECOND, **wanted)).cursor is None

    live(story)


@on_store
async def test_a_page_of_nothing_but_damage_ends(driver, client):
    """A cursor could not pass it."""
    await driver.put_audit([entry("a")], NOW)
    client.zadd(ORDER, {f"99{number:05}": 0 for number in range(MAX_SCANNED_AUDIT + 1)})
    page = await driver.audit()
    assert (page.items, page.cursor) == ((), None)
