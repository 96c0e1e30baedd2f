"""Handlers that do to processes what handlers do: fork, terminate, start what does not end.

FOLDER (environment): where the journal is, and the files that `gate` waits for.
"""

import asyncio
import atexit
import ctypes
import multiprocessing
import os
import signal
import threading
import time

from taskharbor import Harbor, JobContext
from tests.supervisor.app import FOLDER, journal

harbor = Harbor()  # the store is the command line's
INTERRUPTED = 3  # the exit code of a child to which INT is a KeyboardInterrupt
FORK = multiprocessing.get_context("fork")


@harbor.task(name="note")
def note(ctx: JobContext) -> int:
    """A quick job."""
    journal("start", ctx)
    return os.getpid()


@harbor.task(name="gate")
async def gate(name: str, ctx: JobContext) -> int:
    """Run until a file of that name is there."""
    journal("start", ctx)
    while not (FOLDER / name).exists():
        await asyncio.sleep(0.02)
    journal("end", ctx)
    return os.getpid()


@harbor.task(name="ends_children", max_attempts=1)
def ends_children(way: str) -> list[int | None]:
    """Fork children and end them as programs do; answers their exit codes."""
    return WAYS[way]()


def _terminated(number: int, busy: bool) -> list[int | None]:
    """Each child is ended as soon as it was started (`busy`: once it is at work)."""
    codes = []
    for _ in range(number):
        at_work = FORK.Event()
        process = FORK.Process(target=_work, args=(at_work,))
        process.start()
        if busy:
            at_work.wait()
        process.terminate()
        process.join()
        codes.append(process.exitcode)
    return codes


def _work(at_work: "multiprocessing.synchronize.Event") -> None:
    at_work.set()
    time.sleep(600)


def _pool() -> list[int | None]:
    """Leave a pool whose workers are busy: it terminates them."""
    with FORK.Pool(2) as pool:
        begun = FOLDER / "pool"
        pool.apply_async(_begin, (str(begun),))
        while not begun.exists():
            time.sleep(0.02)
    return [-signal.SIGTERM]


def _begin(path: str) -> None:
    open(path, "w").close()
    time.sleep(600)


def _interrupted() -> list[int | None]:
    """A bare fork and the signal of a terminal."""
    said, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(say, b".")
            time.sleep(600)
        finally:
            os._exit(INTERRUPTED)
    os.read(said, 1)
    os.kill(pid, signal.SIGINT)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]


WAYS = {
    "terminated when busy": lambda: _terminated(2, busy=True),
    "terminated at once": lambda: _terminated(25, busy=False),
    "a pool that is left": _pool,
    "interrupted": _interrupted,
}


@harbor.task(name="swallow")
async def swallow(ctx: JobContext) -> None:
    """A coroutine that cannot be cancelled."""
    journal("start", ctx)
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            continue


@harbor.task(name="hold")
def hold(ctx: JobContext) -> None:
    """Hold the interpreter for ever."""
    journal("start", ctx)
    ctypes.PyDLL(None).sleep(600)


@harbor.task(name="linger")
def linger(way: str, ctx: JobContext) -> None:
    """End, and leave behind what keeps a process from exiting."""
    journal("start", ctx)
    if way == "a thread":
        threading.Thread(target=time.sleep, args=(600,), daemon=False).start()
    else:
        atexit.register(time.sleep, 600)
