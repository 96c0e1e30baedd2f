"""The tables beside an application's own: made by `harbor.outbox.create`, or from `taskharbor outbox sql`."""

from __future__ import annotations

from taskharbor.drivers.within import POSTGRES, SQLITE, Caller

ONCE = "taskharbor_once"
ADVICE = "make it with harbor.outbox.create(connection), or with the SQL of: taskharbor outbox sql"

_NUMBERS = {POSTGRES: "bigint", SQLITE: "integer"}

# Moments are microseconds since 1970, as everywhere in our SQL. `jobs` and `key` are text in both databases.
_TABLES = (
    """create table if not exists {once} (
    key text primary key,
    job_id text not null,
    fence {number} not null,
    at {number} not null
)""",
    "create index if not exists {once}_at on {once} (at)",
)


def statements(database: str) -> tuple[str, ...]:
    """The statements that make the tables, where they do not exist yet."""
    return tuple(each.format(once=ONCE, number=_NUMBERS[database]) for each in _TABLES)


async def create(caller: Caller) -> None:
    """Make the tables in the caller's transaction, where they do not exist yet."""
    for statement in statements(caller.database):
        await caller.ask(statement, ())
