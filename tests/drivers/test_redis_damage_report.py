"""Damage: another program writes over a record, a field, or a key of a queue, between any two calls. No call fails,
every healthy job is done exactly once, and nothing stands in no lane.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from taskharbor.drivers import Ack, Driver, Fail, JobRecord, Outcome, Reserved, Retry
from taskharbor.drivers.redis import RedisDriver
from taskharbor.model.times import from_ms
from taskharbor.omniq import OmniQ
from tests import lanes
from tests.drivers.redis_stores import emptied

pytestmark = pytest.mark.lane("redis")

START = 1_800_000_000_000
SECOND = timedelta(seconds=1)
Q = "default"
GARBAGE: list[str | bytes] = [b"caf\xe9", "9" * 40, "\x00", ""]
GARBAGE += ["nan", "-nan", "inf", "-inf", "1e400", "1e300", "-7", "2.5", "0x10", "many"]
# Without `gid` and `th_f`: they say whose slot a held job has, and nothing else does.
FIELDS = ["state", "payload", "id", "attempt", "max_attempts", "timeout_ms", "backoff_ms", "created_ms", "updated_ms"]
FIELDS += ["due_ms", "lease_token", "lock_until_ms", "last_error_ms", "th_type", "th_sto", "th_at", "th_seq", "th_pri"]
FIELDS += ["th_x", "th_max", "th_fail", "th_att", "th_off", "th_lost", "th_xt", "th_xu", "th_st", "th_key", "th_fin"]
FIELDS += ["th_worker"]
KINDS = {
    "string": lambda client, key: client.set(key, "what is this"),
    "list": lambda client, key: client.rpush(key, "x", "y"),
    "zset": lambda client, key: client.zadd(key, {"x": 1}),
    "hash": lambda client, key: client.hset(key, "x", "y"),
    "set": lambda client, key: client.sadd(key, "x"),
}
# Keys that hold no healthy job's place: what is lost with them can be made again, or is nobody's.
BOOKS = ["stats", "idx:wait", "idx:active", "idx:delayed", "idx:failed", "lane:rr", "th:seq", "th:damaged", "completed"]
BOOKS += ["th:count"]
BOOKS += [
    "th:cancelled",
    "th:blocked",
    "th:watched",
    "th:sweep",
    "th:held",
    "g:g:inflight",
    "g:g:limit",
    "has_groups",
    "g:new:wait",
]
PLACES = ["wait", "delayed", "active", "failed", "groups:ready", "th:prio", "th:done", "th:ids", "th:keys", "g:g:wait"]
PLACES += ["th:ids:"]
LANES_OF: dict[str, tuple[str, ...]] = {
    "wait": ("wait",),
    "delayed": ("delayed",),
    "active": ("active",),
    "failed": ("failed",),
}
LANES_OF |= {"completed": ("th:done", "completed"), "cancelled": ("th:cancelled",), "blocked": ("th:blocked",)}

index = st.integers(0, 63)
a_field = st.tuples(st.just("field"), index, st.sampled_from(FIELDS), st.sampled_from(GARBAGE))
a_gap = st.tuples(st.just("gap"), index, st.sampled_from(FIELDS))
a_kind = st.tuples(st.just("kind"), index, st.sampled_from(list(KINDS)))
a_bare = st.tuples(st.just("bare"), index)
a_book = st.tuples(st.just("book"), st.sampled_from(BOOKS), st.sampled_from(list(KINDS)))
a_number = st.tuples(st.just("number"), st.sampled_from(["th:seq", "th:count", "g:g:inflight", "g:g:limit", "lane:rr"]))
damages = st.one_of(a_field, a_field, a_gap, a_kind, a_kind, a_bare, a_book, a_number)
calls = st.one_of(
    st.tuples(st.just("reserve"), st.integers(1, 9)),
    st.tuples(st.just("enqueue"), st.integers(1, 3), st.sampled_from(["plain", "key", "group", "priority", "later"])),
    st.tuples(st.just("settle"), st.sampled_from(["ack", "retry", "later", "fail"]), st.integers(1, 4)),
    st.tuples(st.just("extend")),
    st.tuples(st.just("release")),
    st.tuples(st.just("look")),
    st.tuples(st.just("promote")),
    st.tuples(st.just("pass"), st.sampled_from([1, 400, 5_000])),
)
histories = st.lists(st.one_of(damages, calls, calls), min_size=5, max_size=40)


class Scene:
    """A driver, the server behind its back, and what of each job is known to be healthy."""

    def __init__(self, driver: Driver, client: Any, omniq: OmniQ) -> None:
        self.driver, self.client, self.omniq = driver, client, omniq
        self.ms = START
        self.made = 0
        self.healthy: set[str] = set()
        self.broken: set[str] = set()
        self.done: list[str] = []
        self.dead: set[str] = set()
        self.held: list[Reserved] = []

    async def enqueue(self, count: int, kind: str, healthy: bool = True) -> None:
        fields = {
            "plain": {},
            "group": {"group": "g"},
            "priority": {"priority": 3},
            "later": {"run_at": from_ms(self.ms + 300)},
        }
        for _ in range(count):
            self.made += 1
            name = f"{'h' if healthy else 'd'}{self.made * 7919 % 9973:04}"
            extra = {"idempotency_key": name} if kind == "key" else fields[kind]
            await self.driver.enqueue([JobRecord(id=name, type="t", **extra)], from_ms(self.ms))  # type: ignore[arg-type]  # wrong on purpose
            (self.healthy if healthy else self.broken).add(name)

    async def reserve(self, limit: int) -> None:
        self.held += await self.driver.reserve([Q], from_ms(self.ms), SECOND, limit, "w")

    async def settle(self, kind: str, count: int) -> None:
        mine, self.held = self.held[:count], self.held[count:]
        outcomes: dict[str, Callable[[Reserved], Outcome]] = {
            "ack": lambda held: Ack(held.lease, b"r"),
            "retry": lambda held: Retry(held.lease, None, held.job.attempts + 1),
            "later": lambda held: Retry(held.lease, from_ms(self.ms + 300), held.job.attempts),
            "fail": lambda held: Fail(held.lease, "no", held.job.attempts + 1, from_ms(self.ms)),
        }
        answers = await self.driver.settle([outcomes[kind](held) for held in mine], from_ms(self.ms))
        for held, answer in zip(mine, answers, strict=True):
            if answer is None and kind == "ack":
                self.done.append(held.job.id)
            if answer is None and kind == "fail":
                self.dead.add(held.job.id)

    async def extend(self) -> None:
        await self.driver.extend([held.lease for held in self.held], from_ms(self.ms), SECOND)

    async def release(self) -> None:
        await self.driver.release("w", from_ms(self.ms))

    async def look(self) -> None:
        now = from_ms(self.ms)
        await self.driver.counts(now)
        page = await self.driver.list(now=now, queue=Q, limit=1000)
        listed = {info.job.id for info in page.items}
        assert self.healthy <= listed

    async def promote(self) -> None:
        self.omniq.promote_delayed(Q, now_ms_override=self.ms)

    def damage(self, what: str, *rest: object) -> None:
        """The damage of a number is that it is none."""
        client = self.client
        if what == "book":
            name, kind = rest
            client.delete(f"{{{Q}}}:{name}")
            KINDS[str(kind)](client, f"{{{Q}}}:{name}")
            return
        if what == "number":
            client.set(f"{{{Q}}}:{rest[0]}", "many")
            return
        victims = sorted(self.broken)
        key = f"{{{Q}}}:job:{victims[int(str(rest[0])) % len(victims)]}"
        if what == "kind" or client.type(key) != b"hash":
            client.delete(key)
            KINDS[str(rest[1]) if what == "kind" else "string"](client, key)
        elif what == "field":
            client.hset(key, str(rest[1]), rest[2])
        elif what == "gap":
            client.hdel(key, str(rest[1]))
        else:
            client.delete(key)
            client.hset(key, "nobody", "knows")

    async def drain(self) -> None:
        """Take and ack whatever is left, far beyond every lease and time."""
        for _ in range(60):
            self.ms += 10_000
            self.held = []
            await self.reserve(50)
            await self.settle("ack", 50)


def places(client: Any) -> dict[str, set[str]]:
    """Which ids stand where, by lane; lists of groups are `wait`, too."""
    found: dict[str, set[str]] = {}
    for raw in client.scan_iter(f"{{{Q}}}:*", count=1000):
        name = raw.decode().partition("}:")[2]
        lane = "wait" if name == "th:prio" or (name.startswith("g:") and name.endswith(":wait")) else name
        if name.startswith(("job:", "th:damaged")):
            continue
        kind = client.type(raw)
        ids: Iterator[bytes] = iter(())
        if kind == b"list":
            ids = iter(client.lrange(raw, 0, -1))
        elif kind == b"zset":
            ids = (member[31:] if name == "th:prio" else member for member in client.zrange(raw, 0, -1))
        elif kind == b"set":
            ids = iter(client.smembers(raw))
        found.setdefault(lane, set()).update(id.decode(errors="replace") for id in ids)
    return found


def standing_nowhere(client: Any, ids: set[str]) -> list[str]:
    where = places(client)
    lost = []
    for id in sorted(ids):
        key = f"{{{Q}}}:job:{id}"
        state = (client.hget(key, "state") or b"").decode(errors="replace") if client.type(key) == b"hash" else "?"
        if not any(id in where.get(lane, ()) for lane in LANES_OF.get(state, ())):
            lost.append(f"{id} ({state})")
    return lost


async def played(story: Callable[[Scene], Awaitable[None]]) -> None:
    url = emptied()
    driver = RedisDriver(f"{url}?checks=0")
    await driver.open()
    with redis.Redis.from_url(url) as client, OmniQ(url) as omniq:
        try:
            await story(Scene(driver, client, omniq))
        finally:
            await driver.close()


async def ends_well(scene: Scene) -> None:
    assert standing_nowhere(scene.client, scene.healthy) == []
    await scene.drain()
    assert standing_nowhere(scene.client, scene.healthy) == []
    done = [id for id in scene.done if id in scene.healthy]
    assert sorted(done) == sorted(scene.healthy - scene.dead)


PHASES = (Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if lanes.shrinks() else []))
ALL_NAN = [("field", victim, "th_pri", "nan") for victim in range(10)]


@settings(max_examples=lanes.figure(test=20, full=300), phases=PHASES)
@given(histories)
@example([*ALL_NAN, ("pass", 400), ("reserve", 9)])
def test_damage_between_any_two_calls_costs_the_damaged_job_alone(history: list[tuple]) -> None:
    async def story(scene: Scene) -> None:
        for kind in ("plain", "group", "priority", "later", "key"):
            await scene.enqueue(2, kind)
            await scene.enqueue(2, kind, healthy=False)
        await scene.reserve(4)
        for what, *rest in history:
            if what == "pass":
                scene.ms += rest[0]
            elif what in {"field", "gap", "kind", "bare", "book", "number"}:
                scene.damage(what, *rest)
            else:
                await getattr(scene, what)(*rest)
        await ends_well(scene)

    asyncio.run(played(story))


@pytest.mark.parametrize("name", [*PLACES, *BOOKS])
def test_a_key_that_holds_something_else_is_moved_out_of_the_way(name: str) -> None:
    """Of a queue that is empty still: then nothing is lost with it, and every kind of job goes its way."""

    async def story(scene: Scene) -> None:
        scene.damage("book", name, "string")
        for kind in ("plain", "group", "priority", "later", "key"):
            await scene.enqueue(2, kind)
            scene.damage("book", "th:blocked", "hash")
        await scene.look()
        for kind in ("ack", "retry", "later", "fail", "ack"):
            await scene.reserve(2)
            await scene.extend()
            await scene.settle(kind, 2)
        scene.ms += 5_000
        await ends_well(scene)
        assert len(scene.dead) == 2

    asyncio.run(played(story))
