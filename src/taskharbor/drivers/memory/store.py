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

from msgspec.structs import replace

from taskharbor.drivers.memory.flows import StoredFlow, hold, unhold, unlink
from taskharbor.drivers.memory.heaps import OrderedEntries
from taskharbor.drivers.memory.queue import JobQueue
from taskharbor.drivers.memory.records import DLQ, DONE, INFLIGHT, UNKNOWN, Entry, damaged_reason, finished
from taskharbor.drivers.wait_calls import WaitCalls
from taskharbor.model.job import EPOCH, JobRecord, WorkerInfo
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
        self.workers: dict[str, WorkerInfo] = {}
        self.waiters = WaitCalls()
        self.number = 0  # the last number given; everything that has an order of arrival takes one
        self.unmet: dict[str, Entry] = {}  # damaged (by a test) so that no queue would ever reach them
        self.time = EPOCH
        self._ids: list[str] | None = []  # sorted, some of them gone; None: to be made again
        self._gone = 0

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
            flow.members[entry] = None
            flow.open += 1
        ids = self._ids
        if ids is not None:
            if not ids or record.id > ids[-1]:
                ids.append(record.id)
            else:
                self._ids = None
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
            del flow.members[entry]
            if not flow.members:
                del self.flows[record.flow_id]
        self.forget_if_empty(queue)
        self._gone += 1

    def sorted_ids(self) -> list[str]:
        """All ids in order. Some may be gone from `entries` since."""
        if self._ids is None or self._gone * 2 > len(self._ids):
            self._ids = sorted(self.entries)
            self._gone = 0
        return self._ids

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
        if standing != DLQ:
            self.finished.append(now, entry)
            if record.flow_id is not None or record.depends_on:
                self.close(entry)

    def finish_leased(self, entry: Entry, record: JobRecord, now: int) -> None:
        """`finish` as DONE for an INFLIGHT job, without the calls of its queue: nearly every job ends here."""
        queue, moment = entry.queue, entry.moment
        assert moment is not None
        leases = queue.calendar.ahead  # INFLIGHT: its lease ends after the moment at which the queue stands
        bucket = leases[moment]
        del bucket[entry]
        if not bucket:
            del leases[moment]
        entry.moment = entry.lease = None
        entry.record = record
        entry.standing = DONE
        counts = queue.counts
        counts[INFLIGHT] -= 1
        counts[DONE] += 1
        self.finished.append(now, entry)
        if record.group is not None and queue.groups.free(record.group):
            queue.arrived = self.next_number()
        if record.flow_id is not None or record.depends_on:
            self.close(entry)

    def take_out(self, entry: Entry, record: JobRecord, standing: int) -> None:
        """Take a job out of where it is, to a standing that no queue orders."""
        self._leave(entry)
        entry.record = record
        entry.queue.set_standing(entry, standing)

    def _leave(self, entry: Entry) -> None:
        if finished(entry):
            if entry.place is not None:
                self.finished.discard(entry)
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
            self.finished.push((to_us(entry.record.finished_at),), entry)

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
