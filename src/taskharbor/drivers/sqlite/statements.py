"""The SQL statements: one file each in `sql/`, read once, used by name.

In them `{columns}` stands for all columns of a job, `{light}` for the same without payload, result and trail, which may
be large. `{unknown}` is the condition that a job is in an unknown state, `{stopped}` that it is in that or dead or
cancelled.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "sql"

COLUMNS = (
    "num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, priority, holds, "
    "type, payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, "
    "depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, result, "
    "began_at, lost_at, trail, error_class, fingerprint, note, edits, keep_for"
)


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
    meanings = {"{columns}": COLUMNS, "{light}": LIGHT, "{unknown}": UNKNOWN_STATE, "{stopped}": STOPPED}
    for word, meaning in meanings.items():
        text = text.replace(word, meaning)
    return text
