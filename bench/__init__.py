"""The benchmark: what TaskHarbor costs a job, as ratios to a bare asyncio task and to others' memory queues.

`python -m bench` (or `make bench`, which installs the others first) measures every subject in fresh processes, in
turn, several times over, and prints medians with their spread. It ends with status 1 if an aim is missed. It is no
test: tests/unit/test_bench_smoke.py only sees that each subject still runs.
"""
