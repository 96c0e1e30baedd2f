"""Creating and upgrading the schema: numbered files in `migrations/`, applied in one transaction.

The number is kept in a table of our own, not in `PRAGMA user_version`: the file may be the application's, and that
pragma is the application's then. A process that dies in the middle leaves nothing behind; twenty that start at once
wait for the first.

Old and new programs use one file side by side during a deploy. So beside its number a schema says which programs may
still use it: `oldest`, the lowest schema number that a program may have been written for. A migration that older
programs can live with (a new table, a column with a default that they never name) leaves `oldest` as it is; any other
one raises it, `UPDATE taskharbor_meta SET oldest = …`, and is better split: add first, remove in a later version. Until
0.2.0, the first release, nobody has a file to upgrade: every change edits `0001`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from taskharbor.model.errors import DriverError, StoreMissing

FOLDER = Path(__file__).parent / "migrations"
SCHEMA = max(int(path.name[:4]) for path in FOLDER.glob("*.sql"))


class Found(NamedTuple):
    """What a file says about its schema: its number (0: none), and the oldest schema whose programs may use it."""

    version: int
    oldest: int

    @property
    def fits(self) -> bool:
        """Whether this program can use it as it is."""
        return self.oldest <= SCHEMA <= self.version


def schema_of(connection: Any, path: str) -> Found:
    """What the file says about its schema; DriverError if no release made it."""
    columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(taskharbor_meta)")]
    if "schema" in columns:  # `version` since 0.2.0
        raise DriverError(
            f"{path}: its schema was made by an unreleased version before 0.2.0, expected number {SCHEMA} of a "
            "release; it cannot be upgraded: remove the tables that begin with taskharbor_, or give another file"
        )
    return (
        Found(*connection.execute("SELECT version, oldest FROM taskharbor_meta").fetchone()) if columns else Found(0, 0)
    )


def expect(connection: Any, path: str) -> None:
    """DriverError unless this program can use the file's schema. Changes nothing."""
    found = schema_of(connection, path)
    if not found.version:
        raise StoreMissing(f"{path}: it has no tables of TaskHarbor yet; run `taskharbor migrate`")
    _refuse_misfit(found, path, "manual")


def prepare(connection: Any, path: str, mode: str) -> None:
    """Create or upgrade the schema inside the open transaction; DriverError if that is not allowed."""
    found = schema_of(connection, path)
    if found.fits:
        return
    _refuse_misfit(found, path, mode)
    for number in range(found.version + 1, SCHEMA + 1):
        (script,) = FOLDER.glob(f"{number:04d}_*.sql")
        for statement in statements(script.read_text(encoding="utf-8")):
            connection.execute(statement)
        connection.execute("UPDATE taskharbor_meta SET version = ?", (number,))


def _refuse_misfit(found: Found, path: str, mode: str) -> None:
    if found.oldest > SCHEMA:
        raise DriverError(
            f"{path}: its schema is number {found.version}, for programs that know number {found.oldest} or later; "
            f"this version of TaskHarbor knows {SCHEMA}. It was upgraded by a newer version (`taskharbor migrate`): "
            "upgrade TaskHarbor here as well."
        )
    if 0 < found.version < SCHEMA and mode != "auto":
        raise DriverError(
            f"{path}: its schema is number {found.version}, this version of TaskHarbor needs {SCHEMA}. "
            "Run `taskharbor migrate`, or open it with ?migrate=auto."
        )


def script(found: int) -> str:
    """The same as a script for the sqlite3 shell, where programs may not change a schema."""
    parts = []
    for number in range(found + 1, SCHEMA + 1):
        (file,) = FOLDER.glob(f"{number:04d}_*.sql")
        parts += [file.read_text(encoding="utf-8").strip(), f"UPDATE taskharbor_meta SET version = {number};"]
    return "\n".join(("BEGIN IMMEDIATE;", *parts, "COMMIT;", "")) if parts else ""


def statements(script: str) -> list[str]:
    """The statements of a script, one by one: `executescript` would commit first."""
    found, text = [], ""
    for line in script.splitlines():
        text += line.partition("--")[0].rstrip() + "\n"
        if sqlite3.complete_statement(text):
            if text.strip():
                found.append(text.strip())
            text = ""
    return found
