"""The memory driver: jobs in this process, for tests, development and work that may be lost with it.

`MemoryDriver` has the calls, `MemoryStore` the state.
"""

from taskharbor.drivers.memory.driver import MemoryDriver

__all__ = ["MemoryDriver"]
