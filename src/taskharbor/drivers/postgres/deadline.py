"""Time limits that hold on a dead network: the socket is shut down, so that a call that waits on it ends.

Cancelling is not enough: a psycopg call that is cancelled asks the server to stop and waits for the reply, which never
comes on a dead network.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from taskharbor.drivers.green import run_in_native_thread, threads_are_greenlets
from taskharbor.drivers.signal_safe import ClosedFlag, DeferredSignals

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")


class Deadline:
    """For the time of a block: after `seconds` the connection is cut, and what it waits for fails."""

    __slots__ = ("_connection", "_handle", "_seconds", "passed")

    def __init__(self, seconds: float, connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
        self._seconds = seconds
        self._connection = connection
        self._handle: asyncio.TimerHandle | threading.Timer | None = None
        self.passed = False

    def __enter__(self) -> Deadline:
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._cut)
        return self

    def __exit__(self, *raised: object) -> None:
        assert self._handle is not None
        self._handle.cancel()

    def _cut(self) -> None:
        self.passed = True
        cut(self._connection)


def cut(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Shut the socket down. The call that waits on it closes it."""
    if connection.closed:
        return
    try:
        copy = socket.socket(fileno=os.dup(connection.pgconn.socket))
    except OSError:
        return
    try:
        copy.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is gone already
    finally:
        copy.close()


class ThreadDeadline(Deadline):
    """The same where there is no event loop."""

    def __enter__(self) -> ThreadDeadline:
        self._handle = threading.Timer(self._seconds, self._cut)
        self._handle.daemon = True
        self._handle.start()
        return self


def run_in_thread(coroutine: Coroutine[Any, Any, T], seconds: float = threading.TIMEOUT_MAX) -> T:
    """Run a coroutine on an event loop of its own: this thread may be another loop's. TimeoutError after `seconds`."""
    if threads_are_greenlets():
        return run_in_native_thread(coroutine, seconds)
    results: list[T] = []
    raised: list[BaseException] = []
    ended = ClosedFlag()

    def work() -> None:
        try:
            results.append(asyncio.run(coroutine))
        except BaseException as error:
            raised.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=work, name="taskharbor-postgres-open", daemon=True)
    with DeferredSignals():
        thread.start()
    ended.wait(seconds)
    if not ended.is_set():
        raise TimeoutError("the deadline has passed")
    if raised:
        raise raised[0]
    return results[0]
