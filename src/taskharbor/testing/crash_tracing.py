"""Where an execution of a handler can end: before each line of the application's code that it runs, and around each
call that it makes to the store. One of these points can be armed: there the worker ends.

The worker's end is played: from that point on nothing that it does reaches the store, and the handler gets an exception
that it should not catch. Or it is real: its process exits at once.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.drivers.wrapped import WrappedDriver
from taskharbor.model.errors import InvalidJob, LeaseMismatch
from taskharbor.tasks.context import JobContext

CALLS = {"enqueue": "enqueued", "save": "stored"}  # what a handler asks of the store → how a point names it
KILLED = 9
_NOT_OURS = (os.path.dirname(os.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)  # never traced


class WorkerEnded(BaseException):
    """Raised in a handler where its worker ends. A handler must let it pass."""


class CrashPoint(msgspec.Struct, frozen=True):
    """A place where the execution of a handler can end."""

    file: str  # the file of the code that ran
    line: int  # the last line of it that was begun
    function: str  # the function in which that is
    how: str  # for a person: "after line 42"

    def __str__(self) -> str:
        return self.how


class CrashPlan:
    """The points of one execution, in order, and the one at which it ends."""

    def __init__(self, code: CodeType, job_id: str, at: int | None, *, repeats: int, exits: bool) -> None:
        self.points: list[CrashPoint] = []
        self.left_out = 0  # points at lines that had been reached often enough
        self.ended = False
        self._code, self._job_id, self._at = code, job_id, at
        self._repeats, self._exits = repeats, exits
        self._folder = os.path.dirname(code.co_filename)  # empty for code that is in no file
        self._lines: dict[FrameType, int] = {}
        self._visits = Counter[tuple[CodeType, int]]()
        self._last = code.co_firstlineno  # the line of the handler's own that runs now

    def __call__(self, context: JobContext) -> Any:
        """Call middleware: watches the handler of one job."""
        return self._watching() if context.job.id == self._job_id else _nothing()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before)
            self._lines.clear()

    def _entered(self, frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if file == self._code.co_filename:
            return self._line
        below = bool(self._folder) and file.startswith(self._folder + os.sep)
        return self._line if below and "site-packages" not in file and not file.startswith(_NOT_OURS) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            code, before = frame.f_code, self._lines.get(frame)
            if not self.ended:
                self._note(code, before, frame)
            if self.ended:
                raise WorkerEnded
            self._lines[frame] = frame.f_lineno
            if code is self._code:
                self._last = frame.f_lineno
        elif event == "return" and not frame.f_code.co_flags & 0x2A0:  # a generator's or a coroutine's frame goes on
            self._lines.pop(frame, None)
        return self._line

    def _note(self, code: CodeType, before: int | None, frame: FrameType) -> None:
        self._visits[code, frame.f_lineno] += 1
        if self._visits[code, frame.f_lineno] > self._repeats:
            self.left_out += 1
            return
        if before is None:
            how = f"at the beginning of {code.co_name}" + ("" if code is self._code else f", in line {self._last}")
        else:
            how = f"after line {before}" + ("" if code is self._code else f" of {code.co_name}, in line {self._last}")
        self.hit(CrashPoint(code.co_filename, before or self._last, code.co_name, how))

    def called(self, what: str) -> None:
        """A point around a call to the store."""
        self.hit(CrashPoint(self._code.co_filename, self._last, self._code.co_name, f"{what} (line {self._last})"))

    def hit(self, point: CrashPoint) -> None:
        """A point was reached: the worker ends, if it is the one."""
        if self.ended:
            return
        self.points.append(point)
        if len(self.points) - 1 == self._at:
            if self._exits:
                os._exit(KILLED)
            self.ended = True


@contextmanager
def _nothing() -> Iterator[None]:
    yield


class EndingDriver(WrappedDriver):
    """A store that a worker which has ended no longer reaches. `plans` has the plan of the execution that runs."""

    def __init__(self, inner: Driver, plans: list[CrashPlan]) -> None:
        super().__init__(inner)
        self._plans = plans

    def sibling(self) -> Driver:
        return EndingDriver(self.inner.sibling(), self._plans)

    async def around(self, verb: str, call: Callable[[], Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        plan = self._plans[-1] if self._plans else None
        if plan is None:
            return await call()
        watched = verb in CALLS and not plan.ended
        if watched:
            plan.called(f"before what it {CALLS[verb]} reached the store")
        elif verb == "settle" and plan.points and not plan.ended:
            plan.called("behind its last line, before that was recorded")
        if plan.ended:
            match verb:
                case "reserve":
                    return []
                case "settle":
                    return [LeaseMismatch("the worker has ended")] * len(args[0])
                case "save":
                    return LeaseMismatch("the worker has ended")
                case "enqueue":
                    raise InvalidJob("the worker has ended")
                case "release":
                    return 0
        result = await call()
        if watched:
            plan.called(f"after what it {CALLS[verb]} was in the store")
        return result
