"""Whatever another program writes into one record, the others go on: they are granted at once, and lose nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskharbor.drivers import Ack, JobRecord, State
from taskharbor.drivers.redis import scripts
from tests import lanes
from tests.drivers.redis_stores import live, on_store
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("redis")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LEASE = timedelta(seconds=30)
AFTER = NOW + timedelta(minutes=5)  # everything is due, every lease is over
FIELDS = str.split("""
    payload th_type state attempt th_sto th_f gid due_ms created_ms th_x th_max id max_attempts last_error last_error_ms
    th_fail th_att th_off th_lost th_pri th_key th_flow th_deps th_xt th_xu th_st th_at th_seq lock_until_ms lease_token
    th_worker th_heir th_reason th_fin th_res updated_ms th_dep timeout_ms backoff_ms th_began th_ran th_la th_trail
    th_err th_fp th_note th_ed th_keep
""")
VALUES = [b"caf\xe9", b"\xff\xfe\x00", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", "emoji 🎉".encode(), b"\x00", b"\x1b[31m"]
VALUES += [*bytes.split(b"nan -nan inf -inf 1e400 -1 0x10 1.5 99999999999999999999 9999999999999 many"), b" 7 ", b""]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "in a group": {"group": "g", "group_limit": 100},
    "with a priority": {"priority": 3},
    "in a flow": {"flow_id": "f"},
    "with a key": {"idempotency_key": "k"},
    "with metadata": {"metadata": {"a": "b"}, "timeout": timedelta(seconds=5)},
}
STANDING = ("ready", "scheduled", "expired")


def job(id: str, **fields) -> JobRecord:
    return JobRecord(**{"id": id, "type": "work", "queue": "q", "created_at": NOW, **fields})


def publish(client, id: bytes, gid: bytes = b"", due: int = 0) -> None:
    """What a foreign client does."""
    fields = {b"id": id, b"payload": b"{}", b"state": b"delayed" if due else b"wait", b"attempt": 0, b"max_attempts": 3}
    fields |= {b"timeout_ms": 60000, b"backoff_ms": 5000, b"created_ms": NOW_MS, b"updated_ms": NOW_MS}
    client.hset(b"{q}:job:" + id, mapping={**fields, **({b"gid": gid} if gid else {})})
    if due:
        client.hset(b"{q}:job:" + id, "due_ms", due)
        client.zadd("{q}:delayed", {id: due})
    elif gid:
        client.rpush(b"{q}:g:" + gid + b":wait", id)
        client.zadd("{q}:groups:ready", {gid: NOW_MS})
    else:
        client.rpush("{q}:wait", id)


async def stand(driver, standing: str, jobs: list[JobRecord]) -> None:
    if standing == "scheduled":
        jobs = [JobRecord(**{**as_fields(one), "run_at": NOW + timedelta(seconds=1)}) for one in jobs]
    await driver.enqueue(jobs, NOW)
    if standing == "expired":
        assert len(await driver.reserve(["q"], NOW, LEASE, 100, "w")) == len(jobs)


def as_fields(one: JobRecord) -> dict:
    return {name: getattr(one, name) for name in one.__struct_fields__}


@pytest.mark.left_to("full", except_for=lanes.Chosen("expired"))
@pytest.mark.parametrize("standing", STANDING)
@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_of_damaged_records_go_on(kind, standing):
    """One job for each field, in which that field is damaged, among sound ones."""

    @settings(
        max_examples=lanes.figure(test=8, full=50),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.sampled_from(VALUES), min_size=len(FIELDS), max_size=len(FIELDS)), st.randoms())
    def check(values, random):
        damages = dict(zip(FIELDS, values, strict=True))
        live(lambda driver, client: damaged(driver, client, kind, standing, damages, random))

    check()


async def damaged(driver, client, kind, standing, damages, random):
    neighbours = [f"sound{number}" for number in range(10)]
    ids = [*neighbours, *damages]
    random.shuffle(ids)
    fields = dict.fromkeys(ids, KINDS[kind])
    if kind == "with a key":
        fields = {id: {"idempotency_key": id} for id in ids}
    await stand(driver, standing, [job(id, **fields[id]) for id in ids])
    for name, value in damages.items():
        client.hset(f"{{q}}:job:{name}", name, value)
    await proceed(driver, neighbours, standing)
    shown = {one.job.id: one for one in (await driver.list(now=AFTER, limit=1000)).items}
    assert set(shown) == set(ids)
    for name in damages:
        assert shown[name] == await driver.inspect(name, AFTER)
        assert shown[name].state in (State.INFLIGHT, State.DLQ) or name in MOVES, (name, damages[name])


MOVES = ("state", "due_ms", "th_xu", "th_xt", "lock_until_ms")  # one that says another state or time may stand there


async def proceed(driver, neighbours, standing):
    """All neighbours are granted at once, and have lost nothing by it."""
    taken = {one.job.id: one for one in await driver.reserve(["q"], AFTER, LEASE, 100, "w")}
    assert set(taken) >= set(neighbours)
    lost = 1 if standing == "expired" else 0
    assert [taken[id].job.lost for id in neighbours] == [lost] * len(neighbours)
    assert await driver.settle([Ack(taken[id].lease) for id in neighbours], AFTER) == [None] * len(neighbours)
    assert (await driver.counts(AFTER))["q"]["done"] == len(neighbours)


@pytest.mark.parametrize("standing", STANDING)
@pytest.mark.parametrize("bad", ["hash", "string", "list", "missing"])
@on_store
async def test_neighbours_of_a_key_of_another_type_go_on(driver, client, bad, standing):
    neighbours = [f"n{number}" for number in range(6)]
    await stand(driver, standing, [job(id) for id in [*neighbours[:3], "bad", *neighbours[3:]]])
    client.delete("{q}:job:bad")
    if bad == "hash":
        client.hset("{q}:job:bad", "nobody", "knows")
    elif bad == "string":
        client.set("{q}:job:bad", "text")
    elif bad == "list":
        client.rpush("{q}:job:bad", "text")
    await proceed(driver, neighbours, standing)


@pytest.mark.parametrize("gid", [b"", b"gr\xfcn"])
@pytest.mark.parametrize("due", [0, NOW_MS + 1000])
@on_store
async def test_a_foreign_id_that_is_not_text_is_set_aside(driver, client, gid, due):
    publish(client, b"caf\xe9-1", gid, due)
    for number in range(10):
        publish(client, b"n%d" % number, gid, due)
    publish(client, "café-2".encode(), gid, due)
    if gid:
        client.set(b"{q}:g:" + gid + b":limit", 50)
    neighbours = [*(f"n{number}" for number in range(10)), "café-2"]
    first = await driver.reserve(["q"], AFTER, LEASE, 50, "w")
    assert sorted(one.job.id for one in first) == sorted(neighbours)
    assert {one.job.lost for one in first} == {0}
    assert {one.job.group for one in first} == {"gr\ufffdn" if gid else None}
    assert await driver.settle([Ack(one.lease) for one in first], AFTER) == [None] * 11
    assert await driver.counts(AFTER) == {"q": {"done": 11, "dlq": 1}}
    (shown,) = (await driver.list(now=AFTER, state="dlq")).items
    assert (shown.job.id, shown.job.reason) == ("caf\ufffd-1", "damaged record: id is not UTF-8")


@pytest.mark.parametrize("kind", servers.KINDS)
def test_the_servers_know_what_text_is(kind):
    """The same judgement as Python's, for every first byte and for what is cut short, overlong or a surrogate."""
    samples = {
        bytes([first, *rest])
        for first in range(256)
        for rest in ((), (0x41,), (0x80,), (0xBF, 0xBF), (0x90, 0x80, 0x80))
    }
    samples |= {text.encode() for text in ("é", "€", "🎉", "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "a\x00é")}
    samples |= {
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf0\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\xc3\xa9\x82\xac",
    }
    everything = sorted(samples)
    source = dict(scripts.fragments())["28_utf8.lua"]
    judge = "for index, text in ipairs(ARGV) do said[index] = is_text(text) and 1 or 0 end"
    script = f"{source}\nlocal said = {{}}\n{judge}\nreturn said"
    with servers.shared(kind).client() as client:
        said = client.eval(script, 1, "{q}:meta", *everything)
    assert said == [int(decodes(sample)) for sample in everything]


def decodes(sample: bytes) -> bool:
    try:
        sample.decode()
    except UnicodeDecodeError:
        return False
    return True
