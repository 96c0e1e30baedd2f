"""Edges between jobs: which are open, and what happens when a job is done.

`open` of a job has its dependencies that are not done, and `dependents` the jobs that depend on it. Nothing searches
for them: a join of twenty thousand jobs costs each of them the same as a join of two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers.base import DEPENDENCY_CANCELLED_REASON
from taskharbor.drivers.memory.records import Entry
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.model.job import State


def link(store: MemoryStore, entry: Entry) -> None:
    """Make a job known to its dependencies, and note those that are not done."""
    found = {store.entries[id] for id in entry.record.depends_on if id in store.entries}
    for dependency in found:
        dependency.dependents.add(entry)
    entry.open = {dependency for dependency in found if dependency.state is not State.DONE}


def join_or_block(store: MemoryStore, entry: Entry, now: datetime) -> None:
    """Let a job join its queue, unless it has open dependencies."""
    link(store, entry)
    if entry.open:
        entry.state = State.BLOCKED
    else:
        store.join(entry, now)


def waiting_for(store: MemoryStore, entry: Entry) -> tuple[str, ...]:
    """The dependencies that are not done, in their order, each once.

    If a dependency was deleted and its id enqueued again, the new job is not that dependency.
    """
    return tuple(id for id in dict.fromkeys(entry.record.depends_on) if store.entries.get(id) in entry.open)


def last_in_place(store: MemoryStore, entry: Entry) -> Entry:
    """The job that has the place of this one now, over however many handovers, as far as its heirs still exist."""
    while entry.record.handed_to is not None and (heir := store.entries.get(entry.record.handed_to)) is not None:
        entry = heir
    return entry


def release_dependents(store: MemoryStore, entry: Entry, dependents: Collection[Entry], now: datetime) -> None:
    """The job is done: the dependents that wait for nothing else join, in the order in which they were stored."""
    for dependent in sorted(dependents, key=lambda one: one.stored):
        dependent.open.discard(entry)
        if dependent.state is State.BLOCKED and not dependent.open:
            store.join(dependent, now)


def cancel_behind(store: MemoryStore, cancelled: Iterable[Entry], now: datetime) -> None:
    """The blocked jobs of a flow that depend on a cancelled one can never run, so they are cancelled with it."""
    ahead = list(cancelled)
    for entry in ahead:
        for dependent in _behind(entry):
            if dependent.state is State.BLOCKED:
                store.finish(dependent, State.CANCELLED, now, reason=DEPENDENCY_CANCELLED_REASON)
                ahead.append(dependent)


def strand(store: MemoryStore, stranded: Collection[Entry], now: datetime) -> None:
    """Cancel jobs that can never run, and what is behind them."""
    for entry in stranded:
        store.finish(entry, State.CANCELLED, now, reason=DEPENDENCY_CANCELLED_REASON)
    cancel_behind(store, stranded, now)


def bring_back_behind(store: MemoryStore, requeued: Iterable[Entry], now: datetime) -> None:
    """What was cancelled with a job waits for it again, unless it depends on another one that is still cancelled."""
    ahead = list(requeued)
    for entry in ahead:
        for dependent in _behind(entry):
            if dependent.state is not State.CANCELLED or dependent.record.reason != DEPENDENCY_CANCELLED_REASON:
                continue
            link(store, dependent)
            if not is_stranded(dependent):
                store.leave(dependent)
                dependent.record = replace(dependent.record, reason="", finished_at=None)
                join_or_block(store, dependent, now)
                ahead.append(dependent)


def is_stranded(entry: Entry) -> bool:
    """Whether it can never run, because a job of its flow that it depends on is cancelled."""
    return any(other.state is State.CANCELLED and entry in _behind(other) for other in entry.open)


def _behind(entry: Entry) -> list[Entry]:
    """The jobs of the same flow that depend on it."""
    flow = entry.record.flow_id
    return [dependent for dependent in entry.dependents if flow is not None and dependent.record.flow_id == flow]


def hand_over(dependents: Collection[Entry], old: Entry, heir: Entry) -> None:
    """Put `heir` in the place of `old` in the `depends_on` of these dependents."""
    for dependent in dependents:
        ids = tuple(heir.record.id if id == old.record.id else id for id in dependent.record.depends_on)
        dependent.record = replace(dependent.record, depends_on=ids)
        if heir.state is not State.DONE:
            dependent.open.add(heir)
    heir.dependents.update(dependents)
    old.dependents.difference_update(dependents)
