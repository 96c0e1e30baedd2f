"""The SQL statements: one file each in `sql/`, read once, used by name.

In them `{columns}` stands for all columns of a job, `{light}` for the same without payload and result, which may be
large, and `{unknown}` for the condition that a job is in an unknown state.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "sql"

COLUMNS = (
    "num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, priority, holds, "
    "type, payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, "
    "depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, result"
)


LIGHT = COLUMNS.replace("payload", "NULL AS payload").replace(" result", " NULL AS result")
# Must match the condition of the index taskharbor_jobs_unknown exactly, or SQLite will not use that index.
UNKNOWN_STATE = " AND ".join(f"state IS NOT {state}" for state in range(6))


def statement(name: str) -> str:
    """The text of a statement without its comments. sqlite3 caches prepared statements by this text."""
    text = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()]
    text = "\n".join(line for line in lines if line)
    for word, meaning in (("{columns}", COLUMNS), ("{light}", LIGHT), ("{unknown}", UNKNOWN_STATE)):
        text = text.replace(word, meaning)
    return text
