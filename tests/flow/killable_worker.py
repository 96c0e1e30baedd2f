"""A worker process for tests that kill it: `python -m tests.flow.killable_worker DSN JOURNAL [forks]`.

Every execution is a line in the journal. It prints `running` when a member that has to wait has started, and lets
that one return when it is sent a line. `forks`: for each number it is sent, a fork of it works, and kills itself
(SIGKILL) at the point of that number, where every call to the store has two, before and after it.
"""

import os
import signal
import sys
from typing import Any

from taskharbor import Harbor
from taskharbor.drivers import Driver, WrappedDriver, open_driver
from taskharbor.flow import chain, chord
from taskharbor.worker import Worker as _Worker  # noqa: F401 - once, not in every fork
from tests.flow.fork_server import serve

VERBS = ("reserve", "settle", "results")


class Mortal(WrappedDriver):
    """A driver that kills its process at a point."""

    def __init__(self, inner: Driver, points: list[int]) -> None:
        super().__init__(inner)
        self._points = points

    def sibling(self) -> "Mortal":
        return Mortal(self.inner.sibling(), self._points)

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        if verb not in VERBS:
            return await call()
        self._point()
        answer = await call()
        self._point()
        return answer

    def _point(self) -> None:
        self._points[0] -= 1
        if self._points[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Work:
    """The tasks, on any harbor."""

    def __init__(self, harbor: Harbor, journal: str) -> None:
        def note(line: str) -> None:
            with open(journal, "a", encoding="utf-8") as file:
                file.write(line + "\n")

        @harbor.task(name="step")
        def step(x: int, wait: bool = False) -> int:
            note(f"step {x}")
            if wait and __name__ == "__main__":
                print("running", flush=True)
                sys.stdin.readline()
            return x + 1

        @harbor.task(name="last")
        def last(numbers: list[int]) -> int:
            note("last")
            return sum(numbers)

        self.step, self.last = step, last

    def chain(self) -> Any:
        return chain(self.step.s(1), self.step.s(wait=True), self.step.s())

    def chord(self, wait: bool = False) -> Any:
        return chord([self.step.s(1), self.step.s(2, wait=wait)], self.last.s())


def main() -> None:
    dsn, journal, *forked = sys.argv[1:]
    points = [0]
    harbor = Harbor(Mortal(open_driver(dsn), points))
    Work(harbor, journal)

    def run(point: int) -> None:
        points[0] = point
        harbor.worker(concurrency=1).run(until_empty=True)

    if forked:
        serve(run)
    else:
        run(0)


if __name__ == "__main__":
    main()
