"""SQLite's limit: a table with a partial index, `UPDATE … RETURNING` of some, `DELETE` of the same.

WAL, and `synchronous` as our driver has it by default: FULL for what is acknowledged, NORMAL for a claim.
Relaxed: NORMAL for both.
"""

from __future__ import annotations

import sqlite3
import time

from bench import meter
from bench.meter import Measured, Order

CLAIM = """
update jobs set taken = ? where id in (select id from jobs where taken is null order by id limit ?)
returning id, payload
"""


def _open(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute("create table if not exists jobs (id integer primary key, payload blob not null, taken real)")
    connection.execute("create index if not exists line on jobs (id) where taken is null")
    return connection


def _enqueue(connection: sqlite3.Connection, jobs: int) -> None:
    for size in meter.batches(jobs):
        connection.execute("begin immediate")
        connection.executemany("insert into jobs (payload) values (?)", [(b"{}",)] * size)
        connection.execute("commit")


def _work(connection: sqlite3.Connection, order: Order) -> int:
    done = 0
    while done < order.jobs:
        connection.execute("pragma synchronous = normal")
        connection.execute("begin immediate")
        claimed = connection.execute(CLAIM, (time.time(), order.width)).fetchall()
        connection.execute("commit")
        if not claimed:
            break
        if not order.relaxed:
            connection.execute("pragma synchronous = full")
        connection.execute("begin immediate")
        connection.executemany("delete from jobs where id = ?", [(row[0],) for row in claimed])
        connection.execute("commit")
        done += len(claimed)
    return done


def process(order: Order) -> Measured:
    """Claimed and deleted, several at a time."""
    connection = _open(order.address)
    _enqueue(connection, order.jobs)
    with meter.Watch() as watch:
        done = _work(connection, order)
    return watch.sample(done)


def enqueue_one(order: Order) -> Measured:
    """A transaction for each job."""
    connection = _open(order.address)
    with meter.Watch() as watch:
        for _ in range(order.jobs):
            connection.execute("insert into jobs (payload) values (?)", (b"{}",))
    return watch.sample(order.jobs)


def enqueue_many(order: Order) -> Measured:
    """A transaction for a thousand jobs."""
    connection = _open(order.address)
    with meter.Watch() as watch:
        _enqueue(connection, order.jobs)
    return watch.sample(order.jobs)


MODES: dict[str, meter.Mode] = {"process": process, "enqueue-one": enqueue_one, "enqueue-many": enqueue_many}

if __name__ == "__main__":
    meter.main(MODES)
