"""Blocking calls on the calling thread: no loop, no portal; threads, deadlines, closing, forks and Ctrl-C."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import pytest

from taskharbor import BackendUnavailable, Client, Harbor, JobRequest
from taskharbor.drivers import WrappedDriver
from taskharbor.drivers.blocking_calls import BlockingCalls
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.memory.blocking import MemoryBlocking
from taskharbor.store.access import run_on_this_thread
from taskharbor.testing import Faults, ManualClock
from tests.client.test_portal import run_script
from tests.client.tools import Waits
from tests.drivers.interrupts import check_interrupted_calls

REQUEST = JobRequest(type="t")


class Direct(MemoryDriver):
    """A memory driver whose blocking calls are noted, and do first what a test puts into `before`."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[Any, ...]] = []
        self.before: dict[str, Callable[[], None]] = {}

    def blocking(self) -> BlockingCalls:
        return DirectCalls(self)

    def noted(self, what: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.log if entry[0] == what]


class DirectCalls(WrappedDriver):
    """The blocking calls, and the driver that they are made on: a memory driver never suspends."""

    def __init__(self, driver: Direct) -> None:
        super().__init__(MemoryBlocking(driver).until(0))
        self._direct = driver
        self._is_closed = False

    def _note(self, what: str, *facts: Any) -> None:
        self._direct.log.append((what, self, *facts))
        before = self._direct.before.get(what)
        if before is not None:
            before()

    def until(self, deadline: float) -> DirectCalls:
        self._note("until", deadline)
        if self._is_closed:
            raise BackendUnavailable("the store's blocking calls were closed")
        return self

    def close(self) -> None:  # type: ignore[override]  # of blocking calls
        self._note("close")
        self._is_closed = True

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        if verb in ("open", "enqueue", "inspect"):
            self._note(verb, threading.get_ident())
        return await call()


def away(*, times: int) -> Callable[[], None]:
    """Raises BackendUnavailable the first `times` times."""
    left = iter(range(times))

    def fail() -> None:
        if next(left, None) is not None:
            raise BackendUnavailable("it is away")

    return fail


# Which way a call takes


def test_every_blocking_call_is_made_in_the_thread_of_its_caller_without_a_portal() -> None:
    driver, before = Direct(), threading.active_count()
    with Harbor(driver) as harbor:

        @harbor.task
        def add(x: int) -> int:
            return x

        handle = add.enqueue(1)
        harbor.enqueue_many([add.s(2)])
        harbor.client.enqueue_many([REQUEST])
        assert handle.status() == "ready"
        with pytest.raises(TimeoutError):
            handle.result(0)
        handle.cancel()
        assert harbor._store.portal.loop is None
    assert threading.active_count() == before
    assert len(driver.noted("enqueue")) == 3
    here = threading.get_ident()
    assert {entry[2] for entry in driver.log if entry[0] in ("open", "enqueue", "inspect")} == {here}


@pytest.mark.parametrize("kind", ["subclass", "wrapper", "none"])
def test_a_driver_whose_own_class_has_no_blocking_calls_uses_the_portal(kind: str) -> None:
    class Inherits(Direct):
        pass

    class Declines(Direct):
        def blocking(self) -> Any:
            return None

    inner = {"subclass": Inherits, "wrapper": Direct, "none": Declines}[kind]()
    with Client(Faults().wrap(inner) if kind == "wrapper" else inner) as client:
        assert client.enqueue(REQUEST).status() == "ready"
        assert client._store.portal.loop is not None
    assert inner.log == []


def test_a_blocking_driver_that_suspends_is_a_runtime_error() -> None:
    async def suspends() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="a blocking driver suspended: its calls must do their I/O before"):
        run_on_this_thread(suspends)


def test_the_store_is_opened_once_and_its_clock_followed_then_and_when_it_is_stale() -> None:
    class Following(ManualClock):
        followed = 0
        old = False

        def stale(self) -> bool:
            return self.old

        async def follow(self, server_time: Any) -> None:
            await server_time()
            self.followed += 1
            if self.old:
                raise BackendUnavailable("away")

    driver, clock = Direct(), Following()
    with Client(driver, clock=clock) as client:
        client.enqueue(REQUEST)
        client.enqueue(REQUEST)
        assert (len(driver.noted("open")), clock.followed) == (1, 1)
        clock.old = True
        client.enqueue(REQUEST)  # the store's time could not be read: no reason to fail
        assert clock.followed == 2


# Threads


def test_many_threads_share_the_calls_and_open_them_once() -> None:
    driver, all_there = Direct(), threading.Event()

    def count() -> None:
        if len(driver.noted("until")) == 8:
            all_there.set()

    driver.before["until"] = count
    driver.before["open"] = lambda: None if all_there.wait(60) else pytest.fail("the others did not come")

    def work(number: int) -> list[str]:
        return [client.enqueue(REQUEST).id for _ in range(20)]

    with Client(driver) as client, concurrent.futures.ThreadPoolExecutor(8) as pool:
        ids = [id for some in pool.map(work, range(8)) for id in some]
        assert len(set(ids)) == 160
        assert asyncio.run(driver.counts(client._store.clock.now())) == {"default": {"ready": 160}}
    assert len(driver.noted("open")) == 1
    assert len({entry[2] for entry in driver.noted("enqueue")}) == 8


def test_a_thread_waits_for_the_opening_of_another_until_its_own_deadline() -> None:
    driver, opening, go_on = Direct(), threading.Event(), threading.Event()

    def slow_open() -> None:
        opening.set()
        assert go_on.wait(60)

    driver.before["open"] = slow_open
    with Client(driver) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.enqueue, REQUEST)
        assert opening.wait(60)
        with pytest.raises(BackendUnavailable, match=r"^enqueue: the store could not be opened within 0\.02 s \(tried"):
            client.within(0.02).enqueue(REQUEST)
        go_on.set()
        assert not first.result(60).existed
    assert len(driver.noted("open")) == 1


# Deadlines and retries


def test_an_outage_is_retried_with_growing_pauses(waits: Waits) -> None:
    driver = Direct()
    driver.before["enqueue"] = away(times=2)
    with Client(driver) as client:
        assert not client.enqueue(REQUEST).existed
    assert len(waits.slept) == 2
    assert 0.05 <= waits.slept[0] <= 0.1 <= waits.slept[1] <= 0.2


def test_an_opening_that_failed_is_tried_again(waits: Waits) -> None:
    driver = Direct()
    driver.before["open"] = away(times=1)
    with Client(driver) as client:
        client.enqueue(REQUEST)
        client.enqueue(REQUEST)
    assert len(driver.noted("open")) == 2


def test_a_driver_error_at_the_deadline_becomes_the_error_of_the_budget(waits: Waits) -> None:
    driver = Direct()

    def stand_still() -> None:
        waits.slept.append(driver.noted("until")[-1][2] - waits.time())  # a socket that waited until the deadline
        raise BackendUnavailable("no reply")

    driver.before["enqueue"] = stand_still
    with Client(driver) as client, pytest.raises(BackendUnavailable) as caught:
        client.within(3).enqueue(JobRequest(type="t", id="j"))
    assert [entry[2] for entry in driver.noted("until")] == [pytest.approx(waits.began + 3)]
    assert str(caught.value).startswith(
        "enqueue: the store did not answer within 3 s (tried once). The job may or may not be stored; "
        "harbor.job('j').status() says it later"
    )


def test_a_pause_ends_at_the_deadline(waits: Waits) -> None:
    driver = Direct()
    driver.before["enqueue"] = away(times=9)
    told = r"^enqueue: the store did not answer within 0\.12 s \(tried 2 times; before that: it is away\)\. The job"
    with Client(driver) as client, pytest.raises(BackendUnavailable, match=told):
        client.within(0.12).enqueue(REQUEST)
    assert sum(waits.slept) == pytest.approx(0.12)


# Closing


def test_closing_wakes_a_caller_that_waits_for_a_result() -> None:
    driver, polled = Direct(), threading.Event()
    client = Client(driver)
    handle = client.enqueue(REQUEST)
    driver.before["inspect"] = polled.set
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.result)
        assert polled.wait(60)
        client.close()
        with pytest.raises(BackendUnavailable, match=f"the client was closed while it waited for job {handle.id}"):
            waiting.result(60)
    assert len(driver.noted("open")) == 1


def test_a_call_that_is_under_way_does_not_open_a_closed_client_again() -> None:
    driver = Direct()
    client = Client(driver, call_timeout=3600)

    def close_meanwhile() -> None:
        if not driver.noted("close"):
            client.close()
        raise BackendUnavailable("it is away")

    driver.before["enqueue"] = close_meanwhile
    with pytest.raises(BackendUnavailable, match=r"^it is away \(enqueue, tried once"):
        client.enqueue(REQUEST)
    assert len(driver.noted("open")) == 1


def test_after_closing_the_next_call_opens_the_store_again() -> None:
    driver = Direct()
    client = Client(driver)
    client.enqueue(REQUEST)
    client.close()
    client.close()
    client.enqueue(REQUEST)
    client.close()
    first, second = (entry[1] for entry in driver.noted("open"))
    assert first is not second
    assert [entry[1] for entry in driver.noted("close")] == [first, second]


def test_closing_awaited_closes_the_blocking_calls_as_well() -> None:
    driver = Direct()
    client = Client(driver)
    client.enqueue(REQUEST)
    asyncio.run(client.aclose())
    assert len(driver.noted("close")) == 1


# Forks and interrupts


def test_a_forked_child_never_uses_or_closes_the_calls_of_its_parent() -> None:
    done = run_script("""
        import gc, os
        from taskharbor import Client, JobRequest
        from taskharbor.drivers.memory import MemoryDriver
        from taskharbor.drivers.memory.blocking import MemoryBlocking

        class Pids(MemoryDriver):
            def __init__(self):
                super().__init__()
                self.made = os.getpid()

            def blocking(self):
                assert self.made == os.getpid(), "made by a driver of another process"
                return Calls(self)

            def sibling(self):
                return Pids()

        class Calls(MemoryBlocking):
            def __init__(self, driver):
                super().__init__(driver)
                self.made = os.getpid()

            def until(self, deadline):
                assert self.made == os.getpid(), "used in another process"
                return super().until(deadline)

            def close(self):
                assert self.made == os.getpid(), "closed in another process"
                super().close()

            def __del__(self):
                assert self.made == os.getpid(), "finalized in another process"

        client = Client(Pids())
        client.enqueue(JobRequest(type="t"))
        client._store.drivers._lock.acquire()  # a thread of the parent's holds it, and does not exist in the child
        client._store.drivers.access._opening.enter(0)
        client._store.enqueuer._keys._lock.acquire()
        if (child := os.fork()) == 0:
            client.enqueue(JobRequest(type="t", idempotency_key="k"))
            client.close()
            client.enqueue(JobRequest(type="t"))
            gc.collect()
            os._exit(7)
        client._store.drivers._lock.release()
        client._store.enqueuer._keys._lock.release()
        client._store.drivers.access._opening.inside.clear()
        _, status = os.waitpid(child, 0)
        client.enqueue(JobRequest(type="t"))
        client.close()
        print(os.waitstatus_to_exitcode(status))
        """)
    assert (done.stdout, done.stderr, done.returncode) == ("7\n", "", 0)


def test_a_fork_waits_for_calls_on_memory_so_that_the_child_gets_whole_jobs_and_free_locks() -> None:
    done = run_script("""
        import os, threading
        from taskharbor import Client, JobRequest
        from taskharbor.drivers.memory import store as module

        client = Client("memory://")
        client.enqueue(JobRequest(type="t"))
        store, begun = client._store.driver.store, threading.Event()

        def call():
            with store.lock:
                begun.set()
                while not module._forking.locked():
                    pass
                store.is_whole = True

        store.is_whole = False
        thread = threading.Thread(target=call)
        thread.start()
        begun.wait()
        if (child := os.fork()) == 0:
            client.enqueue(JobRequest(type="t"))
            os._exit(7 if store.is_whole else 1)
        client.enqueue(JobRequest(type="t"))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """)
    assert (done.stdout, done.stderr, done.returncode) == ("7\n", "", 0)


def test_an_interrupt_never_leaves_half_a_job_in_memory() -> None:
    done = run_script("""
        import asyncio, os, signal, threading, warnings
        from datetime import timedelta
        from taskharbor import Client, JobRequest

        # An interrupt may come between the making of a coroutine and its first step: nothing has happened then.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        client, stop, interrupted = Client("memory://"), threading.Event(), 0
        request = JobRequest(type="t")
        client.enqueue(request)

        def interrupt():
            while not stop.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                stop.wait(0.0005)

        thread = threading.Thread(target=interrupt)
        while True:  # an interrupt may come at any moment from here on
            try:
                if not thread.ident:
                    thread.start()
                while interrupted < 100:
                    client.enqueue(request)
                stop.set()
                thread.join()
                break
            except KeyboardInterrupt:
                interrupted += 1
        driver, now = client._store.driver, client._store.clock.now()
        counted = asyncio.run(driver.counts(now))["default"]["ready"]
        taken = 0
        while some := asyncio.run(driver.reserve(["default"], now, timedelta(60), 1000)):
            taken += len(some)
        print(interrupted >= 100, counted == taken)
        """)
    assert (done.stdout, done.stderr, done.returncode) == ("True True\n", "", 0)


@pytest.mark.parametrize("waits_for", ["a result", "the store"])
def test_an_interrupt_ends_a_wait(waits_for: str) -> None:
    done = run_script(f"""
        import os, signal, threading
        from taskharbor import BackendUnavailable, Client, JobRequest
        from taskharbor.store import access

        client = Client("memory://")
        handle = client.enqueue(JobRequest(type="t"))
        begun = threading.Event()
        wait = access.BlockingAccess.sleep

        async def sleep(self, seconds):
            begun.set()
            await wait(self, 60)

        def interrupt():
            begun.wait()
            while not over.wait(0.01):  # a signal that comes just before a wait begins does not end it: so again
                os.kill(os.getpid(), signal.SIGINT)

        over = threading.Event()
        access.BlockingAccess.sleep = sleep
        threading.Thread(target=interrupt).start()
        try:
            if {waits_for!r} == "the store":
                async def away(*args): raise BackendUnavailable("away")
                client._store.drivers.access._calls.inspect = away
                handle.status()
            handle.result()
        except KeyboardInterrupt:
            over.set()
            print("interrupted")
        """)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted before it began
def test_a_signal_handler_that_raises_at_any_moment_leaves_memory_usable() -> None:
    check_interrupted_calls("memory://", opening=True)
