"""Edges between jobs: which are open, what depends on a job, and what happens when it is done."""

from __future__ import annotations

from datetime import datetime

from taskharbor.drivers import State, replace
from taskharbor_mystore.store import Row, Store


def link(store: Store, row: Row) -> None:
    """Note which rows its dependencies are: another job may get the id of one that was deleted."""
    row.edges = {id: store.rows[id].stored for id in row.record.depends_on if id in store.rows}


def waiting_for(store: Store, row: Row) -> tuple[str, ...]:
    """The dependencies that are not done, in their order, each once."""
    return tuple(
        id
        for id, stored in row.edges.items()
        if id in store.rows and store.rows[id].stored == stored and store.rows[id].state is not State.DONE
    )


def dependents_of(store: Store, row: Row) -> list[Row]:
    """The jobs that depend on this one, in the order in which they were stored."""
    return [other for other in store.rows.values() if other.edges.get(row.record.id) == row.stored]


def release(store: Store, dependents: list[Row], now: datetime) -> None:
    """Make those ready that wait for nothing else."""
    for row in dependents:
        if row.state is State.BLOCKED and not waiting_for(store, row):
            store.make_ready(row, now)


def hand_over(dependents: list[Row], old: Row, heir: Row) -> None:
    """Put `heir` in the place of `old`, wherever it is depended on."""
    for row in dependents:
        ids = tuple(heir.record.id if id == old.record.id else id for id in row.record.depends_on)
        row.record = replace(row.record, depends_on=ids)
        edges = {**row.edges, heir.record.id: heir.stored}
        row.edges = {id: edges[id] for id in ids if id in edges}


def last_in_place(store: Store, row: Row) -> Row:
    """The job that has the place of this one now, over however many handovers."""
    while row.record.handed_to is not None and row.record.handed_to in store.rows:
        row = store.rows[row.record.handed_to]
    return row
