"""Signals, once and again, in every phase of a program that runs a worker itself: it can always be ended.

Each program runs beside the others, since most of their time is waiting.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from taskharbor.client import Client, JobRequest
from taskharbor.drivers import open_driver
from tests import lanes
from tests.worker import signal_program

pytestmark = pytest.mark.left_to("full", except_for=lanes.Chosen("test_one_signal"))

TERM, INT = signal.SIGTERM, signal.SIGINT
JOBS = ("coroutine", "swallowing", "background", "blocking", "elsewhere", "thread", "child")
STILL = ("still:open", "still:reserve", "still:beat", "still:close")
NUMBERS = count()  # of the programs: each has a file of its own
QUIET = 60.0  # seconds of real time after which a program counts as one that cannot be ended


class Program:
    """One program in one phase."""

    def __init__(self, phase: str, folder: Path) -> None:
        self.phase = phase
        self.file = folder / f"{phase.replace(':', '-')}-{next(NUMBERS)}.db"
        self.process: Process
        self.said: list[str] = []

    async def start(self) -> None:
        driver = open_driver(f"sqlite:///{self.file}")
        async with Client(driver) as client:
            if self.phase in JOBS:
                request = JobRequest(type=f"signal_program.{self.phase}", payload={}, id="j")
                await client.aenqueue(request)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, signal_program.__file__, self.phase, str(self.file), stdout=PIPE, stderr=DEVNULL
        )
        await self.says("there")

    async def says(self, text: str) -> None:
        assert self.process.stdout is not None
        while text not in self.said:
            line = await self.process.stdout.readline()
            assert line, f"{self.phase}: ended with {await self.process.wait()} after {self.said}, before {text!r}"
            self.said.append(line.decode().strip())

    def send(self, number: signal.Signals) -> None:
        # Not through Popen, whose look at the process would take its exit code away from asyncio's own.
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    async def ended(self) -> int:
        assert self.process.stdout is not None
        rest, code = await asyncio.gather(self.process.stdout.read(), self.process.wait())
        self.said += rest.decode().split()
        return code

    async def insist(self, number: signal.Signals) -> int:
        """Again and again, as an operator would, until it has ended."""
        ended = asyncio.ensure_future(self.ended())
        while not ended.done():
            self.send(number)
            await asyncio.wait((ended,), timeout=0.1)
        return await ended

    async def given_back(self) -> bool:
        """Whether its job is there for others, with nothing held against it."""
        driver = open_driver(f"sqlite:///{self.file}")
        await driver.open()
        try:
            info = await driver.inspect("j", await driver.server_time())
        finally:
            await driver.close()
        return (str(info.state), info.job.attempts, info.job.lost) == ("ready", 0, 0)


@asynccontextmanager
async def started(phase: str, folder: Path) -> AsyncIterator[Program]:
    each = Program(phase, folder)
    try:
        async with asyncio.timeout(QUIET):
            await each.start()
            yield each
    except TimeoutError:
        raise AssertionError(f"{phase}: still there, having said {each.said}") from None
    finally:
        if each.process.returncode is None:
            each.process.kill()
            await each.process.wait()


async def once(phase: str, folder: Path, number: signal.Signals) -> None:
    """One signal: the program's own code goes on after `run()`, whatever the handler or the store does."""
    async with started(phase, folder) as each:
        each.send(number)
        assert await each.ended() == 0, (phase, each.said)
        assert each.said[-1] == "returned", (phase, each.said)
        if phase in JOBS:
            assert await each.given_back(), phase


async def twice(phase: str, folder: Path, number: signal.Signals) -> None:
    """Two: the second does not wait for the grace period; each ends it as the first would have."""
    async with started(phase, folder) as each:
        each.send(number)
        if not phase.startswith("still:open"):
            await each.says("stopping")
            each.send(TERM if number is INT else INT)
        code = await each.ended()
        # Where it had ended between the two, the second found the program's own handlers.
        assert code in (0, -TERM, -INT, 1, 130), (phase, code, each.said)
        if phase in JOBS:
            assert await each.given_back(), phase


async def to_the_end(phase: str, folder: Path, number: signal.Signals) -> None:
    """As many as it takes: the third is the last, also while a handler blocks the loop."""
    async with started(phase, folder) as each:
        code = await each.insist(number)
        assert "returned" in each.said or code in (-number, 1, 130), (phase, code, each.said)
        if phase == "elsewhere":
            assert await each.given_back()


def together(*programs: Coroutine[Any, Any, None]) -> None:
    """All to their end, so that none is left behind; then what went wrong."""

    async def all_of_them() -> list[BaseException | None]:
        return await asyncio.gather(*programs, return_exceptions=True)

    problems = [str(problem) or repr(problem) for problem in asyncio.run(all_of_them()) if problem is not None]
    assert not problems, "\n".join(problems)


def test_one_signal(tmp_path: Path) -> None:
    phases = [phase for phase in ("idle", *JOBS, *STILL) if phase not in ("blocking", "elsewhere")]
    together(*(once(phase, tmp_path, INT if index % 2 else TERM) for index, phase in enumerate(phases)))


def test_two_signals(tmp_path: Path) -> None:
    phases = ("idle", "coroutine", "swallowing", "thread", "child", "still:reserve")
    together(*(twice(phase, tmp_path, TERM if index % 2 else INT) for index, phase in enumerate(phases)))


def test_as_many_signals_as_it_takes(tmp_path: Path) -> None:
    together(*(to_the_end(phase, tmp_path, number) for phase in ("blocking", "elsewhere") for number in (TERM, INT)))
