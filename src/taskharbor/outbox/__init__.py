"""Tables in the application's own database, in its own transactions: what was done once, and jobs that leave with it.

They stand beside the store, which may be another one. `tables` makes them, `once` notes keys.
"""
