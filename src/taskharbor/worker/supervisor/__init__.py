"""`taskharbor worker run`: worker processes, and a parent that runs no handlers, keeps their leases and replaces them.

    parent   supervisor ─ slots ─ processes       keeper: one extend for all of them       probes: file and port
                              │ a socket each: `wire`
    child    link ─ worker    hands its leases to the parent before a handler starts, and hears that they were renewed

The parent never imports the application: nothing that a handler does can keep it from renewing a lease. Children are
started afresh (never forked), and all that travels between the two is the typed JSON of `wire`.
"""
