"""A TaskHarbor with one more migration of PostgreSQL than ours, and functions that differ, in this process."""

from taskharbor.drivers.postgres import schema, statement

MORE = """
create table more (id text);
alter table jobs add column note text not null default 'old';
alter table history add column note text not null default 'old';
create or replace view records as select * from jobs union all select * from history;
create index jobs_note on jobs (note) where state = 2;
"""
RETURNING = "returning j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,\n"


def become_newer(*, alone: bool = False) -> None:
    """`alone`: after the migration older programs may not use the schema any more."""
    ours = schema.sources
    statement.VERSION += 1
    more = MORE + (f"update meta set oldest = {statement.VERSION};" if alone else "")

    def sources(folder: str) -> list[tuple[str, str]]:
        """Our files, one more migration, and a reserve that answers another column, before the others."""
        if folder == "migrations":
            return [*ours(folder), (f"{statement.VERSION:04d}_more.sql", more)]
        files = dict(ours(folder))
        files = {name: text.replace("returns table (id text,", "returns table (note text, id text,")
                 for name, text in files.items()}  # fmt: skip
        reserve = files["05_reserve.sql"]
        for before in ("select j.id, j.queue, j.type", RETURNING):
            reserve = reserve.replace(before, before.replace("j.id", "j.note, j.id"))
        return [*{**files, "05_reserve.sql": reserve}.items()]

    schema.sources = sources
