"""Which leases of a worker process the supervisor renews, from what the process reports."""

from taskharbor.testing import ManualClock
from taskharbor.worker.heart import OVERDUE_S
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.process import Process
from tests.supervisor.child_messages import async_test, receive, taken, tick


@async_test
async def test_a_lease_is_renewed_until_its_job_outlives_its_timeout() -> None:
    clock = ManualClock()
    process = Process(0, clock)
    receive(process, messages.Taken([taken("a", limit=5), taken("b")], []))
    clock.advance(5 + OVERDUE_S - 1)
    assert {held.lease.token for held in process.renewable(clock.monotonic())} == {"a", "b"}
    clock.advance(2)
    assert {held.lease.token for held in process.renewable(clock.monotonic())} == {"b"}
    receive(process, tick(due=[("a", 3.0)]))  # it has started later than it was taken
    assert {held.lease.token for held in process.renewable(clock.monotonic())} == {"a", "b"}


@async_test
async def test_nothing_is_renewed_for_a_process_that_is_stopped_or_gone() -> None:
    process = Process(0, ManualClock())
    receive(process, messages.Taken([taken("a")], []))
    assert len(process.renewable(0)) == 1
    process.stopped = True
    assert process.renewable(0) == []
    process.stopped = False
    process.ended(-9)
    assert process.renewable(0) == []
    assert process.cause == "signal SIGKILL"


@async_test
async def test_reports_of_a_process_change_the_leases_it_holds() -> None:
    process = Process(0, ManualClock(), max_jobs=10)
    receive(process, messages.Taken([taken("a"), taken("b")], []))
    receive(process, messages.Taken([taken("c")], ["a"]))
    assert set(process.leases) == {"b", "c"}
    receive(process, tick(gone=["b"]))
    assert set(process.leases) == {"c"}
    receive(process, messages.Taken([taken("d"), taken("e")], [], all=True))
    assert set(process.leases) == {"d", "e"}
    assert not process.tired.is_set()
    receive(process, messages.Taken([taken(str(number)) for number in range(6)], []))
    assert process.tired.is_set()  # nine of its ten
    process.kept([], [("d", "LeaseMismatch", "")])
    assert "d" not in process.leases
