"""Others' queues, one module each.

`memory` runs in this environment. Every other module is a program of its own (`python -m bench.peers.rq …`) that runs
in the peer's environment, with what bench/meter.py offers and nothing else of ours, and prints one line of JSON.
"""
