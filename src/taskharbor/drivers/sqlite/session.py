"""One write transaction: numbers, queues, slots of groups, and what has arrived. The calls of a batch share one.

What changes often within a call is kept here and written once at its end (`flush`): the last number, the rows of
queues, how many members of a group are inflight. A call that fails is rolled back to its savepoint and `forget`s.

The last number is that of taskharbor_meta or the highest of a stored job, whichever is more. So an enqueue, which is a
transaction of its own as a rule, need not write a page for it.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from taskharbor.drivers.sqlite.records import JobRow
from taskharbor.drivers.sqlite.statements import statement

LOAD = statement("load")
SAVE = statement("save")
GROUP_FLUSH = statement("group_flush")
GROUP_TURN = statement("group_turn")
GROUP_FORGET = statement("group_forget")
QUEUE_LOAD = "SELECT paused, at, arrived, served, groups_next FROM taskharbor_queues WHERE name = ?"
LOOK = statement("look")
QUEUE_SAVE = statement("queue_save")
QUEUE_FORGET = statement("queue_forget")
NUMBER_LOAD = "SELECT number, (SELECT max(num) FROM taskharbor_jobs) FROM taskharbor_meta"
NUMBER_SAVE = "UPDATE taskharbor_meta SET number = ?"
MANY = 128  # rows on which no event loop waits


class WouldBlock(Exception):
    """A call cannot be worked off at once: something has to be waited for, or it is a large one."""


class Queue(msgspec.Struct):
    """A row of taskharbor_queues."""

    name: str
    paused: int = 0
    at: int = 0
    arrived: int = 0
    served: int = 0
    groups_next: int = 1
    dirty: bool = False


class WriteSession:
    """What the calls of one transaction share. `hurried`: an event loop stands still meanwhile."""

    def __init__(self, connection: Any, hurried: bool = False) -> None:
        cursor: sqlite3.Cursor = connection.cursor()
        self.execute = cursor.execute
        self.executemany = cursor.executemany
        self.fetchone = cursor.fetchone
        self.fetchall = cursor.fetchall
        self.any_text = connection.text_factory is not str  # a row was met that holds text which is none
        self._cursor = cursor
        self._hurried = hurried
        self._number: int | None = None
        self._meta_number = 0  # as it stands in taskharbor_meta
        self._kept_number = 0  # the last one that is stored, there or with a job
        self._told_number = 0  # the last one at the end of the last call
        self._queues: dict[str, Queue] = {}
        self._slots: dict[tuple[str, str], int] = {}
        self._arrivals: set[str] = set()
        self.arrived: dict[str, int] = {}  # queue → number, of all calls so far: who waits is told after the commit

    def expect(self, rows: int) -> None:
        """So many rows are about to be worked on one by one."""
        if self._hurried and rows > MANY:
            raise WouldBlock

    # Rows

    def one(self, sql: str, *given: Any) -> Any:
        """The first row, or None."""
        self.execute(sql, given)
        row = self.fetchone()
        if row is not None:
            self.fetchall()  # a statement left half-read would hold its snapshot
        return row

    def all(self, sql: str, *given: Any) -> list[Any]:
        """All rows."""
        self.execute(sql, given)
        return self.fetchall()

    def do(self, sql: str, *given: Any) -> int:
        """How many rows were changed."""
        self.execute(sql, given)
        return self._cursor.rowcount

    def changed(self) -> int:
        """How many rows the last statement changed."""
        return self._cursor.rowcount

    def load(self, id: str) -> JobRow | None:
        row = self.one(LOAD, id)
        return JobRow(*row) if row is not None else None

    def save(self, job: JobRow) -> None:
        """Write back what a transition may change."""
        self.execute(
            SAVE,
            (
                job.state,
                job.lined,
                job.time,
                job.arrival,
                job.moment,
                job.token,
                job.worker,
                job.settled,
                job.settled_as,
                job.run_at,
                job.attempts,
                job.lost,
                job.handed_to,
                job.last_error,
                job.failed_at,
                job.reason,
                job.finished_at,
                job.result,
                job.num,
            ),
        )

    # Numbers, queues, groups

    def next_number(self, count: int = 1) -> int:
        """The next number; with a count, the first of so many."""
        if self._number is None:
            self._meta_number, of_jobs = self.one(NUMBER_LOAD)
            self._number = self._kept_number = self._told_number = max(self._meta_number, of_jobs or 0)
        first = self._number + 1
        self._number += count
        return first

    def number_kept(self, number: int) -> None:
        """A job was stored under this number."""
        self._kept_number = max(self._kept_number, number)

    def number_leaves(self, number: int) -> None:
        """The job of this number is about to go: if nothing else keeps the last number, taskharbor_meta does."""
        self.next_number(0)
        if number > self._meta_number:
            self._save_number()

    def _save_number(self) -> None:
        assert self._number is not None
        self.execute(NUMBER_SAVE, (self._number,))
        self._meta_number = self._kept_number = self._number

    def queue(self, name: str) -> Queue:
        """The row of a queue, made with the first job of that name."""
        found = self.known_queue(name)
        if found is None:
            found = self._queues[name] = Queue(name, dirty=True)
        return found

    def known_queue(self, name: str) -> Queue | None:
        found = self._queues.get(name)
        if found is None:
            row = self.one(QUEUE_LOAD, name)
            if row is None:
                return None
            found = self._queues[name] = Queue(name, *row)
        return found

    def look(self, name: str, now: int) -> tuple[Queue, bool, bool, bool] | None:
        """A queue before a reserve: whether time changes it, a group stands in turn, anything is damaged."""
        self.execute(LOOK, {"queue": name, "now": now})
        rows = self.fetchall()
        if not rows:
            return None
        row = rows[0]
        queue = self._queues[name] = Queue(name, *row[:5])
        return queue, bool(row[5]), bool(row[6]), bool(row[7])

    def forget_queue(self, name: str) -> None:
        """Its last job may have gone: an empty queue's row goes too."""
        self.flush()
        self.execute(QUEUE_FORGET, {"queue": name})
        self._queues.pop(name, None)

    def arrive(self, queue: str) -> None:
        """A reserve from this queue may find more than before."""
        self._arrivals.add(queue)

    def touch_group(self, queue: str, group: str, slots: int = 0) -> None:
        """A member came into the line or left it; `slots`: so many more are inflight."""
        key = (queue, group)
        self._slots[key] = self._slots.get(key, 0) + slots

    # The end of a call

    def flush(self) -> None:
        """Write what was only noted."""
        if self._slots:
            self.flush_groups()
        if self._arrivals:
            # Whatever this call took a number for is an event as well: its last number is later than any told before.
            taken = self._number if self._number is not None and self._number > self._told_number else None
            number = self.next_number() if taken is None else taken
            for name in self._arrivals:
                queue = self.queue(name)
                queue.arrived, queue.dirty = number, True
                self.arrived[name] = number
            self._arrivals.clear()
        for queue in self._queues.values():
            if queue.dirty:
                self.execute(
                    QUEUE_SAVE,
                    (queue.name, queue.paused, queue.at, queue.arrived, queue.served, queue.groups_next),
                )
                queue.dirty = False
        if self._number is not None:
            if self._number > self._kept_number:
                self._save_number()
            self._told_number = self._number

    def flush_groups(self) -> None:
        """Count the slots, and let groups that have a member in line and a free slot stand in turn."""
        for (queue, group), slots in self._slots.items():
            self.execute(GROUP_FLUSH, (queue, group, slots))
            row = self.one(GROUP_TURN, self.next_number(), queue, group)
            if row is not None and row[0] is not None:
                if slots < 0:
                    self.arrive(queue)
            else:
                self.execute(GROUP_FORGET, {"queue": queue, "name": group})
        self._slots.clear()

    def forget(self) -> None:
        """The call was rolled back to its savepoint: nothing of what was noted is true."""
        self._number = None
        self._queues.clear()
        self._slots.clear()
        self._arrivals.clear()
