"""The whole contract, on an empty store for each case. `pytest -k lease` runs one theme."""

from itertools import count

import msgspec
from taskharbor_mystore import MyStoreDriver

from taskharbor.conformance import DriverConformance

# Fields by which a store finds or orders a job: one that no other program can write to keeps them sound.
OWN = {"run_at", "idempotency_key", "group", "depends_on", "flow_id", "handed_to", "finished_at", "priority"}
WRONG = {
    "missing": None,
    "empty": "",
    "word": "many",
    "bytes": b"\xff\xfe",
    "negative": -1,
    "huge": 2**62,
    "fraction": 1.5,
    "infinite": float("nan"),
    "nested": [["x"]],
}
number = count(1)


class TestMyStore(DriverConformance):
    lacks = MyStoreDriver.lacks()
    # The machine's walks share one store, each with names of its own. False: a store for each, where that is cheap.
    machine_shares_store = False

    def make_driver(self):
        """A driver, not yet opened, on an EMPTY store: a new database, schema, prefix or file each time."""
        return MyStoreDriver(f"mystore://localhost/test{next(number)}")

    def damage(self, driver, id, how):
        """Write to the store behind the driver's back, as another program could. `how` is what to break: "type" and
        "payload" are missing then, "number" makes attempts a word, "state" makes the state an unknown one."""
        fields = {"type": ("type", ""), "payload": ("payload", None), "number": ("attempts", "many")}
        row = driver._store.rows[id]
        if how == "state":
            row.state, row.lease = "lost", None
        else:
            field, value = fields[how]
            row.record = msgspec.structs.replace(row.record, **{field: value})

    def damage_field(self, driver, id, field, kind):
        """Put a wrong value into one field; False if no other program can do that in this store."""
        if field == "state":
            self.damage(driver, id, "state")
        elif field in OWN:
            return False
        else:
            row = driver._store.rows[id]
            row.record = msgspec.structs.replace(row.record, **{field: WRONG[kind]})
        return True

    def clean(self, driver):
        """Drop what make_driver created, if it does not go by itself."""
        from taskharbor_mystore.store import _STORES

        _STORES.pop(driver._options.address, None)
