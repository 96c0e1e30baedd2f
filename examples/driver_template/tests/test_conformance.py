"""The whole contract, on an empty store for each case. `pytest -k lease` runs one theme."""

from taskharbor_mystore import MyStoreDriver

from taskharbor.conformance import DriverConformance


class TestMyStore(DriverConformance):
    # The machine's runs share one store, each with names of its own. False: a store for each, where that is cheap.
    machine_shares_store = True

    def make_driver(self):
        """A driver, not yet opened, on an EMPTY store: a new database, schema, prefix or file each time."""
        return MyStoreDriver("mystore://localhost/test")

    def damage(self, driver, id, how):
        """Write to the store behind the driver's back, as another program could. `how` says what to break:
        "type" and "payload": that field is missing; "number": attempts is no number; "state": one nobody knows."""
        from taskharbor.drivers.memory.damage import damage  # yours: an UPDATE, an HDEL, a byte in a file

        damage(driver._store, id, how)

    def damage_field(self, driver, id, field, kind):
        from taskharbor.drivers.memory.damage import damage_field  # yours: a wrong value in one field

        return damage_field(driver._store, id, field, kind)

    def clean(self, driver):
        """Drop what make_driver created, if it does not go by itself."""
