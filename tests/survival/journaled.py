"""A driver that notes each of its calls before and after, and that kills its process at a failpoint.

A failpoint is `VERB WHEN NTH`, for example `settle after 2`: behind the second settle, before its reply is used.
"""

import itertools
import os
import signal
from typing import Any

from taskharbor.drivers import Ack, Cancelled, Driver, Fail, WrappedDriver
from taskharbor.model.errors import TaskHarborError
from tests.survival.journal import Pen

VERBS = ("enqueue", "reserve", "settle", "extend", "results", "beat", "release")
FINAL = (Ack, Fail, Cancelled)


class Failpoint:
    """Counts down to the moment at which this process dies, or with `stop` at the end stops itself (SIGSTOP)."""

    def __init__(self, text: str = "") -> None:
        self.verb, self.when, nth, *stop = text.split() if text else ("", "", "0")
        self.left, self.stops = int(nth), bool(stop)
        self.text = text

    def reached(self, verb: str, when: str, pen: Pen) -> None:
        if (verb, when) != (self.verb, self.when):
            return
        self.left -= 1
        if self.left == 0:
            pen.note("stopping" if self.stops else "dying", self.text)
            os.kill(os.getpid(), signal.SIGSTOP if self.stops else signal.SIGKILL)


class Journaled(WrappedDriver):
    """Around any driver."""

    def __init__(self, inner: Driver, pen: Pen, failpoint: Failpoint) -> None:
        super().__init__(inner)
        self._pen, self._failpoint = pen, failpoint
        self._numbers = itertools.count(1)
        self._fences: dict[str, int] = {}  # token → delivery, by our own count

    def sibling(self) -> "Journaled":
        made = Journaled(self.inner.sibling(), self._pen, self._failpoint)
        made._fences, made._numbers = self._fences, self._numbers
        return made

    async def around(self, name: str, call: Any, args: Any) -> Any:
        if name not in VERBS:
            return await call()
        number = next(self._numbers)
        self._failpoint.reached(name, "before", self._pen)
        self._pen.note("call", name, number, self._ids(name, args))
        try:
            reply = await call()
        except BaseException as error:
            self._pen.note("raised", name, number, type(error).__name__)
            raise
        if name == "reserve":
            self._noted(name, number, args, reply)
        self._failpoint.reached(name, "after", self._pen)
        if name != "reserve":
            self._noted(name, number, args, reply)
        self._pen.note("reply", name, number)
        return reply

    def _ids(self, name: str, args: Any) -> list[str]:
        if name == "settle":
            return [outcome.lease.job_id for outcome in args[0]]
        if name == "extend":
            return [lease.job_id for lease in args[0]]
        return []

    def _noted(self, name: str, number: int, args: Any, reply: Any) -> None:
        if name == "reserve":
            for each in reply:
                self._fences[each.lease.token] = each.job.deliveries
            if reply:
                self._pen.note("reserved", [[each.job.id, each.job.deliveries] for each in reply], number)
        elif name == "settle":
            rows = [
                [
                    outcome.lease.job_id,
                    self._fences.get(outcome.lease.token, 0),
                    said is None,
                    isinstance(outcome, FINAL),
                ]
                for outcome, said in zip(args[0], reply, strict=True)
            ]
            self._pen.note("settled", rows, number)
        elif name == "extend":
            kept = [
                [lease.job_id, self._fences.get(lease.token, 0)]
                for lease, said in zip(args[0], reply, strict=True)
                if not isinstance(said, TaskHarborError)
            ]
            self._pen.note("extended", kept, number)
