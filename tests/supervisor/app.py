"""The application whose jobs the worker processes of these tests run. What happens is written to a journal.

FOLDER (environment): where the journal is, and the files that `gate` waits for.
"""

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from taskharbor import Harbor, JobContext

FOLDER = Path(os.environ.get("FOLDER", "."))
harbor = Harbor()  # the store is the command line's


def journal(word: str, ctx: JobContext) -> None:
    """One line in one write: lines of several processes never mix."""
    with open(FOLDER / "journal", "ab", buffering=0) as file:
        file.write(f"{word} {ctx.job.id} {os.getpid()} {ctx.fence}\n".encode())


@harbor.task(name="gate", max_attempts=3)
async def gate(name: str, ctx: JobContext) -> int:
    """Run until a file of that name is there."""
    journal("start", ctx)
    while not (FOLDER / name).exists():
        await asyncio.sleep(0.02)
    journal("end", ctx)
    return os.getpid()


@harbor.task(name="note")
def note(ctx: JobContext) -> int:
    """A quick job."""
    journal("start", ctx)
    return os.getpid()


@harbor.task(name="outlive", timeout=0.2)
def outlive(ctx: JobContext) -> None:
    """A plain function that goes on after its timeout, and checks nothing."""
    journal("start", ctx)
    threading.Event().wait()


@harbor.task(name="hold")
def hold(seconds: int, ctx: JobContext) -> None:
    """Hold the interpreter: a foreign function that is called without letting go of it."""
    journal("start", ctx)
    ctypes.PyDLL(None).sleep(seconds)
    journal("end", ctx)


@harbor.task(name="backtrack")
def backtrack(length: int, ctx: JobContext) -> None:
    """Hold the interpreter as people do: with a regular expression."""
    journal("start", ctx)
    re.match(r"(a+)+$", "a" * length + "b")
    journal("end", ctx)


@harbor.task(name="die")
async def die(ctx: JobContext) -> None:
    """Take the process down once the others are at work."""
    journal("start", ctx)
    while not (FOLDER / "die").exists():
        await asyncio.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


@harbor.task(name="leave")
def leave(ctx: JobContext) -> None:
    """Start a program that never ends, and wait for it."""
    program = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    journal(f"left:{program.pid}", ctx)
    program.wait()


KEPT: list[bytes] = []


@harbor.task(name="leak")
def leak(megabytes: int, ctx: JobContext) -> None:
    """Keep memory for ever."""
    journal("start", ctx)
    KEPT.append(os.urandom(1024) * 1024 * megabytes)


@harbor.task(name="leak_in_child", process=True)
def leak_in_child(megabytes: int, ctx: JobContext) -> None:
    """Keep memory for ever in a child process, which is used again."""
    leak.function(megabytes, ctx)


@harbor.task(name="orphan")
def orphan(ctx: JobContext) -> None:
    """Leave a process behind whose parent is gone, and which ends when the gate opens."""
    journal("start", ctx)
    inner = f"while [ ! -e '{FOLDER}/orphans' ]; do sleep 0.05; done; exit 3"
    subprocess.run(["sh", "-c", f"({inner}) &"], check=True, stdin=subprocess.DEVNULL)


@harbor.task(name="look")
def look(ctx: JobContext) -> dict[str, int]:
    """How many processes there are here, and how many ended ones nobody has reaped."""
    states = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            states.append(each.read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue
    return {"processes": len(states), "zombies": states.count("Z")}
