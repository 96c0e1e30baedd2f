"""A driver that has only what every driver must have: the others are the defaults of `Driver`."""

from taskharbor.drivers import ATTEMPT_FIELDS, Driver
from taskharbor.drivers.memory import MemoryDriver

OPTIONAL = (
    *("heads", "upcoming", "amend", "list_flows", "figures", "add_figures", "list_audit", "put_audit"),
    *("change_schedules", "list_schedules", "list_due_schedules", "save", "steps"),
)


class SmallDriver(MemoryDriver):
    """Memory without the optional verbs. The fields of executions are stored, but nobody may rely on them."""

    unkept = ATTEMPT_FIELDS

    def sibling(self) -> "SmallDriver":
        other = type(self)()
        other.store = self.store
        return other


for name in OPTIONAL:
    setattr(SmallDriver, name, getattr(Driver, name))
