"""The benchmark of the stores: a hand-written loop, TaskHarbor and others on the same kind of store, in one run.

Every sample is a process of its own (see bench/meter.py) on a store of its own; this package starts the servers, has
the samples taken in turn, and reports.
"""
