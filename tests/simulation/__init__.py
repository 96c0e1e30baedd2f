"""The real client and worker on virtual time, with seeded faults. `python -m tests.simulation SEED` prints one run.

loop       an event loop whose clock jumps, whose schedule is seeded, and whose processes can die and freeze
machine    a simulated process: its tasks, its clocks
plan       everything a seed decides before the start: workload, settings, which faults and how often
network    the driver of a process: latency, lost replies, duplicates, crashes around the memory store
journal    what the store was seen to do, kept apart from the code under test; it objects at once
oracle     what the journal expects of leases and outcomes (its own epochs), and what explains an execution
handlers   what the simulated jobs do
world      puts these together, lets everything drain, and checks the end
"""
