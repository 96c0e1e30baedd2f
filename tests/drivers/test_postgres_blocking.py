"""Blocking calls on PostgreSQL: bounded connections, deadlines, interrupts, lost connections, forks."""

import functools
import os
import signal
import socket
import threading
import time
from datetime import UTC, datetime

import psycopg
import pytest

from taskharbor.drivers import (
    BackendUnavailable,
    JobRecord,
    ScheduleChange,
    Seen,
    StoredAudit,
    StoredSchedule,
    WrongState,
)
from taskharbor.drivers.postgres import PostgresDriver, pool
from taskharbor.store.access import run_on_this_thread
from tests.drivers.interrupts import check_interrupted_calls
from tests.drivers.postgres_stores import emptied
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_S = 60.0
WAITS_FOR_LOCK = "select 1 from pg_locks where not granted"


def job(id: str) -> JobRecord:
    return JobRecord(id=id, type="t")


@pytest.fixture
def own():
    server = postgres.Server()
    try:
        yield server
    finally:
        server.stop()


class Blocking:
    """The blocking calls of a store, opened."""

    def __init__(self, dsn: str) -> None:
        self.calls = PostgresDriver(dsn).blocking()
        self.call("open")

    def call(self, name: str, *arguments: object, within: float = PATIENCE_S, **named: object):
        driver = self.calls.until(time.monotonic() + within)
        return run_on_this_thread(functools.partial(getattr(driver, name), *arguments, **named))


def connections(address: str) -> int:
    with psycopg.connect(address) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def until(address: str, query: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        ends = time.monotonic() + PATIENCE_S
        while not connection.execute(query.encode()).fetchall():
            assert time.monotonic() < ends


@pytest.mark.parametrize("pooler", [False, True])
def test_every_call_of_a_client_ends_without_suspending(pooler):
    server = postgres.shared()
    name = server.database()
    direct = Blocking(server.address(name))
    store = Blocking(f"{server.address(name, server.pgbouncer())}?pgbouncer=1") if pooler else direct
    now = store.call("server_time")
    assert [each.existed for each in store.call("enqueue", [job("a"), JobRecord(id="b", type="t", flow_id="f")], now)]
    assert store.call("enqueue", [job("a")], now)[0].existed
    assert store.call("inspect", "a", now).state == "ready"
    assert store.call("results", ["a"]) == {}  # it is not done
    assert store.call("cancel", ["a"], now) == [None]
    assert store.call("requeue", ["a"], now) == [None]
    assert [each.job.id for each in store.call("list", now=now).items] == ["a", "b"]
    assert store.call("flow", "f", now).nodes[0].job.id == "b"
    assert store.call("cancel_flow", "f", now) == 1
    assert store.call("workers", now) == []
    seen = [Seen.of(store.call("inspect", "b", now))]
    assert store.call("requeue", ["b"], now, seen=seen) == [None]
    for refused in (*store.call("cancel", ["b"], now, seen=seen), *store.call("delete", ["b"], seen=seen)):
        assert isinstance(refused, WrongState)
    entry = StoredAudit(id="e", at=now, by="ada", data=b"1")
    store.call("put_audit", [entry], now)
    assert store.call("audit", by="ada").items == (entry,)
    row = StoredSchedule(name="s", queue="default", revision="1", next_at=now)
    assert store.call("change_schedules", [ScheduleChange(name="s", expect=None, to=row, jobs=(job("c"),))], now) == [
        True
    ]
    assert store.call("schedules").items == store.call("due_schedules", ["default"], now).items == (row,)
    assert store.call("inspect", "c", now).state == "ready"
    for blocking in {store, direct}:
        blocking.calls.close()
        with pytest.raises(BackendUnavailable):
            blocking.call("server_time")


def test_threads_share_a_bounded_number_of_connections():
    address = emptied()
    store = Blocking(f"{address}?pool_size=2")
    seen: list[int] = []

    def work(name: str) -> None:
        for number in range(20):
            store.call("enqueue", [job(f"{name}-{number}")], NOW)
        seen.append(connections(address))

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert len(store.call("list", now=NOW, limit=1000).items) == 160
    assert len(store.calls.shared.idle) <= 2
    store.calls.close()


def test_what_a_burst_has_opened_is_closed_although_no_call_follows(monkeypatch):
    monkeypatch.setattr(pool, "IDLE_S", 0.5)
    address = emptied()
    store = Blocking(address)
    with psycopg.connect(address) as locking:
        locking.execute("lock table taskharbor.jobs")
        threads = [threading.Thread(target=store.call, args=("enqueue", [job(str(each))], NOW)) for each in range(4)]
        for thread in threads:
            thread.start()
        until(address, f"{WAITS_FOR_LOCK} having count(*) = 4")
    for thread in threads:
        thread.join()
    one_left = "select from pg_stat_activity where application_name = 'taskharbor' and datname = current_database()"
    until(address, f"{one_left} having count(*) = 1")
    store.calls.close()


def test_a_deadline_ends_a_call_that_waits_for_a_lock():
    address = emptied()
    store = Blocking(address)
    with psycopg.connect(address) as other:
        other.execute("lock table taskharbor.jobs")
        with pytest.raises(BackendUnavailable, match="did not answer within"):
            store.call("enqueue", [job("late")], NOW, within=0.2)
    assert not store.call("enqueue", [job("next")], NOW)[0].existed
    store.calls.close()


def test_a_deadline_ends_the_wait_for_a_free_connection():
    address = emptied()
    store = Blocking(f"{address}?pool_size=1")
    with psycopg.connect(address) as other:
        other.execute("lock table taskharbor.jobs")
        thread = threading.Thread(target=store.call, args=("enqueue", [job("first")], NOW))
        thread.start()
        until(address, WAITS_FOR_LOCK)
        with pytest.raises(BackendUnavailable, match="no connection was free in time"):
            store.call("server_time", within=0.1)
        other.rollback()
        thread.join()
    assert store.call("inspect", "first", NOW).state == "ready"
    store.calls.close()


def test_a_call_whose_time_is_over_does_not_connect_again():
    """libpq gives a connection two seconds at least: a second attempt would hold the caller up for two more."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        calls = PostgresDriver(f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/x").blocking()
        driver = calls.until(time.monotonic() + 0.1)
        with pytest.raises(BackendUnavailable, match="no time left to connect"):
            run_on_this_thread(driver.server_time)


def test_an_interrupt_ends_a_call_and_its_connection_is_not_used_again():
    address = emptied()
    store = Blocking(address)
    store.call("server_time")
    with psycopg.connect(address) as other:
        other.execute("lock table taskharbor.jobs")

        def interrupt() -> None:
            until(address, WAITS_FOR_LOCK)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            store.call("enqueue", [job("a")], NOW)
        thread.join()
    assert store.calls.shared.idle == []
    assert store.call("enqueue", [job("b")], NOW)[0].id == "b"
    store.calls.close()


def test_a_call_after_a_restart_of_the_server_is_repeated(own):
    store = Blocking(own.address(own.database()))
    store.call("enqueue", [job("a")], NOW)
    own.kill()
    own.start()
    assert not store.call("enqueue", [job("b")], NOW)[0].existed
    assert store.call("cancel", ["b"], NOW) == [None]  # what may not be repeated finds out first
    store.calls.close()


def test_a_server_that_is_gone_is_reported(own):
    store = Blocking(own.address(own.database()))
    own.kill()
    with pytest.raises(BackendUnavailable, match="PostgreSQL did not answer"):
        store.call("enqueue", [job("a")], NOW)
    store.calls.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of Python 3.12, about forks beside threads
def test_a_forked_child_has_connections_of_its_own():
    address = emptied()
    store = Blocking(address)
    store.call("enqueue", [job("parent")], NOW)
    child = os.fork()
    if not child:
        code = 1
        try:
            Blocking(address).call("enqueue", [job("child")], NOW)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert store.call("enqueue", [job("child")], NOW)[0].existed
    store.calls.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted before it began
def test_a_signal_handler_that_raises_at_any_moment_loses_no_connection():
    check_interrupted_calls(f"{emptied()}?pool_size=1", opening=False)
