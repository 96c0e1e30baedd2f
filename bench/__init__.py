"""The benchmark: what TaskHarbor costs a job, as ratios to the least that could be done and to others' queues.

`python -m bench [memory|sqlite|postgres|redis|all]` (or `make bench`, which installs the others first) measures every
subject in fresh processes, in turn, several times over, and prints medians with their spread. It ends with status 1 if
an aim is missed. It is no test: tests/bench and tests/unit/test_bench_smoke.py only see that each subject still runs.
"""
