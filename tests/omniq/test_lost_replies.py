"""Hazard 20 as it happens: the server does what it is asked, the answer is lost, redis-py asks again."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import cast

import pytest

from taskharbor.omniq import AsyncOmniQ, Job, OmniQ
from tests.omniq.conftest import DATABASE, Blocking


class Proxy:
    """A port before the server. After `cut()` the next answer is thrown away and its connection closed."""

    def __init__(self, port: int) -> None:
        self._goal = port
        self._cut = threading.Event()
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, work, *args) -> None:
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._goal))
            self._open += [near, far]
            self._begin(self._carry, near, far, False)
            self._begin(self._carry, far, near, True)

    def _carry(self, source: socket.socket, goal: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(65536):
                # A refusal for want of the script is no answer yet: it is the next one that is lost.
                if answers and self._cut.is_set() and not data.startswith(b"-NOSCRIPT"):
                    self._cut.clear()
                    self.cuts += 1
                    break
                goal.sendall(data)
        except OSError:
            pass
        for each in (source, goal):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self) -> None:
        self._cut.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()


@pytest.fixture
def proxy(server) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


@pytest.mark.parametrize("kind", [OmniQ, AsyncOmniQ])
def test_hazard_20_every_call_may_lose_its_answer(server, store, proxy, kind):
    address = f"redis://127.0.0.1:{proxy.port}/{DATABASE}"
    with closing(OmniQ(address) if kind is OmniQ else Blocking(lambda: address)) as given:
        q = cast(OmniQ, given)
        q.is_paused("jobs")  # connected
        cuts = 0

        def lossy(method, *args, **options):
            nonlocal cuts
            cuts += 1
            proxy.cut()
            answer = method(*args, **options)
            assert proxy.cuts == cuts
            return answer

        job_id = lossy(q.publish, "jobs", {"n": 1}, gid="g", max_attempts=2, backoff_ms=0)
        assert store.lines("g:g:wait") == [job_id]
        job = lossy(q.reserve, "jobs")
        assert isinstance(job, Job)
        assert (job.job_id, job.attempt) == (job_id, 1)
        assert lossy(q.heartbeat, "jobs", job_id, job.lease_token) > 0
        assert lossy(q.ack_fail, "jobs", job_id, job.lease_token, error="x")[0] == "RETRY"
        q.promote_delayed("jobs")
        job = lossy(q.reserve, "jobs")
        assert isinstance(job, Job)
        assert lossy(q.ack_fail, "jobs", job_id, job.lease_token) == ("FAILED", None)
        lossy(q.retry_failed, "jobs", job_id)
        job = lossy(q.reserve, "jobs")
        assert isinstance(job, Job)
        lossy(q.give_back, "jobs", job_id, job.lease_token)
        job = lossy(q.reserve, "jobs")
        assert isinstance(job, Job)
        assert job.attempt == 2
        lossy(q.ack_success, "jobs", job_id, job.lease_token)
        lossy(q.childs_init, "batch", 1)
        assert lossy(q.child_ack, "batch", "a") == 0
    assert store.where(job_id) == ["completed"]
    assert store.number("g:g:inflight") is None
    assert store.wrong() == []
