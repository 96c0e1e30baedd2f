"""What a call does inside one transaction: `ReadSession` on a snapshot, `WriteSession` on a write transaction.

The calls of a batch share one write transaction and its session. What changes often within a call is kept here and
written once at its end (`flush`): the last number, the rows of queues, how many members of a group are inflight. A call
that fails is rolled back to its savepoint, and `forget` drops what was kept.

Everything that has an order of arrival takes a number. The last number is that of taskharbor_meta or the highest of a
stored job, whichever is more. So an enqueue, which is a transaction of its own as a rule, need not write a page for it.
"""

from __future__ import annotations

import re
import sqlite3
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from taskharbor.drivers.sqlite.records import COLUMNS, JobRow
from taskharbor.drivers.sqlite.statements import statement

LOAD = f"SELECT {COLUMNS} FROM taskharbor_jobs WHERE id = ?"
SAVE = statement("save")
GROUP_FLUSH = statement("group_flush")
GROUP_TURN = statement("group_turn")
GROUP_FORGET = statement("group_forget")
QUEUE_LOAD = "SELECT paused, at, arrived, served, groups_next FROM taskharbor_queues WHERE name = ?"
BEFORE_ENQUEUE = statement("before_enqueue")
QUEUE_BEFORE_RESERVE = statement("queue_before_reserve")
QUEUE_SAVE = statement("queue_save")
QUEUE_FORGET = statement("queue_forget")
NUMBER_LOAD = "SELECT number, (SELECT max(num) FROM taskharbor_jobs) FROM taskharbor_meta"
NUMBER_SAVE = "UPDATE taskharbor_meta SET number = ?"
_saved = attrgetter(*re.findall(r"(\w+) = \?", SAVE))  # its parameters, in their order
MAX_INLINE_ROWS = 128  # that a call may change one by one while an event loop waits for it


class WouldBlock(Exception):
    """A call cannot run on the caller's thread: it would have to wait for something, or turned out to be large."""


class QueueRow(msgspec.Struct):
    """A row of taskharbor_queues."""

    name: str
    paused: int = 0
    at: int = 0
    arrived: int = 0
    served: int = 0
    groups_next: int = 1
    changed: bool = False


class QueueState(NamedTuple):
    """A queue before a reserve."""

    queue: QueueRow
    step: timedelta  # by how much the store's clock was set since the caller read it
    time_changes_it: bool
    has_group_in_turn: bool
    store_is_damaged: bool  # somewhere in the store a record is in an unknown state


class ReadSession:
    """Statements inside a transaction."""

    def __init__(self, connection: Any) -> None:
        cursor: sqlite3.Cursor = connection.cursor()
        self.execute = cursor.execute
        self.fetchall = cursor.fetchall
        self._cursor = cursor

    def one(self, sql: str, *given: Any) -> Any:
        """The first row of a statement that finds few, or None."""
        self.execute(sql, given)
        rows = self.fetchall()  # a statement that is not read to its end would hold its snapshot
        return rows[0] if rows else None

    def all(self, sql: str, *given: Any) -> list[Any]:
        """All rows."""
        self.execute(sql, given)
        return self.fetchall()

    def do(self, sql: str, *given: Any) -> int:
        """Run a statement; returns how many rows it changed."""
        self.execute(sql, given)
        return self._cursor.rowcount

    def rows_changed(self) -> int:
        """How many rows the last statement changed."""
        return self._cursor.rowcount

    def load(self, id: str) -> JobRow | None:
        """The job of this id, or None."""
        row = self.one(LOAD, id)
        return JobRow(*row) if row is not None else None


class WriteSession(ReadSession):
    """What the calls of one write transaction share. `inline`: an event loop waits meanwhile."""

    def __init__(self, connection: Any, inline: bool = False) -> None:
        super().__init__(connection)
        self.reads_any_text = connection.text_factory is not str  # a row was met whose text is not UTF-8
        self._inline = inline
        self._number: int | None = None
        self._meta_number = 0  # as it stands in taskharbor_meta
        self._stored_number = 0  # the last one that is stored, there or with a job
        self._reported_number = 0  # the last one at the end of the last call
        self._queues: dict[str, QueueRow] = {}
        self._groups: dict[tuple[str, str], int] = {}  # (queue, group) → how many more are inflight
        self._arrivals: set[str] = set()  # queues in which a reserve may find more than before, of this call
        self.arrivals: dict[str, int] = {}  # queue → number, of all calls: reported after the commit

    def check_size(self, rows: int) -> None:
        """WouldBlock if an event loop would have to wait for a loop over `rows` rows."""
        if self._inline and rows > MAX_INLINE_ROWS:
            raise WouldBlock

    def save(self, job: JobRow) -> None:
        """Write back what a transition may change."""
        self.execute(SAVE, _saved(job))

    # Numbers

    def next_number(self, count: int = 1) -> int:
        """The next number; with a count, the first of that many."""
        if self._number is None:
            self._set_number(*self.one(NUMBER_LOAD))
        assert self._number is not None
        first = self._number + 1
        self._number += count
        return first

    def _set_number(self, of_meta: int, of_jobs: int | None) -> None:
        self._meta_number = of_meta
        self._number = self._stored_number = self._reported_number = max(of_meta, of_jobs or 0)

    def number_is_stored(self, number: int) -> None:
        """A job was stored under this number."""
        self._stored_number = max(self._stored_number, number)

    def number_is_leaving(self, number: int) -> None:
        """The job of this number is about to be deleted: taskharbor_meta holds the last number if nothing else does."""
        self.next_number(0)
        if number > self._meta_number:
            self._save_number()

    def _save_number(self) -> None:
        assert self._number is not None
        self.execute(NUMBER_SAVE, (self._number,))
        self._meta_number = self._stored_number = self._number

    # Queues and groups

    def queue(self, name: str) -> QueueRow:
        """The row of a queue, made with the first job of that name."""
        queue = self.known_queue(name)
        if queue is None:
            queue = self._queues[name] = QueueRow(name, changed=True)
        return queue

    def known_queue(self, name: str) -> QueueRow | None:
        """The row of a queue, or None."""
        queue = self._queues.get(name)
        if queue is None:
            row = self.one(QUEUE_LOAD, name)
            if row is None:
                return None
            queue = self._queues[name] = QueueRow(name, *row)
        return queue

    def load_for_enqueue(self, id: str, queue: str) -> bool:
        """Load what the enqueue of one job needs to know; returns whether its id is stored."""
        self.execute(BEFORE_ENQUEUE, (id, queue))
        is_stored, of_meta, of_jobs, *columns = self.fetchall()[0]
        if self._number is None:
            self._set_number(of_meta, of_jobs)
        if columns[0] is not None and queue not in self._queues:
            self._queues[queue] = QueueRow(queue, *columns)
        return bool(is_stored)

    def queue_before_reserve(self, name: str, now: int, stepped: int | None) -> QueueState | None:
        """A queue and what has to be done before a reserve from it; None if there is no such queue."""
        self.execute(QUEUE_BEFORE_RESERVE, {"queue": name, "now": now, "stepped": stepped})
        rows = self.fetchall()
        if not rows:
            return None
        *columns, step, time_changes_it, has_group_in_turn, is_damaged = rows[0]
        queue = self._queues[name] = QueueRow(name, *columns)
        return QueueState(
            queue, timedelta(microseconds=step), bool(time_changes_it), bool(has_group_in_turn), bool(is_damaged)
        )

    def forget_queue(self, name: str) -> None:
        """Delete the row of a queue whose last job may have gone."""
        self.flush()
        self.execute(QUEUE_FORGET, (name,))
        self._queues.pop(name, None)

    def note_arrival(self, queue: str) -> None:
        """A reserve from this queue may find more than before."""
        self._arrivals.add(queue)

    def touch_group(self, queue: str, group: str, inflight: int = 0) -> None:
        """A member joined or left the line; `inflight`: how many more are inflight."""
        key = (queue, group)
        self._groups[key] = self._groups.get(key, 0) + inflight

    # The end of a call

    def flush(self) -> None:
        """Write what was kept."""
        if self._groups:
            self.flush_groups()
        if self._arrivals:
            # A number that this call took for anything else serves as well: it is later than any reported before.
            taken = self._number if self._number is not None and self._number > self._reported_number else None
            number = self.next_number() if taken is None else taken
            for name in self._arrivals:
                queue = self.queue(name)
                queue.arrived, queue.changed = number, True
                self.arrivals[name] = number
            self._arrivals.clear()
        for queue in self._queues.values():
            if queue.changed:
                self.execute(
                    QUEUE_SAVE,
                    (queue.name, queue.paused, queue.at, queue.arrived, queue.served, queue.groups_next),
                )
                queue.changed = False
        if self._number is not None:
            if self._number > self._stored_number:
                self._save_number()
            self._reported_number = self._number

    def flush_groups(self) -> None:
        """Write how many are inflight, and give groups with a member in line and capacity their turn."""
        for (queue, group), inflight in self._groups.items():
            self.execute(GROUP_FLUSH, (queue, group, inflight))
            row = self.one(GROUP_TURN, self.next_number(), queue, group)
            if row is not None and row[0] is not None:
                if inflight < 0:
                    self.note_arrival(queue)
            else:
                self.execute(GROUP_FORGET, {"queue": queue, "name": group})
        self._groups.clear()

    def forget(self) -> None:
        """The call was rolled back to its savepoint: nothing that was kept is true."""
        self._number = None
        self._queues.clear()
        self._groups.clear()
        self._arrivals.clear()
