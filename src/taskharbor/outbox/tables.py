"""The tables beside an application's own: made by `harbor.outbox.create`, or from `taskharbor outbox sql`."""

from __future__ import annotations

from taskharbor.drivers.within import POSTGRES, SQLITE, Caller

ONCE = "taskharbor_once"
OUTBOX = "taskharbor_outbox"
ADVICE = "make it with harbor.outbox.create(connection), or with the SQL of: taskharbor outbox sql"

_TYPES = {
    POSTGRES: {"id": "bigint generated always as identity primary key", "number": "bigint", "bytes": "bytea"},
    SQLITE: {"id": "integer primary key autoincrement", "number": "integer", "bytes": "blob"},
}

# Moments are microseconds since 1970, as everywhere in our SQL. A row of the outbox is one call that enqueued: its jobs
# are stored together. One with a `problem` was set aside, for a person.
_TABLES = (
    """create table if not exists {once} (
    key text primary key,
    job_id text not null,
    fence {number} not null,
    at {number} not null
)""",
    "create index if not exists {once}_at on {once} (at)",
    """create table if not exists {outbox} (
    id {id},
    job_id text not null,
    jobs integer not null,
    at {number} not null,
    records {bytes} not null,
    problem text not null default ''
)""",
    "create index if not exists {outbox}_waiting on {outbox} (id) where problem = ''",
    "create index if not exists {outbox}_aside on {outbox} (id) where problem <> ''",
)


def statements(database: str) -> tuple[str, ...]:
    """The statements that make the tables, where they do not exist yet."""
    return tuple(each.format(once=ONCE, outbox=OUTBOX, **_TYPES[database]) for each in _TABLES)


async def create(caller: Caller) -> None:
    """Make the tables in the caller's transaction, where they do not exist yet."""
    for statement in statements(caller.database):
        await caller.ask(statement, ())
