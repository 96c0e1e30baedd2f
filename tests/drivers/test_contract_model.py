"""The model of the contract: it follows a reservation that the contract allows, and objects to any other."""

import copy
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.conformance.model import ContractModel
from taskharbor.drivers import JobRecord, Lease, Lost, Reserved, replace

pytestmark = pytest.mark.lane("machine-memory")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
UNTIL = NOW + 30 * SECOND
QUEUES = ("default",)


def job(id, **fields):
    return JobRecord(id=id, type="t", created_at=NOW, **fields)


@pytest.fixture
def model():
    made = ContractModel()
    grouped = [job("g1", group="g"), job("g2", group="g"), job("h1", group="h")]
    made.enqueue([job("u1"), job("u2"), *grouped], NOW)
    made.enqueue([job("late", run_at=NOW + SECOND), job("else", queue="other")], NOW)
    return made


def reserved(model, *ids, token="t", now=NOW):
    """What a driver returns that reserves these jobs in this order."""
    taken = []
    for number, id in enumerate(ids):
        record = model.jobs[id].record
        lease = Lease(id, record.queue, f"{token}-{id}-{number}", UNTIL)
        taken.append(Reserved(replace(record, deliveries=record.deliveries + 1, began_at=now, ran_on="w"), lease))
    return taken


def follow(model, taken, now=NOW, limit=None):
    model.follow(taken, QUEUES, now, UNTIL, len(taken) if limit is None else limit, "w")


def test_either_the_first_ungrouped_job_or_the_first_of_a_group_may_be_reserved(model):
    assert model.runnable("default", NOW) == {"u1", "g1", "h1"}
    follow(model, reserved(model, "h1", "u1"))
    assert model.info("u1", NOW).worker == "w"
    assert model.runnable("default", NOW) == {"u2", "g1"}


@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("late", "allowed are"),  # not due
        ("u2", "allowed are"),  # u1 comes first
        ("g2", "allowed are"),  # g1 comes first
        ("else", "which was not asked for"),
    ],
)
def test_what_the_contract_does_not_allow_is_refused(model, id, why):
    with pytest.raises(AssertionError, match=why):
        follow(model, reserved(model, id))


def test_a_job_under_a_lease_is_not_reserved_again_before_the_lease_is_over(model):
    follow(model, reserved(model, "h1"))
    with pytest.raises(AssertionError, match="allowed are"):
        follow(model, reserved(model, "h1"))
    (again,) = reserved(model, "h1", token="second", now=UNTIL)
    counted = replace(again, job=replace(again.job, lost=1))
    with pytest.raises(AssertionError, match="lost_by is None"):
        copy.deepcopy(model).follow([counted], QUEUES, UNTIL, UNTIL, 1, "w")
    model.follow([replace(counted, lost_by=Lost("w", NOW, UNTIL))], QUEUES, UNTIL, UNTIL, 1, "w")
    assert model.jobs["h1"].record.lost == 1


def test_a_full_group_and_a_paused_queue_give_nothing(model):
    follow(model, reserved(model, "g1"))
    with pytest.raises(AssertionError, match="allowed are"):
        follow(model, reserved(model, "g2"))
    model.paused.add("default")
    assert model.runnable("default", NOW) == set()
    with pytest.raises(AssertionError, match="allowed are"):
        follow(model, reserved(model, "u1"))


def test_nothing_runnable_may_be_left_and_the_limit_holds(model):
    with pytest.raises(AssertionError, match="although they are runnable"):
        follow(model, reserved(model, "u1"), limit=10)
    with pytest.raises(AssertionError, match="the limit is 1"):
        follow(model, reserved(model, "u2", "g1"), limit=1)


def test_record_and_lease_must_be_right(model):
    (right,) = reserved(model, "u1")
    for wrong in (
        replace(right, job=replace(right.job, deliveries=0)),
        replace(right, lease=replace(right.lease, expires_at=UNTIL + SECOND)),
    ):
        with pytest.raises(AssertionError):
            follow(model, [wrong])
    follow(ContractModel(), [])
