"""The store: all jobs, and the few transitions of which every call is made.

Nothing here is asynchronous and nothing locks: the driver has `lock` around each call, so each is one transaction.
Every job is in `entries`. Its queue knows where `reserve` finds it, and its flow that it is a member.
"""

from __future__ import annotations

import os
import threading
import weakref
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from taskharbor.drivers.damage import damaged_reason
from taskharbor.drivers.memory.history import StoredEntries, StoredFigures
from taskharbor.drivers.memory.queue import JobQueue, Line
from taskharbor.drivers.memory.records import Entry, damage_of
from taskharbor.drivers.wait_calls import WaitCalls
from taskharbor.model.job import EPOCH, JobRecord, State, WorkerInfo
from taskharbor.model.schedule import StoredSchedule

_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()
_forking = threading.Lock()
_kept_still: list[MemoryStore] = []  # stores whose lock a fork under way holds


class MemoryStore:
    """The state that all drivers of one DSN share."""

    def __init__(self) -> None:
        _stores.add(self)
        self.lock = threading.Lock()
        self.entries: dict[str, Entry] = {}
        self.queues: dict[str, JobQueue] = {}
        self.flows: dict[str, dict[Entry, None]] = {}  # the members of each, in the order of enqueue
        self.cancelled_flows: set[str] = set()
        self.finished = Line()  # done and cancelled jobs by the time they finished, for prune
        self.kept = Line()  # those with a `keep_for`, by the end of that
        self.figures = StoredFigures()
        self.audit = StoredEntries()
        self.schedules: dict[str, StoredSchedule] = {}
        self.schedule_names: list[str] = []  # in order
        self.schedule_places: dict[str, list[tuple[datetime, str]]] = {}  # by queue: `next_at` and name, in order
        self.workers: dict[str, WorkerInfo] = {}
        self.waiters = WaitCalls()
        self.number = 0  # the last number given; everything that has an order of arrival takes one
        self.time = EPOCH

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def queue(self, name: str) -> JobQueue:
        if name not in self.queues:
            self.queues[name] = JobQueue(name)
        return self.queues[name]

    def queue_of(self, entry: Entry) -> JobQueue:
        return self.queues[entry.record.queue]

    def forget_if_empty(self, queue: JobQueue) -> None:
        """Forget a queue unless it holds a job, is paused or has limits for its groups."""
        if not queue.entries and not queue.paused and not queue.limits:
            self.queues.pop(queue.name, None)

    # Coming and going

    def add(self, record: JobRecord) -> Entry:
        """A new job, which is in no place yet."""
        entry = self.entries[record.id] = Entry(record, self.next_number())
        queue = self.queue(record.queue)
        queue.entries[entry] = None
        if record.idempotency_key is not None:
            queue.keys[record.idempotency_key] = record.id
        if record.group is not None and record.group_limit > 0:
            queue.set_limit(record.group, record.group_limit)
            queue.arrived = self.number
        if record.flow_id is not None:
            self.flows.setdefault(record.flow_id, {})[entry] = None
        return entry

    def remove(self, entry: Entry) -> None:
        """Forget a job altogether."""
        self.leave(entry)
        record, queue = entry.record, self.queue_of(entry)
        for id in record.depends_on:
            if id in self.entries:
                self.entries[id].dependents.discard(entry)
        del self.entries[record.id]
        del queue.entries[entry]
        if record.idempotency_key is not None and queue.keys.get(record.idempotency_key) == record.id:
            del queue.keys[record.idempotency_key]
        self.forget_if_empty(queue)
        if record.flow_id is not None:
            del self.flows[record.flow_id][entry]
            if not self.flows[record.flow_id]:
                del self.flows[record.flow_id]
                self.cancelled_flows.discard(record.flow_id)

    # Transitions

    def join(self, entry: Entry, now: datetime, **changes: Any) -> None:
        """Ready, or scheduled until its `run_at`: at the end of the order."""
        self.leave(entry)
        record = entry.record = replace(entry.record, **changes)
        entry.state = State.READY
        entry.due_at = now if record.run_at is None else max(record.run_at, now)
        entry.arrival = self.next_number()
        queue = self.queue_of(entry)
        queue.put(entry)
        queue.arrived = self.number  # also if it is scheduled: a worker that waits has to know until when

    def finish(self, entry: Entry, state: State, now: datetime, **changes: Any) -> None:
        """To a terminal state."""
        self.leave(entry)
        entry.record = replace(entry.record, finished_at=now, **changes)
        entry.state = state
        keep_for = entry.record.keep_for
        if state is State.DLQ:
            return  # never pruned
        if keep_for is None:
            self.finished.put(entry, now, entry.stored)
        else:
            self.kept.put(entry, now + keep_for, entry.stored)

    def leave(self, entry: Entry) -> None:
        """Take a job out of wherever it is. Its lease ends by that."""
        self.finished.remove(entry)
        self.kept.remove(entry)
        queue = self.queue_of(entry)
        queue.leave(entry)
        if entry.lease is not None and entry.record.group in queue.turns:  # another member may run now
            queue.arrived = self.next_number()
        entry.lease, entry.worker = None, ""

    def set_aside(self, entry: Entry, now: datetime) -> bool:
        """A record that no worker can run goes to the dead letter queue, with what is wrong as its reason. False: the
        record is sound."""
        damage = damage_of(entry)
        if damage is not None:
            self.finish(entry, State.DLQ, now, reason=damaged_reason(damage))
        return damage is not None


def _before_fork() -> None:
    """Wait for the calls of other threads: the child gets a store with no call half done, and no lock taken."""
    _forking.acquire()
    for store in list(_stores):
        store.lock.acquire()
        _kept_still.append(store)


def _after_fork_in_parent() -> None:
    while _kept_still:
        _kept_still.pop().lock.release()
    _forking.release()


def _after_fork_in_child() -> None:
    for store in _kept_still:
        store.waiters = WaitCalls()  # those that wait do so in the parent
    _after_fork_in_parent()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
