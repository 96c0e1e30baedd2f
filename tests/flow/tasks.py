"""The tasks of the flow tests, declared on any harbor. `ran` tells what was executed, in order."""

from typing import Any

from taskharbor import Cancel, Fixed, Harbor, JobContext, Unrecoverable
from taskharbor.flow import FlowFailure, chain, chord, group


class Broken(Exception):
    pass


class Tasks:
    def __init__(self, harbor: Harbor) -> None:
        ran: list[Any] = []
        self.ran = ran
        self.harbor = harbor
        self.broken: set[int] = set()  # numbers at which `step` dies
        self.again: dict[int, int] = {}  # number → how often `step` fails there before it succeeds

        @harbor.task(name="number")
        def number(n: int) -> int:
            ran.append(("number", n))
            return n

        @harbor.task(name="add", retry=Fixed(0), max_attempts=10)
        async def add(x: int, y: int = 1) -> int:
            ran.append(("add", x))
            if x in self.broken:
                raise Unrecoverable(f"{x} is broken")
            if self.again.get(x, 0):
                self.again[x] -= 1
                raise Broken(x)
            return x + y

        @harbor.task(name="total")
        def total(numbers: list[int]) -> int:
            ran.append(("total", numbers))
            return sum(numbers)

        @harbor.task(name="collect")
        def collect(value: Any) -> Any:
            ran.append(("collect", value))
            return value

        @harbor.task(name="nothing")
        def nothing() -> None:
            ran.append("nothing")

        @harbor.task(name="spread")
        def spread(n: int) -> Any:
            ran.append(("spread", n))
            return group(add.s(i) for i in range(n))

        @harbor.task(name="counted")
        def counted(n: int) -> Any:
            return chord((add.s(i) for i in range(n)), total.s())

        @harbor.task(name="down")
        def down(n: int) -> Any:
            return n if n == 0 else chain(down.s(n - 1))

        @harbor.task(name="alert")
        def alert(failure: FlowFailure, tag: str = "") -> None:
            ran.append(("alert", tag, failure.reason))

        @harbor.task(name="told")
        def told(failure: FlowFailure) -> None:
            ran.append(("told", failure.flow_id, failure.job_id, failure.job_type))

        @harbor.task(name="cancels")
        def cancels(x: int) -> int:
            raise Cancel("not wanted")

        @harbor.task(name="two")
        def two(ctx: JobContext, a: int, b: int) -> int:
            return a + b

        self.number, self.add, self.total, self.collect, self.nothing = number, add, total, collect, nothing
        self.spread, self.counted, self.down, self.alert = spread, counted, down, alert
        self.cancels, self.two, self.told = cancels, two, told

    def names(self) -> list[str]:
        return [each if isinstance(each, str) else each[0] for each in self.ran]
