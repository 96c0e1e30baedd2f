"""For authors of drivers: everything that a driver needs and that does not depend on its store.

    the DSN          options_of, retention_of, max_payload_of, number_of, seconds_of, flag_of, choice_of, redact
    an enqueue       plan_jobs, run_plan, run_plan_async, Lookup, Facts, JobFacts, Plan, PlanOutdated, heir_of, as_new
    refusals         check_lease, no_job, no_flow, wrong_state, still_needed, changed_since, paired
    arguments        check_outcome, check_moment, check_cap, check_next, accepts_any_name
    damaged records  damage_of, damaged_reason, readable
    reading          flow_info, encode_cursor, MAX_SCANNED_JOBS
    workers          WORKER_FORGOTTEN_AFTER
    times            to_us, from_us
    optional verbs   check_amend, not_amendable, amended_since; bad_notes; check_memo, memo_place; check_figures;
                     check_audit, encode_place; check_schedule_changes, encode_schedule, encode_due

    >>> check_next(101)
    Traceback (most recent call last):
    ValueError: n: expected 0 to 100 jobs of each queue, got 101

The built-in drivers use the same functions. `examples/driver_template` is a driver that imports nothing else of the
library but `taskharbor.drivers`; docs/writing-a-driver.md explains it.
"""

from taskharbor.drivers.base import MAX_SCANNED_JOBS, WORKER_FORGOTTEN_AFTER
from taskharbor.drivers.cursor import encode_cursor, encode_due, encode_place, encode_schedule
from taskharbor.drivers.damage import damage_of, damaged_reason, readable
from taskharbor.drivers.dsn import (
    choice_of,
    flag_of,
    max_payload_of,
    number_of,
    options_of,
    redact,
    retention_of,
    seconds_of,
)
from taskharbor.drivers.heads import check_next
from taskharbor.drivers.planning import (
    Facts,
    JobFacts,
    Lookup,
    Plan,
    PlanOutdated,
    as_new,
    heir_of,
    plan_jobs,
    run_plan,
    run_plan_async,
)
from taskharbor.drivers.queries import check_cap
from taskharbor.drivers.refusals import (
    amended_since,
    bad_notes,
    changed_since,
    check_lease,
    no_flow,
    no_job,
    not_amendable,
    paired,
    still_needed,
    wrong_state,
)
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.model.bounds import (
    check_amend,
    check_audit,
    check_figures,
    check_memo,
    check_moment,
    check_outcome,
    check_schedule_changes,
)
from taskharbor.model.job import flow_info
from taskharbor.model.memo import memo_place
from taskharbor.model.times import from_us, to_us

__all__ = [
    "MAX_SCANNED_JOBS",
    "WORKER_FORGOTTEN_AFTER",
    "Facts",
    "JobFacts",
    "Lookup",
    "Plan",
    "PlanOutdated",
    "accepts_any_name",
    "amended_since",
    "as_new",
    "bad_notes",
    "changed_since",
    "check_amend",
    "check_audit",
    "check_cap",
    "check_figures",
    "check_lease",
    "check_memo",
    "check_moment",
    "check_next",
    "check_outcome",
    "check_schedule_changes",
    "choice_of",
    "damage_of",
    "damaged_reason",
    "encode_cursor",
    "encode_due",
    "encode_place",
    "encode_schedule",
    "flag_of",
    "flow_info",
    "from_us",
    "heir_of",
    "max_payload_of",
    "memo_place",
    "no_flow",
    "no_job",
    "not_amendable",
    "number_of",
    "options_of",
    "paired",
    "plan_jobs",
    "readable",
    "redact",
    "retention_of",
    "run_plan",
    "run_plan_async",
    "seconds_of",
    "still_needed",
    "to_us",
    "wrong_state",
]
