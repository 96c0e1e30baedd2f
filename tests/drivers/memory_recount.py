"""What the memory driver indexes instead of searching for it, worked out again from the jobs alone."""

from taskharbor.drivers import State
from taskharbor.drivers.memory.queue import JobQueue
from taskharbor.drivers.memory.records import Entry
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.model.times import from_us, to_us


def recount(store: MemoryStore) -> None:
    """Every index of the store, worked out again from the jobs alone."""
    entries = set(store.entries.values())
    for name, queue in store.queues.items():
        own = {entry for entry in entries if entry.record.queue == name}
        assert queue.entries.keys() == own
        assert queue.keys == {
            entry.record.idempotency_key: entry.record.id for entry in own if entry.record.idempotency_key
        }
        recount_times(queue, own)
        recount_groups(queue, own)
    assert {entry.record.queue for entry in entries} <= store.queues.keys()
    for entry in entries:
        recount_edges(store, entry)
    flows = {entry.record.flow_id for entry in entries if entry.record.flow_id}
    assert {id: set(members) for id, members in store.flows.items()} == {
        id: {entry for entry in entries if entry.record.flow_id == id} for id in flows
    }
    assert store.cancelled_flows <= flows
    for has_own, line in ((False, store.finished), (True, store.kept)):
        ended = {entry for entry in entries if entry.finished and (entry.record.keep_for is not None) is has_own}
        assert line.places.keys() == ended
    for line in (store.finished, store.kept, *(line for queue in store.queues.values() for line in every_line(queue))):
        assert len(line._heap) <= 2 * len(line) + 65
        assert {entry: place for place, entry in line._heap if line.places.get(entry) == place} == line.places


def every_line(queue: JobQueue):
    return [queue.ahead, queue.behind, *queue.lines()]


def is_waiting(entry: Entry) -> bool:
    """In its queue, waiting or leased."""
    return entry.state in (State.READY, State.INFLIGHT)


def recount_times(queue: JobQueue, own: set[Entry]) -> None:
    timed = {entry: to_us(entry.moment) for entry in own if is_waiting(entry) and entry.moment is not None}
    ahead = {entry: (moment, entry.arrival) for entry, moment in timed.items() if moment > queue.now}
    behind = {entry: (-moment, entry.arrival) for entry, moment in timed.items() if moment <= queue.now}
    assert queue.ahead.places == ahead
    assert queue.behind.places == behind
    assert all((entry.lease is not None) == (entry.state is State.INFLIGHT) for entry in own)
    due = {entry for entry in own if is_waiting(entry) and entry not in ahead}
    due |= {entry for entry in own if not isinstance(entry.state, State)}  # a test lost its state: see memory_damage.py
    assert {entry for line in queue.lines() for entry in line.places} == due


def recount_groups(queue: JobQueue, own: set[Entry]) -> None:
    now = from_us(queue.now)
    in_lines = {entry for line in queue.lines() for entry in line.places}
    leased = {entry for entry in own if entry.state_at(now) is State.INFLIGHT}
    assert all(entry.record.group is None for entry in queue.ungrouped.places)
    assert set(queue.groups) == {entry.record.group for entry in in_lines | leased if entry.record.group is not None}
    for name, group in queue.groups.items():
        members = {entry for entry in own if entry.record.group == name}
        assert group.inflight == members & leased
        assert group.due.places.keys() == members & in_lines
        assert group.limit == queue.limits.get(name, 1)
        assert (name in queue.turns) == (len(group.due) > 0 and group.capacity > 0)
    assert queue.turns.keys() <= queue.groups.keys()


def recount_edges(store: MemoryStore, entry: Entry) -> None:
    found = {store.entries[id] for id in entry.record.depends_on if id in store.entries}
    linked = {dependency for dependency in found if entry in dependency.dependents}
    if entry.state is State.BLOCKED:
        assert entry.open == {dependency for dependency in linked if dependency.state is not State.DONE}
        assert entry.open
    for dependent in entry.dependents:
        assert store.entries.get(dependent.record.id) is dependent
        assert entry.record.id in dependent.record.depends_on
