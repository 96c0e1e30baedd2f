"""Who stores the schedules that the application declares: one process, once for each start of the supervisor.

If every process did so, one that is replaced after a crash would bring back what its code says, although a newer
version of the program has started elsewhere since. With `--reload` the code is new, and is stored again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from taskharbor.worker.supervisor.process import Process


class Declarations:
    """Asks one process that serves to store them; if that one ends before it has, another."""

    def __init__(self, fleet: Callable[[], Iterable[Process]]) -> None:
        self._fleet = fleet
        self._asked: Process | None = None
        self._are_stored = False

    def ready(self, process: Process) -> None:
        """A process serves."""
        if process.schedules and self._asked is None and not self._are_stored:
            self._asked = process
            process.declare()

    def stored(self, process: Process) -> None:
        """A process has stored them."""
        if process is self._asked:
            self._asked, self._are_stored = None, True

    def gone(self, process: Process) -> None:
        """A process has ended."""
        if process is self._asked:
            self._asked = None
            for other in self._fleet():
                if other.state == "running":
                    self.ready(other)

    def changed(self) -> None:
        """The program has changed: what is stored is old."""
        self._asked, self._are_stored = None, False
