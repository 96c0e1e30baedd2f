"""The SQLite driver: jobs in one file, for one machine, without a server.

`SqliteDriver` is the face. `hub` holds what all drivers of a process on one file share: the thread that writes, the
thread that reads, and who waits for work. Everything else works inside a transaction that the hub opened.
"""

from taskharbor.drivers.sqlite.driver import SqliteDriver

__all__ = ["SqliteDriver"]
