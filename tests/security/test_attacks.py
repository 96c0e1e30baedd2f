"""Attacks on what is stored: nothing in a queue is imported, unpickled or evaluated, and no name is another."""

import asyncio
import pickle
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor, InvalidJob, JobDead, JobRequest
from taskharbor.drivers import JobRecord, open_driver
from taskharbor.events import Event, JobUnknown
from tests.flow.stores import STORES

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "boom")


@pytest.fixture
def fuse(tmp_path: Path) -> Iterator[Path]:
    """A file that no attack may write."""
    path = tmp_path / "boom"
    yield path
    assert not path.exists(), "data from the store was executed"


def yaml_bomb(path: Path) -> bytes:
    return f"!!python/object/apply:pathlib.Path.touch [{path}]".encode()


# Deserialising


@pytest.mark.parametrize("kind", ["pickle", "yaml"])
def test_a_payload_that_is_not_json_is_never_read_as_something_else(fuse: Path, kind: str) -> None:
    payload = pickle.dumps(Bomb(fuse)) if kind == "pickle" else yaml_bomb(fuse)
    harbor = Harbor("memory://")
    ran: list[object] = []

    @harbor.task(name="t", max_attempts=1)
    def task(**given: object) -> None:
        ran.append(given)

    async def act() -> str:
        driver = await harbor._store.awaited.driver(5)
        metadata = {"codec": "pickle", "content-type": "application/x-python-serialize"}  # names in data mean nothing
        await driver.enqueue([JobRecord(id="a", type="t", payload=payload, metadata=metadata)], harbor.clock.now())
        await harbor.worker().arun(until_empty=True)
        info = await driver.inspect("a", harbor.clock.now())
        assert info.state == "dlq"
        return info.job.last_error

    assert "boom" not in asyncio.run(act())
    assert ran == []


def test_an_error_is_never_rebuilt_by_its_name(fuse: Path) -> None:
    """What a dead job says about its error is text: no class is looked up, no module imported."""
    sys.modules.pop("antigravity", None)
    harbor = Harbor("memory://")

    @harbor.task(name="t", max_attempts=1)
    def task() -> None:
        raise type("antigravity.Bomb", (Exception,), {"__module__": "antigravity"})("boom")

    handle = task.enqueue()
    harbor.worker().run(until_empty=True)
    with pytest.raises(JobDead):
        handle.result(1)
    assert "antigravity" in handle.info().job.error_class
    assert "antigravity" not in sys.modules


# Handlers


@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "os:system", "subprocess.run", "__import__", "../x:app"]
)
def test_a_type_finds_a_handler_in_the_registry_only(fuse: Path, name: str) -> None:
    unknown: list[str] = []

    def notice(event: Event) -> None:
        if isinstance(event, JobUnknown):
            unknown.append(event.job.type)

    harbor = Harbor("memory://", observers=[notice])
    handle = harbor.client.enqueue(JobRequest(type=name, payload={"command": f"touch {fuse}"}))
    harbor.worker().run(until_empty=True)
    assert unknown == [name]
    assert handle.info().job.attempts == 0


# Names

ODD = ["a'b", 'a"b', "a;drop table jobs;--", "%s %(x)s", "$1", "a\\b", "\u202eabc", "x" * 60]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_names_are_bound_and_no_two_are_the_same(tmp_path: Path, store: str) -> None:
    """Queue `a:b` with key `c` is not queue `a` with key `b:c`; quotes, marks and braces are characters like others."""
    dsn = STORES[store](tmp_path)
    assert dsn is not None
    driver = open_driver(dsn)
    await driver.open()
    pairs = [("a:b", "c"), ("a", "b:c"), *((name, name) for name in ODD)]
    jobs = [JobRecord(id=f"j{n}", type="t", queue=queue, idempotency_key=key) for n, (queue, key) in enumerate(pairs)]
    found = await driver.enqueue(jobs, NOW)
    assert [each.id for each in found] == [job.id for job in jobs]
    assert set(await driver.queues()) == {queue for queue, _ in pairs}
    for queue, _ in pairs:
        [held] = await driver.reserve([queue], NOW, LEASE, 5, "w")
        assert held.job.queue == queue
    await driver.close()


# Limits


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": b"x" * (64 << 20)},
        {"priority": 2**63},
        {"max_attempts": -1},
        {"queue": "a\x00b"},
        {"queue": ""},
        {"group": "{a}"},
        {"type": "t" * 10_000},
        {"timeout": timedelta(seconds=-1)},
        {"metadata": {"k": "v" * (1 << 22)}},
    ],
    ids=lambda fields: f"{next(iter(fields))}",
)
async def test_what_is_out_of_bounds_is_refused_before_anything_is_stored(fields: dict[str, Any]) -> None:
    driver = open_driver("memory://")
    await driver.open()
    good = JobRecord(id="good", type="t")
    bad = JobRecord(**{"id": "bad", "type": "t", **fields})
    with pytest.raises((InvalidJob, TypeError, ValueError)):
        await driver.enqueue([good, bad], NOW)
    assert await driver.counts(NOW) == {}
    await driver.close()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 10.0**30])
def test_delays_that_mean_nothing_are_refused(value: float) -> None:
    harbor = Harbor("memory://")

    @harbor.task
    def task() -> None: ...

    with pytest.raises((ValueError, OverflowError)):
        task.options(delay=value).enqueue()


def test_json_of_any_depth_is_refused_before_anything_is_stored() -> None:
    harbor = Harbor("memory://")
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    @harbor.task
    def task(value: Any) -> None: ...

    with pytest.raises(ValueError, match="deep"):
        task.enqueue(deep)
    assert list(harbor.jobs()) == []


# Tokens


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_tokens_of_leases_have_128_bits_and_no_order(tmp_path: Path, store: str) -> None:
    dsn = STORES[store](tmp_path)
    assert dsn is not None

    async def act() -> list[str]:
        driver = open_driver(dsn)
        await driver.open()
        await driver.enqueue([JobRecord(id=f"j{n:04}", type="t") for n in range(500)], NOW)
        held = await driver.reserve(["default"], NOW, LEASE, 500, "w")
        await driver.close()
        return [each.lease.token for each in held]

    tokens = asyncio.run(act())
    assert len(set(tokens)) == 500
    assert all(len(token) >= 32 and int(token, 16) >= 0 for token in tokens)
    # Bits that are the same in all of them would be no secret.
    ones = [sum(int(token, 16) >> bit & 1 for token in tokens) for bit in range(128)]
    assert all(100 < count < 400 for count in ones), "some bits are not random"
