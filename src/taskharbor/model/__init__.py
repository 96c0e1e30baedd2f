"""The nouns: jobs, leases, outcomes, errors, events, clock, codec, ids.

Nothing here does I/O, and nothing here imports from another package of taskharbor.
"""
