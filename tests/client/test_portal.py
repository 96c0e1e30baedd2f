"""The synchronous face: threads, running loops, interrupts, forks, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from taskharbor import BackendUnavailable, BlockingCall, Client, Harbor, JobRequest
from taskharbor.store.portal import Portal


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    """A program of its own: what it does to signals, forks and its end is not for this process."""
    code = textwrap.dedent(body)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def answer(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def test_results_and_errors_come_through() -> None:
    portal = Portal()

    async def fails() -> None:
        raise KeyError("x")

    assert portal.loop is None
    assert portal.call(lambda: answer(5), "x.call") == 5
    with pytest.raises(KeyError, match="x"):
        portal.call(fails, "x.call")
    portal.stop()
    portal.stop()
    assert portal.loop is None
    assert portal.call(lambda: answer(6), "x.call") == 6
    portal.stop()


def test_many_threads_share_one_loop() -> None:
    portal = Portal()
    loops = set()

    async def where(number: int) -> int:
        loops.add(asyncio.get_running_loop())
        return number

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: portal.call(lambda: where(number), "x.call"), range(200)))
    assert found == list(range(200))
    assert len(loops) == 1
    portal.stop()


def test_stop_cancels_what_still_runs() -> None:
    portal, begun, ended = Portal(), threading.Event(), threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def blocked() -> None:
        with pytest.raises(BackendUnavailable, match=r"x\.call: the client was closed meanwhile"):
            portal.call(forever, "x.call")

    thread = threading.Thread(target=blocked)
    thread.start()
    assert begun.wait(60)
    portal.stop()
    assert ended.wait(60)
    thread.join(60)
    assert not thread.is_alive()


def test_on_a_running_loop_every_blocking_call_names_its_twin() -> None:
    harbor = Harbor("memory://")

    @harbor.task
    def send_email(to: str) -> None: ...

    handle = send_email.enqueue("a")

    async def main() -> None:
        for call, told in [
            (
                lambda: send_email.enqueue("a"),
                "send_email.enqueue() would block the running event loop; use: await send_email.aenqueue(...)",
            ),
            (lambda: harbor.enqueue_many([send_email.s("a")]), "use: await harbor.aenqueue_many(...)"),
            (lambda: send_email.options(connection=object()).enqueue("a"), "use: await send_email.aenqueue(...)"),
            (lambda: harbor.flow("x"), "use: await harbor.aflow(...)"),
            (lambda: harbor.client.enqueue(JobRequest(type="t")), "use: await client.aenqueue(...)"),
            (harbor.close, "use: await client.aclose(...)"),
            (handle.status, "use: await handle.astatus(...)"),
            (handle.result, "use: await handle.aresult(...)"),
            (handle.cancel, "use: await handle.acancel(...)"),
        ]:
            with pytest.raises(BlockingCall) as caught:
                call()
            assert str(caught.value).endswith(told)

    asyncio.run(main())
    assert handle.status() == "ready"
    harbor.close()


def test_a_thread_beside_a_running_loop_may_block() -> None:
    async def main() -> None:
        async with Client("memory://") as client:
            handle = await client.aenqueue(JobRequest(type="t"))
            assert await asyncio.to_thread(handle.status) == "ready"

    asyncio.run(main())


def test_an_interrupt_cancels_the_call() -> None:
    done = run_script("""
        import asyncio, os, signal, threading
        from taskharbor.store.portal import Portal

        portal, ended = Portal(), 0

        for _ in range(100):  # the signal comes at any moment: while the call is handed over, or just before the wait
            cancelled = threading.Event()

            async def forever():
                threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

            try:
                portal.call(forever, "x.call")
            except KeyboardInterrupt:
                ended += cancelled.wait(60)
        print("interrupted", ended)
        """)
    assert (done.stdout, done.returncode) == ("interrupted 100\n", 0), done.stderr


def test_a_forked_child_has_a_portal_and_drivers_of_its_own() -> None:
    done = run_script("""
        import asyncio, os, threading
        from taskharbor import Client, JobRequest
        from taskharbor.drivers.memory import MemoryDriver

        class Pids(MemoryDriver):
            def __init__(self):
                super().__init__()
                self.made = self.opened = os.getpid()

            async def open(self):
                self.opened = os.getpid()
                assert self.made == self.opened, "opened in another process"

            async def close(self):
                assert self.opened == os.getpid(), "closed in another process"

            async def enqueue(self, jobs, now):
                assert self.opened == os.getpid(), "used in another process"
                return await super().enqueue(jobs, now)

            def sibling(self):
                return Pids()

        client = Client(Pids())
        client.enqueue(JobRequest(type="t"))
        client._store.portal._lock.acquire()  # a thread of the parent's holds it, and does not exist in the child
        client._store.drivers._lock.acquire()
        if (child := os.fork()) == 0:
            client.enqueue(JobRequest(type="t"))
            assert threading.active_count() == 2
            asyncio.run(client.aenqueue(JobRequest(type="t")))
            client.close()
            os._exit(7)
        client._store.portal._lock.release()
        client._store.drivers._lock.release()
        _, status = os.waitpid(child, 0)
        client.enqueue(JobRequest(type="t"))
        client.close()
        print(os.waitstatus_to_exitcode(status))
        """)
    assert (done.stdout, done.returncode) == ("7\n", 0), done.stderr


def test_a_program_that_closes_nothing_ends_all_the_same() -> None:
    done = run_script("""
        import asyncio, threading
        from taskharbor import Harbor

        harbor = Harbor("memory://")

        @harbor.task
        def send(to: str) -> None: ...

        handle = send.enqueue("a")
        threading.Thread(target=handle.result, daemon=True).start()   # waits for a worker that never comes
        print(handle.status())
        """)
    assert (done.stdout, done.stderr, done.returncode) == ("ready\n", "", 0)
