"""A relay ended at every point, and beside writers, restarts and kills: jobs in the store = committed rows."""

import contextlib
import itertools
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from taskharbor import Harbor
from taskharbor.outbox import rows
from taskharbor.outbox.source import RowSource
from tests import lanes
from tests.outbox.ways import emptied
from tests.servers import postgres, redis


class Ended(BaseException):
    """The relay ends here, as if its process had been killed: what is open is closed, and nothing else happens."""


def connected(dsn: str) -> Any:
    if dsn.startswith("sqlite"):
        return sqlite3.connect(dsn.removeprefix("sqlite:///"), timeout=60, isolation_level="IMMEDIATE")
    return psycopg.connect(dsn)


@pytest.fixture
def ended_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """End a relay before or after one of the calls that it makes to either side, counted from 0."""
    left = [-1]

    def watched(method: Any) -> Any:
        async def call(*args: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == -1:
                raise Ended
            result = await method(*args, **named)
            left[0] -= 1
            if left[0] == -1:
                raise Ended
            return result

        return call

    for name in ("ask", "commit", "rollback"):
        monkeypatch.setattr(RowSource, name, watched(getattr(RowSource, name)))
    monkeypatch.setattr("taskharbor.outbox.relay.Relay._sent", watched(relay_sent()))

    def arm(number: int) -> None:
        left[0] = number

    return arm


def relay_sent() -> Any:
    from taskharbor.outbox.relay import Relay

    return Relay._sent


SOURCES = {"postgres": lambda _: emptied(), "sqlite": lambda folder: f"sqlite:///{folder}/app.db"}
STORES = {
    "memory": lambda _: "memory://",
    "redis": lambda _: redis.shared().url,
    "sqlite": lambda folder: f"sqlite:///{folder}/jobs.db",
}


@pytest.mark.parametrize(
    ("source", "store"), [("postgres", "redis"), ("postgres", "memory"), ("sqlite", "sqlite"), ("sqlite", "memory")]
)
def test_a_relay_ended_at_any_point_gives_one_job_for_each_committed_row(
    source: str, store: str, tmp_path: Path, ended_at: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BATCH_JOBS", 2)
    if store == "redis":
        redis.shared().empty()
    harbor = Harbor(STORES[store](tmp_path))

    @harbor.task(name="send")
    def send(n: int) -> None: ...

    address, expected = SOURCES[source](tmp_path), Counter[bytes]()
    with harbor, contextlib.closing(connected(address)) as mine:
        harbor.outbox.create(mine)
        mine.commit()
        for point in itertools.count():
            for n in (2 * point, 2 * point + 1):
                send.options(connection=mine).enqueue(n)
                mine.commit()
                expected[b'{"n":%d}' % n] += 1
                send.options(connection=mine).enqueue(-1)
                mine.rollback()
            ended_at(point)
            try:
                harbor.outbox.relay(address, until_empty=True)
                break  # it made fewer calls than that
            except Ended:
                ended_at(-1)
                if point % 3 == 0:  # else the next one finds what several left
                    harbor.outbox.relay(address, until_empty=True)
        assert Counter(info.job.payload for info in harbor.jobs()) == expected
        assert point > 8


WRITERS = lanes.figure(test=4, full=64)
CALLS = lanes.figure(test=3, full=40)  # of each writer; every second is rolled back
KILLS = lanes.figure(test=2, full=25)

RELAY = "import sys; from taskharbor import Harbor; Harbor(sys.argv[1]).outbox.relay(sys.argv[2])"


@contextlib.contextmanager
def relays(number: int, store: str, address: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    running = [_relay(store, address) for _ in range(number)]
    try:
        yield running
    finally:
        for each in running:
            each.kill()
            each.wait()


def _relay(store: str, address: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RELAY, store, address], stderr=subprocess.DEVNULL)


@pytest.mark.left_to("full")
@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_writers_relays_that_are_killed_and_servers_that_restart(store: str, tmp_path: Path) -> None:
    """PostgreSQL → Redis with both servers killed on the way, and PostgreSQL → SQLite."""
    seed = random.Random(0)
    server = postgres.Server(fsync="on")
    target = redis.Server(aof=True, fsync="always") if store == "redis" else None
    dsn = f"sqlite:///{tmp_path}/jobs.db" if target is None else target.url
    address = server.address(server.database())
    harbor = Harbor(dsn)

    @harbor.task(name="send")
    def send(n: int) -> None: ...

    committed, lock = Counter[bytes](), threading.Lock()

    def write(writer: int) -> None:
        n = 0
        while n < CALLS:
            number = writer * CALLS + n
            try:
                with contextlib.closing(psycopg.connect(address)) as mine:
                    send.options(connection=mine).enqueue(number)
                    mine.execute("insert into mine values (%s)", (number,))
                    if n % 2:
                        mine.rollback()
                    else:
                        mine.commit()
                n += 1
            except psycopg.OperationalError:  # the server restarts: whether it committed is seen in `mine`
                with lock:
                    n += 1

    with contextlib.closing(psycopg.connect(address)) as mine:
        mine.execute("create table mine (n bigint)")
        harbor.outbox.create(mine)
        mine.commit()
    with relays(2, dsn, address) as running:
        writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        for each in writers:
            each.start()
        for kill in range(KILLS):
            victim = seed.randrange(2)
            running[victim].send_signal(signal.SIGKILL)
            running[victim].wait()
            running[victim] = _relay(dsn, address)
            if kill == KILLS // 3:
                server.kill()
                server.start()
            if kill == 2 * KILLS // 3 and target is not None:
                target.kill()
                target.start()
        for each in writers:
            each.join(300)
    with harbor:
        harbor.outbox.relay(address, until_empty=True)
        with contextlib.closing(psycopg.connect(address)) as mine:
            committed.update(b'{"n":%d}' % n for (n,) in mine.execute("select n from mine").fetchall())
            assert not mine.execute("select 1 from taskharbor_outbox").fetchall()
        assert Counter(info.job.payload for info in harbor.jobs()) == committed
    server.stop()
    if target is not None:
        target.stop()


@pytest.mark.left_to("full")
def test_a_backlog_of_many_rows_leaves_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    number = lanes.figure(test=2_000, full=200_000)
    sizes, address = [], emptied()
    original = rows.take

    async def take(*args: Any) -> Any:
        found = await original(*args)
        sizes.append(len(found))
        return found

    monkeypatch.setattr("taskharbor.outbox.relay.take", take)
    redis.shared().empty()
    harbor = Harbor(redis.shared().url)

    @harbor.task(name="send")
    def send(n: int) -> None: ...

    with harbor, contextlib.closing(psycopg.connect(address)) as mine:
        harbor.outbox.create(mine)
        for n in range(number):
            send.options(connection=mine).enqueue(n)
        mine.commit()
        assert harbor.outbox.relay(address, until_empty=True) == number
        assert not mine.execute("select 1 from taskharbor_outbox").fetchall()
        assert harbor.jobs(type="send", state="ready").count(number + 1).n == number
    assert max(sizes) == rows.BATCH_ROWS
