"""The memory driver: jobs in this process, for tests, development and work that may be lost with it.

It is the reference: the driver to read first, beside docs/driver-contract.md. Read it in this order:

    records     a job as it is stored, and its state at a moment
    queue       where `reserve` finds a job: lines of due jobs, groups and their turns
    store       all jobs, and the few transitions of which every call is made
    flows       edges between jobs
    enqueue, reserve, leases, settle    the verbs of a job's way
    admin, reading, heads, schedules, audit, figures    the others
    driver      the calls of the contract, each one transaction under the store's lock
    blocking, options    calls on the caller's thread, and what a DSN says
"""

from taskharbor.drivers.memory.driver import MemoryDriver

__all__ = ["MemoryDriver"]
