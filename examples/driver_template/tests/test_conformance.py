"""The whole contract, on an empty store for each case. `pytest -k lease` runs one theme."""

import sqlite3
from contextlib import closing
from itertools import count

import pytest
from taskharbor_mystore import MyStoreDriver

from taskharbor.conformance import DriverConformance

DAMAGES = {"type": "type = ''", "payload": "payload = NULL", "number": "attempts = 'many'", "state": "state = 'lost'"}
WRONG = {
    "missing": "NULL",
    "empty": "''",
    "word": "'many'",
    "bytes": "CAST(x'fffe' AS TEXT)",
    "negative": "-1",
    "huge": f"{2**62}",
    "fraction": "1.5",
    "infinite": "9e999",
    "nested": """'[["x"]]'""",
}
NOT_KEPT = {*MyStoreDriver.unkept, "edits", "has_memos"}
number = count(1)


class TestMyStore(DriverConformance):
    lacks = MyStoreDriver.lacks()
    # The machine's walks share one store, each with names of its own. False: a store for each, where that is cheap.
    machine_shares_store = False

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def make_driver(self):
        """A driver, not yet opened, on an EMPTY store: a new database, schema, prefix or file each time."""
        return MyStoreDriver(f"mystore://{self.folder}/{next(number)}.db")

    def damage(self, driver, id, how):
        """Write to the store behind the driver's back, as another program could. `how` is what to break: "type" and
        "payload" are missing then, "number" makes attempts a word, "state" makes the state an unknown one."""
        self.change(driver, id, DAMAGES[how])

    def damage_field(self, driver, id, field, kind):
        """Put a wrong value into one field; False if no other program can do that in this store."""
        if field in NOT_KEPT:
            return False
        self.change(driver, id, f"{'grp' if field == 'group' else field} = {WRONG[kind]}")
        return True

    def change(self, driver, id, assignment):
        with closing(sqlite3.connect(driver._options.path)) as connection, connection:
            assert connection.execute(f"UPDATE jobs SET {assignment} WHERE id = ?", (id,)).rowcount == 1
