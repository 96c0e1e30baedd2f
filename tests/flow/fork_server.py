"""Processes that are cheap to kill: one that has imported everything forks a fresh one for each number it is sent.

What a fork does, and where it kills itself (SIGKILL), is up to the module that calls `serve`. A fork inherits no
connection and no thread, for nothing is opened before it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

STOPPED = -signal.SIGSTOP


def serve(child: Callable[[int], None]) -> None:
    """For each number on stdin run `child(number)` in a fork, and report how that ended.

    One that stops itself (SIGSTOP) is reported as STOPPED, goes on after the next line, and is reported again at
    its end.
    """
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                child(int(line))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        status = os.waitpid(pid, os.WUNTRACED)[1]
        if os.WIFSTOPPED(status):
            print(STOPPED, flush=True)
            sys.stdin.readline()
            os.kill(pid, signal.SIGCONT)
            status = os.waitpid(pid, 0)[1]
        print(os.waitstatus_to_exitcode(status), flush=True)


@contextmanager
def forks(module: str, dsn: str, journal: Path) -> Iterator[Callable[[int], int]]:
    """`python -m MODULE DSN JOURNAL forks`, as a function: a number → how the fork that got it ended."""
    command = [sys.executable, "-m", module, dsn, str(journal), "forks"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sent, told = process.stdin, process.stdout

        def run(number: int) -> int:
            sent.write(f"{number}\n")
            sent.flush()
            answer = told.readline()
            assert answer, f"it ended with {process.wait()}"
            return int(answer)

        yield run
        sent.close()
        process.wait()
