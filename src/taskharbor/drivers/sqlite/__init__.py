"""The SQLite driver: jobs in one file, for one machine, without a server.

`driver.py` has the calls of the contract. `database.py` holds what all drivers of a process on one file share: the
thread that writes, the thread that reads, and the callers that wait for work. The other modules work inside a
transaction that the database has begun.
"""

from taskharbor.drivers.sqlite.driver import SqliteDriver

__all__ = ["SqliteDriver"]
