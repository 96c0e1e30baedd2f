"""Handlers that do to processes what handlers do: fork, terminate, start what does not end.

FOLDER (environment): where the journal is, and the files that `gate` waits for.
"""

import asyncio
import atexit
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
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


# In a child process of their own


@harbor.task(name="leaves_program", process=True, max_attempts=1)
def leaves_program(then: str, ctx: JobContext) -> None:
    """Start a program that never ends, tell its number, and wait for it, or hold the interpreter."""
    program = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    journal(f"left:{program.pid}", ctx)
    if then == "hold":
        ctypes.PyDLL(None).sleep(600)
    elif then == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif then != "end":
        program.wait()


@harbor.task(name="leaves_fork", process=True, max_attempts=1)
def leaves_fork(ctx: JobContext) -> None:
    """Die, and leave a forked process behind that has every descriptor of this one."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
    journal(f"left:{pid}", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@harbor.task(name="talks", process=True, max_attempts=1)
def talks(threads: int, ctx: JobContext) -> str:
    """Tell progress from several threads at once, with notes that no pipe takes in one piece."""

    def tell(number: int) -> None:
        for step in range(20):
            ctx.progress(step, 20, f"{ctx.job.id} {number} " + "x" * 100_000)

    running = [threading.Thread(target=tell, args=(number,)) for number in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    return ctx.job.id


@harbor.task(name="talks_on", process=True, max_attempts=1)
def talks_on(ctx: JobContext) -> str:
    """End while a thread goes on telling progress for ever."""

    def tell() -> None:
        while True:
            ctx.progress(1, 2, ctx.job.id)

    threading.Thread(target=tell, daemon=True).start()
    return ctx.job.id
