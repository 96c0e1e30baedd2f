"""Typing commands: in this process where that is enough, in real ones where the process is what is tested."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

import click
from click.testing import CliRunner

from taskharbor.cli import main
from taskharbor.drivers import Driver, JobRecord, Reserved, open_driver

T = TypeVar("T")
MINUTE = timedelta(minutes=1)
PATIENCE = 60.0  # seconds for what takes one on an idle machine


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The one line on stderr that reports a mistake."""
        (line,) = self.err.splitlines()
        assert self.out == "", self.out
        assert "Traceback" not in line
        return line


def taskharbor(*arguments: str, stdin: str = "", environment: dict[str, str] | None = None) -> Answer:
    """A command in this process. Its stdin and stdout are no terminals."""
    environ = {"TASKHARBOR_DSN": None, **(environment or {})}
    result = CliRunner().invoke(main, list(arguments), input=stdin, env=environ, prog_name="taskharbor")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def environment(**changes: str) -> dict[str, str]:
    """The environment of a real process."""
    return {**{name: value for name, value in os.environ.items() if name != "TASKHARBOR_DSN"}, **changes}


def program(*arguments: str, cwd: str | None = None, timeout: float = 60, **environ: str) -> Answer:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "taskharbor", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
        env=environment(**environ),
        stdin=subprocess.DEVNULL,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def at_terminal(*arguments: str, columns: int, answer: bytes = b"", **environ: str) -> tuple[int, str]:
    """The same on a terminal with this number of columns; stdout and stderr as one, as a person sees them."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "taskharbor", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(COLUMNS=str(columns), LINES="50", TERM="xterm-256color", **environ),
    )
    os.close(theirs)
    if answer:
        os.write(ours, answer)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    return process.wait(60), seen.decode().replace("\r\n", "\n")


class Process:
    """A command that goes on, such as a worker: ended by TERM when the block ends. Both its streams are read as one."""

    def __init__(self, *arguments: str, cwd: str | None = None, **environ: str) -> None:
        self.arguments = arguments
        self.environ = environ
        self.cwd = cwd
        self.seen = ""
        self.code: int | None = None
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "taskharbor", *self.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.cwd,
            env=environment(**self.environ),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.code = self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(PATIENCE)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                with self._changed:
                    self.seen += line.decode()
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def wait_for(self, word: str) -> None:
        """Until it has said this."""
        with self._changed:
            said = self._changed.wait_for(lambda: word in self.seen or not self._reader.is_alive(), PATIENCE)
        assert said, f"{word} was not said: {self.seen[-3000:]}"
        assert word in self.seen, self.seen[-3000:]


def leaves(command: click.Command = main, path: str = "") -> Iterator[str]:
    """Every command that does something, by what is typed."""
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from leaves(found, f"{path} {name}".strip())
    else:
        yield path


def looking_again(look: Callable[[], T | None], what: str) -> T:
    """What `look` finds, once it finds something. A store does not report changes, so the test polls."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = look()
        if found is not None:
            return found
        threading.Event().wait(0.1)
    raise AssertionError(f"it did not come to pass: {what}")


def within(dsn: str, work: Callable[[Driver, datetime], Awaitable[T]]) -> T:
    """Do something with a store, as a program of its own would."""

    async def run() -> T:
        driver = open_driver(dsn)
        await driver.open()
        try:
            return await work(driver, await driver.server_time())
        finally:
            await driver.close()

    return asyncio.run(run())


def store(dsn: str, *jobs: JobRecord) -> None:
    """Store jobs."""
    within(dsn, lambda driver, now: driver.enqueue(jobs, now))


def reserve(dsn: str, queue: str = "default", worker: str = "w1", limit: int = 1) -> list[Reserved]:
    """Take jobs under a lease."""
    return within(dsn, lambda driver, now: driver.reserve([queue], now, MINUTE, limit, worker))


def kill(
    dsn: str, *ids: str, reason: str = "failed 1 of 1 attempts", error: str = "ValueError: no", queue: str = "default"
) -> None:
    """Have jobs fail for good."""

    async def work(driver: Driver, now: datetime) -> None:
        for reserved in await driver.reserve([queue], now, MINUTE, 1000, "w1"):
            if reserved.job.id in ids:
                await driver.fail(reserved.lease, now, reason, attempts=1, failed_at=now, last_error=error)
            else:
                await driver.retry(reserved.lease, now, attempts=0)

    within(dsn, work)
