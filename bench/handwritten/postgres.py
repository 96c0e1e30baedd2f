"""Postgres' limit: psycopg 3, one connection; `for update skip locked` of some, `delete` of the same.

Claims and acknowledgements are as durable as the server says, as in our driver: a claim that a crash takes back
takes its fence back too. Relaxed, as our driver with reserve=unflushed: claims are made on a second connection, which
does not wait for their flush; acknowledgements stay durable. Statements are prepared.
"""

from __future__ import annotations

from typing import Any

import psycopg

from bench import meter
from bench.meter import Measured, Order

Connection = psycopg.Connection[tuple[Any, ...]]

CLAIM = """
update jobs set taken = now() where id = any(array(
  select id from jobs where taken is null order by id limit %s for update skip locked))
returning id, payload
"""
ACK = "delete from jobs where id = any(cast(%s as bigint[]))"  # one text: psycopg is slow at lists
INSERT = "insert into jobs (payload) select '{}' from generate_series(1, %s)"


def _open(address: str) -> Connection:
    connection = psycopg.connect(address, autocommit=True, prepare_threshold=0)
    connection.execute("set enable_seqscan = off")
    connection.execute(
        "create table if not exists jobs (id bigint generated always as identity primary key, payload bytea not null,"
        " taken timestamptz)"
    )
    connection.execute("create index if not exists line on jobs (id) where taken is null")
    return connection


def _work(order: Order, connection: Connection, claims: Connection) -> int:
    done = 0
    while done < order.jobs:
        claimed = claims.execute(CLAIM, (order.width,)).fetchall()
        if not claimed:
            break
        connection.execute(ACK, ("{" + ",".join([str(row[0]) for row in claimed]) + "}",))
        done += len(claimed)
    return done


def process(order: Order) -> Measured:
    """Claimed and deleted, several at a time."""
    with _open(order.address) as connection, _open(order.address) as second:
        second.execute("set synchronous_commit = off")
        connection.execute(INSERT, (order.jobs,))
        connection.execute("vacuum analyze jobs")
        with meter.Watch(order.server) as watch:
            done = _work(order, connection, second if order.relaxed else connection)
    return watch.sample(done)


def enqueue_one(order: Order) -> Measured:
    """A transaction for each job."""
    with _open(order.address) as connection, meter.Watch(order.server) as watch:
        for _ in range(order.jobs):
            connection.execute("insert into jobs (payload) values (%s)", (b"{}",))
    return watch.sample(order.jobs)


def enqueue_many(order: Order) -> Measured:
    """COPY of a thousand jobs at a time, each with its payload."""
    with _open(order.address) as connection, meter.Watch(order.server) as watch:
        for size in meter.batches(order.jobs):
            with connection.cursor() as cursor, cursor.copy("copy jobs (payload) from stdin") as copy:
                for _ in range(size):
                    copy.write_row((b"{}",))
    return watch.sample(order.jobs)


MODES: dict[str, meter.Mode] = {"process": process, "enqueue-one": enqueue_one, "enqueue-many": enqueue_many}

if __name__ == "__main__":
    meter.main(MODES)
