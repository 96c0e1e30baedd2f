"""The application after an upgrade: the same tasks, in a program whose TaskHarbor has one more migration.

MIGRATIONS (environment): a folder with the migrations of such a program, on SQLite. A driver that gets a schema of its
own adds itself here.
"""

import os
from pathlib import Path

from tests.drivers.postgres_newer_schema import become_newer
from tests.everyday.tasks import DSN, harbor

MORE = (
    "CREATE TABLE taskharbor_more (id TEXT);\n"
    "ALTER TABLE taskharbor_jobs ADD COLUMN more TEXT;\n"
    "CREATE INDEX taskharbor_jobs_more ON taskharbor_jobs (more) WHERE more IS NOT NULL;\n"
)

if DSN.startswith("sqlite"):
    from taskharbor.drivers.sqlite import schema

    folder = Path(os.environ["MIGRATIONS"])
    if not folder.exists():
        made = folder.with_name(f"{folder.name}.{os.getpid()}")
        made.mkdir()
        for file in schema.FOLDER.glob("*.sql"):
            (made / file.name).write_text(file.read_text())
        (made / f"{schema.SCHEMA + 1:04d}_more.sql").write_text(MORE)
        try:
            made.rename(folder)
        except OSError:
            pass  # another process was faster
    schema.FOLDER = folder
    schema.SCHEMA += 1
elif DSN.startswith("postgres"):
    become_newer()

__all__ = ["harbor"]
