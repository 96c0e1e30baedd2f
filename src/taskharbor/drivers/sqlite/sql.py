"""The statements: one file each in `sql/`, read once, used by name.

`{columns}` stands for all columns of a job, `{light}` for the same without payload and result, which may be large.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "sql"

COLUMNS = (
    "num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, open, holds, "
    "type, payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, "
    "depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, result, "
    "priority"
)


LIGHT = COLUMNS.replace("payload", "NULL AS payload").replace(" result", " NULL AS result")


def statement(name: str) -> str:
    """The text of a statement without its comments: it is also its name in sqlite3's cache."""
    text = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line).replace("{columns}", COLUMNS).replace("{light}", LIGHT)
