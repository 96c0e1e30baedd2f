"""What the memory driver counts and indexes instead of searching for it, worked out again from the jobs alone."""

from collections import Counter
from typing import Any

from taskharbor.drivers.memory.flows import dependencies
from taskharbor.drivers.memory.records import (
    BLOCKED,
    DONE,
    DUE,
    EXPIRED,
    INFLIGHT,
    LEASED,
    READY,
    SCHEDULED,
    STANDINGS,
    finished,
)
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.model.times import to_us


def recount(store: MemoryStore) -> None:
    """Every number and every index of the store, worked out again from the jobs alone."""
    entries = list(store.entries.values())
    for name, queue in store.queues.items():
        own = [entry for entry in entries if entry.queue is queue]
        assert all(entry.record.queue == name for entry in own)
        counted = Counter(entry.standing for entry in own)
        assert queue.counts == [counted[standing] for standing in STANDINGS]
        assert queue.keys == {
            entry.record.idempotency_key: entry.record.id for entry in own if entry.record.idempotency_key
        }
        calendar, now = queue.calendar, queue.calendar.now
        for entry in own:
            moment, run_at = entry.moment, entry.record.run_at
            if entry.standing in LEASED:
                assert entry.lease is not None
                assert moment == to_us(entry.lease.expires_at)
                assert (entry.standing == EXPIRED) == (moment <= now)
            elif entry.standing in (READY, SCHEDULED):
                assert moment == (None if run_at is None else to_us(run_at))
                assert (entry.standing == SCHEDULED) == (moment is not None and moment > now)
                assert not entry.lease
            else:
                assert moment is None
                assert not entry.lease
        held = {(entry.moment, entry.record.id) for entry in own if entry.moment is not None}
        sides = [*calendar.ahead.items(), *calendar.behind.items()]
        assert {(moment, entry.record.id) for moment, bucket in sides for entry in bucket} == held
        assert all(bucket for _, bucket in sides)
        assert all(moment > now for moment in calendar.ahead)
        assert all(moment <= now for moment in calendar.behind)
        assert set(calendar.ahead) <= set(calendar._next)
        assert {-moment for moment in calendar.behind} <= set(calendar._past)
        live = [item[-1] for item in [*queue.ungrouped.in_order, *queue.ungrouped.heap] if item[-1].place == item[-2]]
        assert len(live) == len(set(live)) == queue.ungrouped.size() - queue.ungrouped.stale
        assert set(live) == {entry for entry in own if entry.standing in DUE and entry.record.group is None}
        recount_groups(queue, [entry for entry in own if entry.record.group is not None])
    for entry in entries:
        recount_edges(store, entry)
    for flow_id, flow in store.flows.items():
        assert set(flow.members) == {entry for entry in entries if entry.record.flow_id == flow_id}
        assert flow.open == sum(not finished(entry) for entry in flow.members)
        assert set(flow.parked) <= {entry for entry in flow.members if entry.parked}
    assert set(store.flows) == {entry.record.flow_id for entry in entries if entry.record.flow_id}
    over = {entry for entry in entries if finished(entry) and not entry.parked}
    for kept, heap in ((False, store.finished), (True, store.kept)):
        ended = [item[-1] for item in [*heap.in_order, *heap.heap] if item[-1].place == item[-2]]
        assert len(ended) == heap.size() - heap.stale
        assert set(ended) == {entry for entry in over if (entry.record.keep_for is not None) is kept}
    for standing, names in store.ids_in.items():
        stands = {entry.record.id for entry in entries if entry.standing == standing}
        assert stands <= set(names.in_order(len(stands)))
    assert store.entries.keys() <= set(store.ids.in_order(len(entries)))
    assert store.flows.keys() <= set(store.flow_ids.in_order(len(store.flows)))


def recount_groups(queue, members):
    groups = queue.groups
    due: dict[Any, set[Any]] = {}
    held = Counter(entry.record.group for entry in members if entry.standing == INFLIGHT)
    for entry in members:
        if entry.standing in DUE:
            due.setdefault(entry.record.group, set()).add(entry)
    assert set(groups._groups) == due.keys() | held.keys()
    for name, group in groups._groups.items():
        assert group.inflight == held[name]
        live = [item[-1] for item in group.heap if item[-1].place == item[-2]]
        assert len(live) == group.size() - group.stale
        assert set(live) == due.get(name, set())
        assert group.limit == groups._limits.get(name, 1)
        assert group.waiting == (group in groups.turns)
        assert group.waiting or not (live and group.has_capacity())
    assert len(set(groups.turns)) == len(groups.turns)


def recount_edges(store, entry):
    linked = [dependency for dependency in dependencies(store, entry) if entry in (dependency.dependents or {})]
    if entry.standing == BLOCKED:
        assert entry.open == sum(dependency.standing != DONE for dependency in linked)
        assert entry.open > 0
    for dependent, unfinished in (entry.dependents or {}).items():
        assert store.entries.get(dependent.record.id) is dependent
        assert entry.record.id in dependent.record.depends_on
        assert unfinished == (not finished(dependent))
    assert entry.holds == sum((entry.dependents or {}).values())
    if entry.parked:
        flow = store.flows.get(entry.record.flow_id or "")
        assert finished(entry)
        assert entry.holds or (flow is not None and flow.open and entry in flow.parked)
