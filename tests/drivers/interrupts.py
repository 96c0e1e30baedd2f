"""Raising out of a signal handler at every moment of a call at which Python would run one, one after the other."""

import dis
import gc
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import taskharbor
from taskharbor import Client, JobRequest

PATIENCE_S = 30.0
CHECKS = ("CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD")  # after these, Python checks for signals
FOLDER = taskharbor.__path__[0]
TRACED = (f"{FOLDER}/client", f"{FOLDER}/store", f"{FOLDER}/drivers", threading.__file__)


class Interrupted(BaseException):
    """Raised by the handler."""


class _Tracer:
    """Sends SIGALRM at the `number`th moment of the main thread in this library or in `threading`."""

    def __init__(self, number: int) -> None:
        self.left = number
        self._previous: tuple[FrameType, str] | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "opcode":
            self._previous = None
            frame.f_trace_opcodes = frame.f_code.co_filename.startswith(TRACED)
            return self
        name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        previous, self._previous = self._previous, (frame, name)
        if previous is not None and previous[0] is frame and previous[1] in CHECKS:
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGALRM)
        return self


def interrupted_everywhere(call: Callable[[], object]) -> Iterator[int]:
    """Make a call again and again, each time interrupted at a later moment, until it ends before its interruption."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        number = left = 0
        while left <= 0:
            number += 1
            tracer = _Tracer(number)
            sys.settrace(tracer)
            try:
                call()
            except Interrupted:
                pass
            finally:
                sys.settrace(None)
            left = tracer.left
            assert signal.getsignal(signal.SIGALRM) is interrupt
            yield number
    finally:
        signal.signal(signal.SIGALRM, before)


def in_another_thread(call: Callable[[], Any]) -> Any:
    """The result of a call in another thread, which must not hang."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert results, "the call failed or hangs"
    return results[0]


def check_interrupted_calls(dsn: str, *, opening: bool) -> None:
    """A call that a signal handler ended by raising leaves nothing behind: another thread's calls succeed afterwards,
    and get their own results. `dsn` should allow one connection, so that no other can stand in for one that was lost.
    """
    ids = (f"job-{number}" for number in itertools.count())
    client = Client(dsn, call_timeout=PATIENCE_S)

    def enqueue() -> None:
        client.enqueue(JobRequest(type="t", id=next(ids)))

    def open_again() -> None:
        client.close()
        enqueue()

    def result() -> None:
        with pytest.raises(TimeoutError):
            client.handle("known").result(0.001)

    def enqueue_and_read() -> tuple[str, str, str]:
        id = next(ids)
        return id, client.enqueue(JobRequest(type="t", id=id)).id, client.handle("known").status()

    client.enqueue(JobRequest(type="t", id="known"))
    for call in (enqueue, result, open_again) if opening else (enqueue, result):
        for number in interrupted_everywhere(call):
            sent, stored, state = in_another_thread(enqueue_and_read)
            assert (stored, state) == (sent, "ready"), f"after moment {number} of {call.__name__}"
    client.close()
    gc.collect()  # connections of interrupted calls warn now, where that is expected, and not in a later test
