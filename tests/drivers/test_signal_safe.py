"""A limit of threads that starves none, and signals that wait for the end of a block."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from taskharbor.drivers.signal_safe import ClosedFlag, DeferredSignals, ThreadLimit
from tests.client.test_portal import run_script

pytestmark = pytest.mark.lane("unit")
PATIENCE_S = 60.0


class Interrupted(BaseException):
    pass


@pytest.fixture
def received() -> Iterator[list[int]]:
    """Signals that were handled: SIGUSR1 is noted, SIGUSR2 raises as well."""
    found: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        found.append(number)
        if number == signal.SIGUSR2:
            raise Interrupted

    before = {number: signal.signal(number, note) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_place_goes_to_the_thread_that_waits_not_to_one_that_comes_back_quickly() -> None:
    places, me = ThreadLimit(1), threading.get_ident()
    assert places.enter(0)
    thread = threading.Thread(target=places.enter, args=(PATIENCE_S,))
    thread.start()
    while not places._waiting:
        threading.Event().wait(0.001)
    places.inside.discard(me)
    places.wake()
    assert not places.enter(0)
    assert places.inside == {thread.ident}
    thread.join()


def test_a_thread_that_is_inside_stays_inside_and_a_place_that_is_free_is_taken_without_waiting() -> None:
    places = ThreadLimit(1)
    assert places.enter(-1)
    assert places.enter(-1)


def test_closing_wakes_every_sleeper() -> None:
    flag = ClosedFlag()
    threads = [threading.Thread(target=flag.wait, args=(PATIENCE_S,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    flag.set()
    flag.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert flag.is_set()


def test_handlers_run_when_the_block_ends(received: list[int]) -> None:
    handler = signal.getsignal(signal.SIGUSR1)

    def block() -> None:
        with DeferredSignals():
            for number in (signal.SIGUSR2, signal.SIGUSR1):
                signal.raise_signal(number)
            assert received == []

    with pytest.raises(Interrupted):
        block()
    assert received == [signal.SIGUSR2, signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_a_handler_that_raises_nothing_ends_no_wait(received: list[int]) -> None:
    with DeferredSignals() as signals:
        signal.raise_signal(signal.SIGUSR1)
        assert not signals.has_raised()
        assert received == [signal.SIGUSR1]
    assert received == [signal.SIGUSR1]


def test_a_handler_that_raises_ends_a_wait_and_then_the_block(received: list[int]) -> None:
    def block() -> None:
        with DeferredSignals() as signals:
            signal.raise_signal(signal.SIGUSR2)
            assert signals.has_raised()
            assert signals.has_raised()

    with pytest.raises(Interrupted):
        block()
    assert received == [signal.SIGUSR2]


def test_a_handler_that_replaced_itself_is_not_put_back(received: list[int]) -> None:
    """As a server's does for a second Ctrl-C."""

    def replaces_itself(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    signal.signal(signal.SIGUSR1, replaces_itself)
    with DeferredSignals() as signals:
        signal.raise_signal(signal.SIGUSR1)
        assert not signals.has_raised()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert received == [signal.SIGUSR1]


def test_a_child_that_another_thread_forks_handles_its_signals() -> None:
    done = run_script("""
        import os, signal, threading
        from taskharbor.drivers.signal_safe import DeferredSignals

        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(7))

        def fork():
            if (child := os.fork()) == 0:
                signal.raise_signal(signal.SIGTERM)
                os._exit(1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        with DeferredSignals():
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
        """)
    assert (done.stdout, done.stderr, done.returncode) == ("7\n", "", 0)
