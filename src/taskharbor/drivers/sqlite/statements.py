"""The SQL statements: one file each in `sql/`, read once, used by name.

In them `{columns}` stands for all columns of a job, `{light}` for the same without payload, result and trail, which may
be large. `{unknown}`, `{stopped}` and `{has_jobs}` are conditions: the state of a job is unknown; it is unknown, dead
or cancelled; has_jobs.sql. `{now}` is the parameter `now` of a caller whose last reading of the store's clock had
`stepped`, as the store sees it: see store_clock.py.
"""

from __future__ import annotations

from pathlib import Path

from taskharbor.drivers.sqlite.records import COLUMNS

FOLDER = Path(__file__).parent / "sql"

LIGHT = (
    COLUMNS.replace(" payload", " x'' AS payload")
    .replace(" result", " NULL AS result")
    .replace(" trail", " NULL AS trail")
)
# These must match the conditions of indexes exactly, or SQLite will not use them: of taskharbor_jobs_unknown,
UNKNOWN_STATE = " AND ".join(f"state IS NOT {state}" for state in range(6))
STOPPED = " AND ".join(f"state IS NOT {state}" for state in range(4))  # of taskharbor_jobs_stopped
LISTED = "(state IS NOT 1 OR moment IS NOT NULL) AND state IS NOT 2 AND state IS NOT 3"  # of taskharbor_jobs_state


def statement(name: str) -> str:
    """The text of a statement without its comments. sqlite3 caches prepared statements by this text."""
    text = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()]
    text = "\n".join(line for line in lines if line)
    for word, meaning in _MEANINGS.items():
        text = text.replace(word, meaning)
    return text


_MEANINGS = {
    "{columns}": COLUMNS,
    "{light}": LIGHT,
    "{unknown}": UNKNOWN_STATE,
    "{stopped}": STOPPED,
    "{now}": "(SELECT :now + stepped - ifnull(:stepped, stepped) FROM taskharbor_meta)",
}
_MEANINGS["{has_jobs}"] = statement("has_jobs")
