"""Hand-written loops: the least that a durable queue does on a store. Claim some jobs, run nothing, acknowledge.

No tokens, no attempts, no results, no history, no order but one: what a library could not beat and still keep its
promises. Each is as durable as the driver beside it.
"""
