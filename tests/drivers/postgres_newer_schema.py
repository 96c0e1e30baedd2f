"""A TaskHarbor with one more migration of PostgreSQL than ours, and functions that differ, in this process."""

from typing import TYPE_CHECKING

from taskharbor.drivers.postgres import schema, statement

if TYPE_CHECKING:
    import pytest

MORE = """
create table more (id text primary key);
alter table jobs add column extra text not null default 'old';
alter table history add column extra text not null default 'old';
create or replace view records as select * from jobs union all select * from history;
create index jobs_extra on jobs (extra) where state = 2;
"""


def become_newer(*, alone: bool = False) -> None:
    """`alone`: after the migration older programs may not use the schema any more."""
    ours = schema.sources
    statement.VERSION += 1
    more = MORE + (f"update meta set oldest = {statement.VERSION};" if alone else "")

    def sources(folder: str) -> list[tuple[str, str]]:
        """Our files, one more migration, and reserve functions that return another column before the others."""
        if folder == "migrations":
            return [*ours(folder), (f"{statement.VERSION:04d}_more.sql", more)]
        files = dict(ours(folder))
        for file, before, after in (
            ("reserved_job.sql", "    id text", "    extra text,\n    id text"),
            ("as_reserved.sql", "row(j.id,", "row(j.extra, j.id,"),
        ):
            assert before in files[file]
            files[file] = files[file].replace(before, after, 1)
        return [*files.items()]

    schema.sources = sources


def be_newer(monkeypatch: "pytest.MonkeyPatch", *, alone: bool = False) -> None:
    """The same until the test ends."""
    monkeypatch.setattr(schema, "sources", schema.sources)
    monkeypatch.setattr(statement, "VERSION", statement.VERSION)
    become_newer(alone=alone)
