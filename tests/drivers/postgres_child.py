"""A newer program, for tests of upgrades: it has one more migration than we have, and functions that differ.

    python -m tests.drivers.postgres_child ADDRESS keeps|raises

It upgrades the schema and says `upgraded`. Then it takes and finishes a job for each line it is told, and says what it
was. `raises`: older programs may not use the schema any more.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.postgres import PostgresDriver, schema, statement

MORE = """
create table more (id text);
alter table jobs add column note text not null default 'old';
alter table history add column note text not null default 'old';
create or replace view records as select * from jobs union all select * from history;
create index jobs_note on jobs (note) where state = 2;
"""
ours = schema.sources


def sources(folder: str) -> list[tuple[str, str]]:
    """Our files, one more migration, and a reserve that answers another column, before the others."""
    if folder == "migrations":
        more = MORE + (f"update meta set oldest = {statement.VERSION};" if sys.argv[2] == "raises" else "")
        return [*ours(folder), (f"{statement.VERSION:04d}_more.sql", more)]
    changed = [
        (name, text.replace("returns table (id text,", "returns table (note text, id text,"))
        for name, text in ours(folder)
    ]
    return [
        (name, text.replace("select j.id, j.queue, j.type", "select j.note, j.id, j.queue, j.type")
         .replace("returning j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,\n",
                  "returning j.note, j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,\n"))
        if name == "05_reserve.sql" else (name, text)
        for name, text in changed
    ]  # fmt: skip


async def main(address: str) -> None:
    schema.sources = sources
    statement.VERSION += 1
    store = PostgresDriver(f"{address}?migrate=auto")
    await store.open()
    now = datetime.now(UTC)
    await store.enqueue([JobRecord(id="by the new one", type="t")], now)
    print("upgraded", flush=True)
    while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        held = await store.reserve(["default"], now, timedelta(seconds=60), 1, "new")
        assert await store.settle([Ack(each.lease) for each in held], now) == [None] * len(held)
        print(",".join(each.job.id for each in held), flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
