"""The store: all jobs, and the few transitions of which every call is made.

Nothing here is asynchronous and nothing locks: the driver has `lock` around each call, so each is one transaction.
Every job is in `entries`. Its queue knows its place in the order, its flow and its dependencies whether it is
unfinished.
"""

from __future__ import annotations

import os
import threading
import weakref
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from taskharbor.drivers.memory.audit import StoredEntries
from taskharbor.drivers.memory.figures import StoredFigures
from taskharbor.drivers.memory.flows import StoredFlow, hold, unhold, unlink
from taskharbor.drivers.memory.heaps import OrderedEntries
from taskharbor.drivers.memory.names import OrderedNames
from taskharbor.drivers.memory.queue import JobQueue
from taskharbor.drivers.memory.records import (
    BLOCKED,
    DLQ,
    DONE,
    INFLIGHT,
    LISTED,
    MICROSECOND,
    UNKNOWN,
    Entry,
    damaged_reason,
    finished,
)
from taskharbor.drivers.wait_calls import WaitCalls
from taskharbor.model.job import EPOCH, JobRecord, WorkerInfo
from taskharbor.model.schedule import StoredSchedule
from taskharbor.model.times import to_us

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
        self.flows: dict[str, StoredFlow] = {}
        self.finished = OrderedEntries()  # done and cancelled jobs by the time they finished, for prune
        self.kept = OrderedEntries()  # those with a `keep_for`, by the end of that
        self.figures = StoredFigures()
        self.audit = StoredEntries()
        self.schedules: dict[str, StoredSchedule] = {}
        self.schedule_names: list[str] = []  # in order
        self.schedule_places: dict[str, list[tuple[datetime, str]]] = {}  # by queue: `next_at` and name, in order
        self.workers: dict[str, WorkerInfo] = {}
        self.waiters = WaitCalls()
        self.number = 0  # the last number given; everything that has an order of arrival takes one
        self.unmet: dict[str, Entry] = {}  # damaged (by a test) so that no queue would ever reach them
        self.time = EPOCH
        self.ids = OrderedNames(self.entries.__contains__)
        self.flow_ids = OrderedNames(self.flows.__contains__)
        # Jobs that are, or once were, in a state that few of many are in: so that they can be listed by it.
        self.ids_in = {standing: OrderedNames(partial(_stands, self.entries, standing)) for standing in LISTED}

    def __del__(self) -> None:
        # Queues and entries refer to each other, and the garbage collector does not see entries: separate them by hand.
        for queue in self.queues.values():
            queue.clear()

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def queue(self, name: str) -> JobQueue:
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = JobQueue(name)
        return found

    def forget_if_empty(self, queue: JobQueue) -> None:
        """Forget a queue unless it holds a job, is paused or has limits for its groups."""
        if not queue.paused and queue.empty() and not queue.groups.has_limits():
            self.queues.pop(queue.name, None)
            queue.clear()  # its stale items would keep it alive for good: see Entry

    # Coming and going

    def add(self, record: JobRecord) -> Entry:
        """A new job, which has no standing yet."""
        queue = self.queue(record.queue)
        entry = self.entries[record.id] = Entry(record, queue, self.next_number())
        queue.counts[UNKNOWN] += 1
        if record.group is not None or record.flow_id is not None or record.depends_on or record.keep_for is not None:
            entry.plain = False
        if record.idempotency_key is not None:
            queue.keys[record.idempotency_key] = record.id
        if (
            record.group is not None
            and record.group_limit > 0
            and queue.groups.set_limit(record.group, record.group_limit)
        ):
            queue.arrived = self.number
        if record.flow_id is not None:
            flow = self.flows.get(record.flow_id)
            if flow is None:
                flow = self.flows[record.flow_id] = StoredFlow()
                self.flow_ids.add(record.flow_id)
            flow.add(entry)
        self.ids.add(record.id)
        return entry

    def remove(self, entry: Entry) -> None:
        """Forget a job altogether."""
        self._leave(entry)
        if not finished(entry):
            self.close(entry)
        unlink(self, entry)
        record, queue = entry.record, entry.queue
        del self.entries[record.id]
        self.unmet.pop(record.id, None)
        queue.counts[entry.standing] -= 1
        if record.idempotency_key is not None and queue.keys.get(record.idempotency_key) == record.id:
            del queue.keys[record.idempotency_key]
        if record.flow_id is not None:
            flow = self.flows[record.flow_id]
            flow.remove(entry)
            if not flow.members:
                del self.flows[record.flow_id]
        self.forget_if_empty(queue)

    # Transitions

    def join(self, entry: Entry, record: JobRecord, now: int) -> None:
        """Take a job out of where it is, and let it join its queue: due from its `run_at` on."""
        self._leave(entry)
        entry.record = record
        entry.queue.join(entry, now, self.next_number())

    def finish(self, entry: Entry, standing: int, record: JobRecord, now: int) -> None:
        """To a terminal state, from any that is not finished."""
        queue = entry.queue
        if queue.leave(entry):
            queue.arrived = self.next_number()
        entry.record = record
        queue.set_standing(entry, standing)
        if standing != DONE:
            self._note_trouble(entry, standing)
        if standing != DLQ:
            self._await_prune(entry, now)
            if record.flow_id is not None or record.depends_on:
                self.close(entry)

    def finish_leased(self, entry: Entry, record: JobRecord, now: int) -> None:
        """`finish` as DONE for an INFLIGHT job, without the calls of its queue: nearly every job ends here."""
        queue, moment = entry.queue, entry.moment
        leases = queue.calendar.ahead  # INFLIGHT: its lease ends after the moment at which the queue stands
        bucket = leases[moment]  # type: ignore[index] # INFLIGHT has one; this is the hot path
        del bucket[entry]
        if not bucket:
            del leases[moment]  # type: ignore[arg-type] # as above
        entry.moment = entry.lease = None
        entry.record = record
        entry.standing = DONE
        counts = queue.counts
        counts[INFLIGHT] -= 1
        counts[DONE] += 1
        if entry.plain:
            self.finished.append(now, entry)
            return
        self._await_prune(entry, now)
        if record.group is not None and queue.groups.free(record.group):
            queue.arrived = self.next_number()
        if record.flow_id is not None or record.depends_on:
            self.close(entry)

    def _await_prune(self, entry: Entry, finished_at: int) -> None:
        """It is done or cancelled: prune may forget it."""
        keep_for = entry.record.keep_for
        if keep_for is None:
            self.finished.append(finished_at, entry)
        else:
            self.kept.append(finished_at + keep_for // MICROSECOND, entry)

    def _note_trouble(self, entry: Entry, standing: int) -> None:
        """It is dead or cancelled, which listings ask for."""
        flow_id = entry.record.flow_id
        self.ids_in[standing].add(entry.record.id)
        if flow_id is not None:
            flow = self.flows[flow_id]
            (flow.dead if standing == DLQ else flow.stopped)[entry] = None

    def block(self, entry: Entry) -> None:
        """It waits for its dependencies."""
        self.ids_in[BLOCKED].add(entry.record.id)
        entry.queue.set_standing(entry, BLOCKED)

    def take_out(self, entry: Entry, record: JobRecord) -> None:
        """Take a job out of where it is. A standing that no queue orders has to follow."""
        self._leave(entry)
        entry.record = record

    def _leave(self, entry: Entry) -> None:
        if finished(entry):
            if entry.place is not None:
                (self.finished if entry.record.keep_for is None else self.kept).discard(entry)
            elif entry.parked:
                self._forget_parked(entry)
        elif entry.queue.leave(entry):
            entry.queue.arrived = self.next_number()

    # What depends on a job being finished

    def close(self, entry: Entry) -> None:
        """It is finished: its flow and its dependencies have one unfinished job less to wait for."""
        record = entry.record
        if record.flow_id is not None:
            flow = self.flows[record.flow_id]
            flow.open -= 1
            if not flow.open:
                for parked in list(flow.parked):
                    self.unpark(parked)
        if record.depends_on:
            for dependency in unhold(self, entry):
                self.unpark(dependency)

    def reopen(self, entry: Entry) -> None:
        """It was finished and is to run again."""
        if entry.record.flow_id is not None:
            self.flows[entry.record.flow_id].open += 1
        if entry.record.depends_on:
            hold(self, entry)

    def unpark(self, entry: Entry) -> None:
        """What kept it from being pruned is gone: prune may take it again."""
        if entry.parked and entry.record.finished_at is not None:
            self._forget_parked(entry)
            self._await_prune(entry, to_us(entry.record.finished_at))

    def _forget_parked(self, entry: Entry) -> None:
        entry.parked = False
        if entry.record.flow_id is not None:
            self.flows[entry.record.flow_id].parked.pop(entry, None)

    # Damage

    def set_aside(self, entry: Entry, now: datetime) -> None:
        """A record that no worker can run goes to the dead letter queue, with what is wrong as its reason."""
        record = replace(entry.record, reason=damaged_reason(entry), finished_at=now)
        self.finish(entry, DLQ, record, to_us(now))

    def set_unmet_aside(self, now: datetime) -> None:
        """The same for all damaged records that no queue would ever reach."""
        for entry in list(self.unmet.values()):
            self.set_aside(entry, now)
        self.unmet.clear()


def _stands(entries: dict[str, Entry], standing: int, id: str) -> bool:
    entry = entries.get(id)
    return entry is not None and entry.standing == standing


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
