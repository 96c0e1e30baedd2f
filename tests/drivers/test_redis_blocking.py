"""Blocking calls of the Redis driver: the same results as awaited ones, without an event loop, from many threads."""

import asyncio
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from taskharbor.conformance.environment import opened
from taskharbor.drivers import Ack, BackendUnavailable
from taskharbor.drivers.redis import RedisDriver, blocking_connection
from taskharbor.drivers.redis.blocking import BlockingPool, BlockingPrimary, RedisBlocking
from tests.drivers.blocking_calls import LATER, NOW, job, make_every_call, run
from tests.drivers.interrupts import check_interrupted_calls
from tests.drivers.redis_stores import emptied
from tests.drivers.test_redis_tls import address as tls_address
from tests.drivers.test_redis_tls import folder, server  # noqa: F401 - fixtures
from tests.servers import redis as servers
from tests.servers.ports import free_port
from tests.servers.sentinel import SERVICE, shared_sentinels

pytestmark = pytest.mark.lane("redis")


@contextmanager
def blocking(dsn: str) -> Iterator[RedisBlocking]:
    made = RedisDriver(dsn).blocking()
    assert made is not None
    try:
        yield made
    finally:
        made.close()


def whole_life(dsn: str) -> None:
    async def work() -> None:
        async with opened(RedisDriver(dsn)) as driver:
            held = await driver.reserve(["q"], NOW, timedelta(minutes=1), 10, "w")
            assert await driver.settle([Ack(one.lease, b"done") for one in held], NOW) == [None] * len(held)

    with blocking(dsn) as calls:
        make_every_call(calls, lambda: asyncio.run(work()))


def test_a_whole_life_on_one_server() -> None:
    whole_life(emptied())


def test_a_whole_life_in_another_database() -> None:
    emptied()
    whole_life(f"redis://127.0.0.1:{servers.shared().port}/3")


def test_a_whole_life_over_a_unix_socket() -> None:
    with tempfile.TemporaryDirectory(prefix="th-", dir="/tmp") as place:  # a socket's path has to be short
        local = servers.Server(unixsocket=f"{place}/redis")
        try:
            whole_life(f"redis+unix://{place}/redis?db=1")
        finally:
            local.stop()


def test_a_whole_life_with_tls(server: Any, folder: Any) -> None:  # noqa: F811 - fixtures
    server.empty()
    whole_life(tls_address(server, ssl_ca_certs=f"{folder}/ca.pem"))
    with (
        blocking(tls_address(server)) as calls,
        pytest.raises(BackendUnavailable, match="name the CA") as caught,
    ):
        run(calls, lambda driver: driver.open())
    assert caught.value.lasting


def test_a_whole_life_with_sentinels() -> None:
    watched = shared_sentinels()
    watched.settle()
    watched.empty()
    whole_life(watched.url)
    nobody = f"redis+sentinel://127.0.0.1:{free_port()}/{SERVICE}?timeout=200ms"
    with blocking(nobody) as calls, pytest.raises(BackendUnavailable, match="cannot connect"):
        run(calls, lambda driver: driver.open())


def test_a_new_primary_is_found() -> None:
    watched = shared_sentinels()
    watched.settle()
    watched.empty()
    with blocking(watched.url) as calls:
        run(calls, lambda driver: driver.enqueue([job("before")], NOW))
        watched.fail_over()
        (result,) = run(calls, lambda driver: driver.enqueue([job("after")], NOW))
        assert not result.existed
    watched.settle()


def test_a_sentinel_that_hangs_does_not_hold_up_those_that_answer() -> None:
    watched = shared_sentinels()
    watched.settle()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"redis+sentinel://127.0.0.1:{silent.getsockname()[1]},"
        dsn = f"{watched.url.replace('redis+sentinel://', hosts)}?connect_timeout=1h"
        with blocking(dsn) as calls:
            run(calls, lambda driver: driver.enqueue([job("a")], NOW), time.monotonic() + 20)
            assert isinstance(calls._shared, BlockingPrimary)
            assert [sentinel.address[1] for sentinel in calls._shared._sentinels][-1] == silent.getsockname()[1]


def test_a_cluster_has_no_blocking_calls() -> None:
    assert RedisDriver("redis+cluster://127.0.0.1:1").blocking() is None


def test_nothing_is_opened_before_the_first_call_nor_after_closing() -> None:
    calls = RedisDriver(f"redis://127.0.0.1:{free_port()}").blocking()
    assert calls is not None
    calls.close()
    calls.close()
    with pytest.raises(BackendUnavailable, match="closed"):
        calls.until(LATER)


def test_a_server_that_never_answers_ends_a_call_at_its_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"redis://127.0.0.1:{silent.getsockname()[1]}?timeout=1h&connect_timeout=1h"
        for seconds in (0.2, -1):
            with blocking(dsn) as calls, pytest.raises(BackendUnavailable, match="did not answer"):
                run(calls, lambda driver: driver.enqueue([job("a")], NOW), time.monotonic() + seconds)


def test_a_full_server_is_reported_as_full() -> None:
    with blocking(emptied()) as calls:
        servers.shared().run("CONFIG", "SET", "maxmemory", "1")
        try:
            with pytest.raises(BackendUnavailable, match="Redis is full"):
                run(calls, lambda driver: driver.enqueue([job("a")], NOW))
        finally:
            servers.shared().run("CONFIG", "SET", "maxmemory", "0")


def test_connections_that_the_server_closed_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with blocking(emptied()) as calls, servers.shared().client() as client:
        run(calls, lambda driver: driver.enqueue([job("a")], NOW))
        for checked_after in (0.0, 1000.0):  # noticed before the call, and by the call
            monkeypatch.setattr(blocking_connection, "CHECKED_AFTER_S", checked_after)
            client.client_kill_filter(_type="normal", skipme=True)
            new = job(f"b{checked_after}")
            (result,) = run(calls, lambda driver: driver.enqueue([new], NOW))  # noqa: B023 - called at once
            assert not result.existed


def test_a_call_that_was_interrupted_leaves_no_reply_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with blocking(emptied()) as calls:
        run(calls, lambda driver: driver.enqueue([job("a")], NOW))
        assert isinstance(calls._shared, BlockingPool)
        (idle,) = calls._shared._idle

        class Interrupted:
            """A socket whose reader is interrupted after the call was sent."""

            def __init__(self, real: socket.socket) -> None:
                self.sendall, self.close, self.settimeout = real.sendall, real.close, real.settimeout

            def recv(self, size: int) -> bytes:
                raise KeyboardInterrupt

        interrupted: Any = Interrupted(idle._socket)
        idle._socket = interrupted
        with pytest.raises(KeyboardInterrupt):
            run(calls, lambda driver: driver.inspect("a", NOW))
        assert calls._shared._idle == []
        assert calls._shared._places.inside == set()
        assert run(calls, lambda driver: driver.results(["a"])) == {}


def test_threads_share_a_bounded_number_of_connections() -> None:
    with blocking(f"{emptied()}?pool_size=3") as calls, servers.shared().client() as client:
        errors: list[BaseException] = []
        most = 0

        def work(number: int) -> None:
            nonlocal most
            try:
                for turn in range(20):
                    run(calls, lambda driver: driver.enqueue([job(f"{number}.{turn}")], NOW))  # noqa: B023 - called at once
                    assert isinstance(calls._shared, BlockingPool)
                    most = max(most, len(calls._shared._places.inside))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert most <= 3
        assert len([one for one in client.client_list() if one["name"] == "taskharbor"]) <= 3
        assert len(run(calls, lambda driver: driver.list(now=NOW, limit=1000)).items) == 240


def test_a_thread_that_finds_no_free_connection_gives_up_at_its_deadline() -> None:
    with blocking(f"{emptied()}?pool_size=1") as calls:
        assert isinstance(calls._shared, BlockingPool)
        calls._shared._places.inside.add(-1)  # another thread's call, which does not end
        with pytest.raises(BackendUnavailable, match="all 1 connections were in use"):
            run(calls, lambda driver: driver.enqueue([job("a")], NOW), time.monotonic() + 0.05)
        calls._shared._places.inside.clear()
        run(calls, lambda driver: driver.enqueue([job("a")], NOW), time.monotonic() + 60)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted before it began
def test_a_signal_handler_that_raises_at_any_moment_loses_no_connection() -> None:
    check_interrupted_calls(f"{emptied()}?pool_size=1", opening=False)
