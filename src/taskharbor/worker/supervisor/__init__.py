"""`taskharbor worker run`: worker processes, and a parent that runs no handlers, renews their leases and replaces them.

    parent   supervisor ─ restart loops ─ processes     heart: one extend for all of them     probes: file and port
                                              │ a socket each: `messages`
    child    child channel ─ worker     reports its leases to the parent before a handler starts, and which it released

The parent never imports the application: nothing that a handler does can keep it from renewing a lease. Children are
started afresh, never forked. All that travels between the two is the typed JSON of `messages`.
"""
