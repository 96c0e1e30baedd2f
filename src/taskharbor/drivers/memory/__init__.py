"""The memory driver: the reference for the driver contract, short and without I/O.

For tests, development and work that may be lost with its process. `MemoryDriver` is the face, `Store` the state.
"""

from taskharbor.drivers.memory.driver import MemoryDriver

__all__ = ["MemoryDriver"]
