"""What all drivers share: plans of enqueues, refusals, filters and options. Each is plain data in, plain data out."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import Driver, JobRecord, Page
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.drivers.dsn import choice_of, flag_of, max_payload_of, number_of, retention_of, seconds_of
from taskharbor.drivers.planning import (
    Facts,
    JobFacts,
    Lookup,
    Plan,
    PlanOutdated,
    check_handover,
    in_cycle,
    plan_heir,
    plan_jobs,
    run_plan,
    run_plan_async,
)
from taskharbor.drivers.queries import JobQuery
from taskharbor.drivers.refusals import check_lease, lease_refusal, no_flow, still_needed, wrong_state
from taskharbor.model.bounds import check_outcome
from taskharbor.model.errors import InvalidJob, JobNotFound, JobNotInflight, LeaseExpired, LeaseMismatch
from taskharbor.model.job import State
from taskharbor.model.lease import Enqueued, Lease
from taskharbor.model.outcome import Ack, Cancelled, Fail, Retry

pytestmark = pytest.mark.lane("unit")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = Lease("j1", "default", "t1", NOW)


class Shelf:
    """A store of facts that keeps a list of what it was asked for."""

    def __init__(self, jobs: dict[str, JobFacts], keys: dict[tuple[str, str], str] | None = None) -> None:
        self.jobs, self.keys = jobs, keys or {}
        self.lookups: list[Lookup] = []

    def look_up(self, lookup: Lookup) -> Facts:
        self.lookups.append(lookup)
        return Facts(
            {id: self.jobs[id] for id in lookup.ids if id in self.jobs},
            {key: self.keys[key] for key in lookup.keys if key in self.keys},
        )

    async def look_up_async(self, lookup: Lookup) -> Facts:
        return self.look_up(lookup)

    def plan(self, *jobs: JobRecord) -> Plan:
        return run_plan(plan_jobs(jobs), self.look_up)


def job(id: str, *depends_on: str, key: str | None = None) -> JobRecord:
    return JobRecord(id=id, type="t", depends_on=depends_on, idempotency_key=key)


# Planning


def test_a_plan_separates_new_jobs_from_known_ones():
    shelf = Shelf({"old": JobFacts(done=False)}, {("default", "k"): "keyed"})
    plan = shelf.plan(job("old"), job("a"), job("a"), job("b", key="k"), job("c", key="k2"), job("d", key="k2"))
    assert plan.results == [
        Enqueued("old", True),
        Enqueued("a", False),
        Enqueued("a", True),
        Enqueued("keyed", True),
        Enqueued("c", False),
        Enqueued("c", True),
    ]
    assert list(plan.fresh) == ["a", "c"]
    assert len(shelf.lookups) == 1
    assert shelf.lookups[0].ids["a"] == "default"  # where it would be


def test_the_id_of_a_job_decides_before_its_key():
    shelf = Shelf({"old": JobFacts(done=False)}, {("default", "k"): "keyed"})
    assert shelf.plan(job("old", key="k")).results == [Enqueued("old", True)]


def test_dependencies_are_followed_over_handovers_and_keys():
    shelf = Shelf(
        {
            "first": JobFacts(done=True, handed_to="second", handed_to_queue="mail"),
            "second": JobFacts(done=True, handed_to="third"),
            "third": JobFacts(done=True, handed_to="gone"),
            "keyed": JobFacts(done=False),
        },
        {("default", "k"): "keyed"},
    )
    plan = shelf.plan(job("b", key="k"), job("c", "first", "b", "d"), job("d"))
    assert plan.fresh["c"].depends_on == ("third", "keyed", "d")
    assert shelf.lookups[1].ids == {"second": "mail"}


def test_an_unknown_dependency_is_searched_for_thoroughly_and_then_refused():
    shelf = Shelf({})
    with pytest.raises(InvalidJob, match=r"^depends_on: c depends on nope, which is not stored; enqueue it before"):
        shelf.plan(job("c", "nope"))
    assert [lookup.thorough for lookup in shelf.lookups] == [False, True]


def test_an_alias_is_not_a_job():
    alias = JobFacts(done=False, handed_to="real", is_alias=True)
    assert Shelf({"a": alias}).plan(job("a")).results == [Enqueued("a", False)]
    plan = Shelf({"a": alias, "real": JobFacts(done=False)}).plan(job("c", "a"))
    assert plan.fresh["c"].depends_on == ("real",)
    with pytest.raises(InvalidJob, match="c depends on a, which is gone"):
        Shelf({"a": alias}).plan(job("c", "a"))


def test_a_cycle_is_refused_also_over_keys():
    with pytest.raises(InvalidJob, match="depends_on: a waits for itself"):
        Shelf({}).plan(job("a", "b"), job("b", "a"))
    with pytest.raises(InvalidJob, match="waits for itself"):
        Shelf({}).plan(job("a", "c", key="k"), job("b", key="k"), job("c", "b"))
    assert in_cycle({"a": ["b"], "b": ["c"], "c": ["stored"]}) is None


def test_the_heir_of_a_handover_is_the_last_job_in_its_place():
    shelf = Shelf({"old": JobFacts(done=True, handed_to="heir"), "heir": JobFacts(done=False)})
    spawn = [job("old"), job("new")]
    plan = shelf.plan(*spawn)
    assert run_plan(plan_heir(plan, spawn, "acked", "new"), shelf.look_up) == "new"
    assert run_plan(plan_heir(plan, spawn, "acked", "old"), shelf.look_up) == "heir"
    with pytest.raises(InvalidJob, match="heir has the place of old"):
        run_plan(plan_heir(plan, spawn, "heir", "old"), shelf.look_up)
    for wrong in ("other", "acked"):
        with pytest.raises(InvalidJob, match="expected the id of a spawned job"):
            run_plan(plan_heir(plan, spawn, "acked", wrong), shelf.look_up)


def test_an_heir_that_was_deleted_meanwhile_makes_the_plan_outdated():
    shelf = Shelf({}, {("default", "k"): "keyed"})
    spawn = [job("a", key="k")]
    plan = shelf.plan(*spawn)
    with pytest.raises(PlanOutdated):
        run_plan(plan_heir(plan, spawn, "acked", "a"), shelf.look_up)


def test_a_handover_that_would_close_a_cycle_is_refused():
    shelf = Shelf({"mid": JobFacts(done=False, depends_on=("waits",)), "waits": JobFacts(done=False)})
    plan = shelf.plan(job("new", "mid"))
    with pytest.raises(InvalidJob, match="handover: new depends on waits, which would depend on it"):
        run_plan(check_handover(plan, "new", {"waits"}), shelf.look_up)
    run_plan(check_handover(plan, "new", {"another"}), shelf.look_up)
    shelf.jobs["mid"] = JobFacts(done=True, depends_on=("waits",))
    run_plan(check_handover(shelf.plan(job("new", "mid")), "new", {"waits"}), shelf.look_up)


def test_a_plan_is_the_same_when_its_store_is_awaited():
    shelf = Shelf({"first": JobFacts(done=True, handed_to="second"), "second": JobFacts(done=False)})
    plan: Plan = asyncio.run(run_plan_async(plan_jobs([job("c", "first")]), shelf.look_up_async))
    assert plan.fresh["c"].depends_on == ("second",)


# Refusals


def checked(lease: Lease = LEASE, **facts: object) -> object:
    known: dict[str, object] = {"stored": True, "inflight": True, "token": "t1", "ends_at": NOW + timedelta(seconds=1)}
    return check_lease(lease, NOW, **(known | facts))  # type: ignore[arg-type]  # the facts are typed where they are made


def test_a_lease_is_refused_in_the_order_of_the_contract():
    assert checked() is None
    assert isinstance(checked(stored=False, inflight=False, token=None), JobNotFound)
    assert isinstance(checked(inflight=False, token=None), JobNotInflight)
    assert isinstance(checked(token="other", ends_at=NOW), LeaseMismatch)
    assert isinstance(checked(ends_at=NOW), LeaseExpired)


def test_an_expired_lease_says_when_it_ended():
    assert str(lease_refusal(4, "j1", NOW)) == "the lease on job j1 ended at 2030-01-01 00:00:00+00:00"
    assert str(lease_refusal(4, "j1")) == "the lease on job j1 ended at an unknown time"
    with pytest.raises(ValueError, match="code: expected 1 to 4, got 5"):
        lease_refusal(5, "j1")


def test_admin_refusals_say_what_is_taken():
    assert str(wrong_state("j1", "ready", "requeue")) == "job j1 is ready; requeue takes dlq and cancelled"
    assert str(wrong_state("j1", State.DONE, "cancel")) == "job j1 is done; cancel takes what is not terminal"
    assert str(still_needed("j1", 2)) == "job j1 is needed: 2 unfinished job(s) depend on it"
    assert str(no_flow("f")) == "no flow f"


# Outcomes


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Ack(LEASE, "text"), "result: expected bytes or None, got str"),  # type: ignore[arg-type]  # the mistake
        (Retry(LEASE, None, -1), "attempts: expected 0 to"),
        (Retry(LEASE, NOW.replace(tzinfo=None), 1), "run_at: expected a datetime with a time zone"),
        (Fail(LEASE, "r", 1, NOW.replace(tzinfo=None)), "failed_at: expected a datetime with a time zone"),
        (Fail(LEASE, "r", 1, NOW, spawn=(job(""),)), "id: expected 1 to 255 bytes"),
        (Ack(LEASE, spawn=(job("a"),) * 10_001), "spawn: expected at most 10000 jobs"),
        ("done", "outcome: expected Ack, Retry, Fail or Cancelled, got str"),
    ],
)
def test_an_outcome_that_no_store_can_apply_is_invalid(outcome, said):
    with pytest.raises(InvalidJob) as refused:
        check_outcome(outcome)
    assert str(refused.value).startswith(said)


def test_a_sound_outcome_is_not_refused():
    for outcome in (
        Ack(LEASE, b"1", (job("a"),)),
        Retry(LEASE, NOW, 1),
        Fail(LEASE, "r", 1, None),
        Cancelled(LEASE, ""),
    ):
        check_outcome(outcome)


# Listings and options


class Recording(Driver):
    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        self.wanted = wanted
        return Page(())


def asked(**arguments: Any) -> JobQuery:
    driver = Recording()
    asyncio.run(driver.list(now=NOW, **arguments))
    return driver.wanted


def test_a_query_checks_the_arguments_of_list():
    assert asked(cursor=encode_cursor("j7")).after == "j7"
    assert asked(state="ready").state is State.READY
    assert (asked().newest, asked(order="-id").newest) == (False, True)
    for wrong, said in (
        ({"order": "time"}, "order: expected 'id' or '-id', got 'time'"),
        ({"since": NOW.replace(tzinfo=None)}, "since: expected a datetime with a time zone"),
        ({"limit": 0}, "limit: expected at least 1, got 0"),
        ({"state": "lost"}, "lost"),
        ({"cursor": "x"}, "cursor: expected one that the same listing returned"),
        ({"cursor": encode_cursor("a\x00b")}, "cursor: expected one that the same listing returned"),
    ):
        with pytest.raises(ValueError, match=said):
            asked(**wrong)


def test_a_query_fits_jobs_by_the_time_of_their_end_or_of_their_creation():
    def fits(in_state: State, **arguments: Any) -> bool:
        job = JobRecord(id="j", type="t", created_at=NOW, finished_at=NOW + timedelta(hours=1), error_class="E")
        return asked(**arguments).fits(job, in_state)

    hour = timedelta(hours=1)
    assert fits(State.DONE, since=NOW + hour)
    assert not fits(State.DONE, until=NOW + hour)
    assert not fits(State.READY, since=NOW + hour)
    assert fits(State.READY, until=NOW + hour)
    assert fits(State.DLQ, error_class="E")
    assert not fits(State.DLQ, error_class="F")
    assert not fits(State.DLQ, fingerprint="ab")
    assert not fits(State.DLQ, state="ready")


def test_options_have_defaults_and_say_what_was_expected():
    assert (retention_of({}), max_payload_of({})) == (timedelta(days=1), 1024 * 1024)
    assert (number_of({"n": "7"}, "n", 1, "a number"), seconds_of({}, "t", "5s")) == (7, 5.0)
    assert (flag_of({}, "f", True), flag_of({"f": "0"}, "f", True)) == (True, False)
    assert (choice_of({}, "c", "one", "two"), seconds_of({"t": "0"}, "t", "5s", zero=True)) == ("one", 0.0)
    for read, said in (
        (lambda: max_payload_of({"max_payload": "0"}), "max_payload: expected a number of bytes, got '0'"),
        (lambda: number_of({"n": "٣"}, "n", 1, "a number"), "n: expected a number, got '٣'"),
        (lambda: seconds_of({"t": "0"}, "t", "5s"), "t: expected more than zero seconds, got '0'"),
        (lambda: flag_of({"f": "yes"}, "f", True), "f: expected 0 or 1, got 'yes'"),
        (lambda: choice_of({"c": "x"}, "c", "a", "b", "z"), "c: expected a, b or z, got 'x'"),
    ):
        with pytest.raises(ValueError, match=f"^{said}$"):
            read()
