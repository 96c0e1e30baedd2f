"""Seeds that once found something, with what it was. They are played always, whatever the other seeds are.

A change to the plan or the world changes what a seed does: keep the newest seeds that show the same thing.
"""

KEPT = {
    127: "a suspect began to run while the outcome of a neighbour was decided, but not stored",
    157: "the same beside a neighbour whose settle failed",
    378: "a lease that ended during an outage while the worker was stopping",
    504: "an innocent job, held beside three fresh poisons one after the other, was called crashed",
    11408: "a worker stopped while its store was away reserved all the same, with a clock that followed nobody",
    12100: "a settle given up by the lease it knew, while an extend of that lease was on its way",
    10636: "a clock stepped there and back: leases given up come back to life, and no process knows of them",
    14970: "the same with a suspect that ran while the lease given up lived on in the store",
    15088: "the same with a process that died meanwhile",
    734: "a pause that was slow enough to arrive after the resume",
    284: "a stop that waited for a slow reserve turned without an end at the last moment of its patience",
    385: "the worker that cannot run a job took it first each time, because it slept exactly until it was due",
    471: "the same with three workers",
    3916: "two workers that cannot run a job took it in turn, each time before the third, which had woken in vain",
    4440: "a process stopped between the launch of a handler and its first step, which was then timed out at once",
    20261149: "a poison that was interrupted once, because no renewal reached the store, and crashed three workers",
    329802741: "a poison that ran once more, because a worker could not read whether its losses were crashes",
    97496940: "a settle whose reply was lost: its worker, cut off afterwards, named the lease as one that it had lost",
    20262368: "a join whose dependency an operator deleted while the join was cancelled, and that was requeued",
}
