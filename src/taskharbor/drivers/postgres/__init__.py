"""Jobs in PostgreSQL 15 and later, beside the application's own tables. docs/driver-postgres.md describes it.

psycopg is imported when a driver is opened, not before: it costs 0.3 s.
"""

from taskharbor.drivers.postgres.driver import PostgresDriver

__all__ = ["PostgresDriver"]
