"""What a step of the state machine may do, and with which arguments: numbers, which machine.py turns into calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from taskharbor.conformance.environment import MS
from taskharbor.drivers import FlowStatus, State
from taskharbor.model.audit import AUDIT_KEPT_FOR

SECOND = timedelta(seconds=1)
LEASES = (5, 10, 30)
QUEUES = ("a", "b")
FLOWS = ("f", "g")
WORKERS = ("w", "v")
SCHEDULE_NAMES = ("s", "S", "é")

index = st.integers(0, 63)
few = st.integers(0, 2)
coin = st.booleans()
when = st.sampled_from([None, None, None, -1, 5, 10])
a_job = st.tuples(
    few,  # queue: two of three are the first
    st.sampled_from([None, None, "g", "g", "h"]),  # group
    st.sampled_from([0, 0, 0, 1, 2]),  # group_limit
    st.integers(-1, 1),  # priority
    when,  # run_at
    st.sampled_from([None, None, None, "k", "l"]),  # idempotency key
    st.one_of(st.just([]), st.lists(index, max_size=2)),  # depends_on
    st.sampled_from([None, None, None, None, -1, 0, 1]),  # keep_for: around the retention, in units of 5 s
    st.sampled_from([None, None, *FLOWS]),
)
# Which lease (two numbers), kind, run_at, plain, spawn, flag, and what is written of the execution.
an_outcome = st.tuples(
    index, st.integers(0, 15), st.integers(0, 5), when, coin, st.lists(a_job, max_size=2), coin, st.integers(0, 3)
)
# Which job, whether the editor saw it as it is, which fields, run_at, priority.
an_amend = st.tuples(index, st.integers(0, 5), st.integers(0, 7), when, st.integers(-1, 1))

# Whether the caller saw each job as it is (two bits for each); None: it does not say.
as_seen = st.one_of(st.none(), st.integers(0, 255))
# An entry of the audit: which, at what time from now, by whom.
an_entry = st.tuples(
    few, st.sampled_from([-AUDIT_KEPT_FOR - MS, -AUDIT_KEPT_FOR, -SECOND, 0 * MS, MS]), st.integers(0, 1)
)
# A change of a schedule: which, what the caller saw of it, its queue (None: it is deleted), when it is due next; its
# jobs, and whether the last of them has the id of another job.
a_change = st.tuples(
    few,
    st.integers(0, 7),
    st.sampled_from([None, 0, 0, 0, 1, 1]),
    st.sampled_from([None, -1, -1, 0, 1, 1, 5]),
    st.lists(a_job, max_size=2),
    index,
)

# What a step may do: the name of a method, its weight, and its arguments.
ACTIONS: dict[str, tuple[int, tuple[st.SearchStrategy[Any], ...]]] = {
    "enqueue": (7, (st.lists(a_job, min_size=1, max_size=4), st.integers(0, 9))),
    "reserve": (12, (st.sampled_from([0, 1, 2, 2, 3, 3]), st.sampled_from([0, 1, 2, 3, 9]), few, st.integers(0, 1))),
    "settle": (8, (st.lists(an_outcome, min_size=1, max_size=3),)),
    "ack": (2, (st.integers(1, 3),)),
    "settle_again": (4, (st.integers(1, 4),)),
    "extend": (3, (st.lists(st.tuples(index, st.integers(0, 15)), min_size=1, max_size=3), few, coin)),
    "save": (3, (index, st.integers(0, 15), few)),
    "amend": (4, (st.lists(an_amend, min_size=1, max_size=3),)),
    "search": (
        3,
        (few, st.sampled_from([None, None, None, None, *State]), coin, st.integers(0, 3), st.integers(-9, 9)),
    ),
    "list_flows": (1, (few, st.sampled_from([None, *FlowStatus]), coin)),
    "release": (1, (st.integers(0, 1), few)),
    "pause": (1, (st.integers(0, 1), st.integers(0, 3))),
    "cancel": (3, (st.lists(index, min_size=1, max_size=2), as_seen)),
    "requeue": (4, (st.lists(index, min_size=1, max_size=4), when, coin, as_seen)),
    "delete": (3, (st.lists(index, min_size=1, max_size=2), as_seen)),
    "audit": (2, (st.lists(an_entry, max_size=3), few, st.sampled_from([None, None, 0, 1]), st.integers(0, 5), index)),
    "change_schedules": (4, (st.lists(a_change, min_size=1, max_size=3),)),
    "change_again": (1, (st.integers(1, 4), coin)),
    "read_due": (1, (st.integers(0, 3), few, st.integers(0, 7), coin)),
    "prune": (2, (st.sampled_from([0, 0, 5, 20]),)),
    "cancel_flow": (1, (st.integers(0, 1),)),
    "begin_flow_anew": (1, (st.integers(0, 1), st.lists(a_job, min_size=1, max_size=2))),
    "advance": (10, (st.integers(0, 7),)),
}
an_action = st.one_of(
    [st.tuples(st.just(name), *given) for name, (weight, given) in ACTIONS.items() for _ in range(weight)]
)
