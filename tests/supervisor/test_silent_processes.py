"""Leases of processes that give no sign of life: kept when its interpreter is held, not when it is stopped."""

import os
import signal
from pathlib import Path

import pytest

from tests import lanes
from tests.servers import postgres
from tests.supervisor.worker_run import Yard, eventually, on, yard

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_a_stopped_process_loses_its_leases_and_its_later_outcomes_are_refused",
    ),
)

SHORT = ("--lease", "3", "--heartbeat", "0.5")


@on("postgres")
def test_a_handler_that_holds_the_interpreter_for_longer_than_its_lease_is_not_run_twice(there: Yard) -> None:
    [job] = there.enqueue("hold", seconds=8)
    there.start(*SHORT, "--processes", "2")
    there.started(job)
    notes = there.enqueue("note", 3)  # the other process is alive, and would take the job as well
    there.done(*notes)
    there.done(job)
    assert [(line.word, line.fence) for line in there.journal() if line.job == job] == [("start", 1), ("end", 1)]
    assert there.info(job).job.deliveries == 1
    assert f"event=ProcessSilent pid={there.starts(job)[0].pid}" in there.log


@on("sqlite")
def test_a_stopped_process_loses_its_leases_and_its_later_outcomes_are_refused(there: Yard) -> None:
    [job] = there.enqueue("gate", name="go")
    there.start(*SHORT, "--processes", "2", "--max-lost", "20")
    [zombie] = there.started(job)
    os.kill(zombie.pid, signal.SIGSTOP)
    [second] = there.started(job, times=2)
    assert second.pid != zombie.pid
    assert second.fence > zombie.fence
    first_end = there.info(job).lease_expires_at
    assert first_end is not None

    def renewed() -> bool:  # so that the zombie has slept for three leases and more
        end = there.info(job).lease_expires_at
        return end is not None and (end - first_end).total_seconds() > 6

    eventually(renewed, "the second one's lease is renewed")
    os.kill(zombie.pid, signal.SIGCONT)
    eventually(lambda: "event=LeaseLost" in there.log, "the zombie learns that its lease is lost")
    assert there.state(job) == "inflight"
    there.open("go")
    there.done(job)
    info, last = there.info(job), there.starts(job)[-1]
    assert (info.job.result, info.job.deliveries) == (str(last.pid).encode(), last.fence)
    assert f"event=ProcessStopped pid={zombie.pid}" in there.log
    assert f"event=ProcessContinued pid={zombie.pid}" in there.log


def test_a_store_that_was_away_is_found_again_and_nothing_is_run_twice(tmp_path: Path) -> None:
    server = postgres.Server()
    try:
        with yard(server.address(server.store()), tmp_path) as there:
            [job] = there.enqueue("gate", name="go")
            program = there.start("--lease", "60", "--heartbeat", "0.5")
            there.started(job)
            taken = there.lease_end(job)
            eventually(
                lambda: there.lease_end(job) > taken + 1,
                "it is renewed; until then a claim need not outlive its server",
            )
            server.kill()
            eventually(lambda: "event=LeasesNotKept" in there.log, "the supervisor could not renew")
            server.start()
            back = there.lease_end(job)
            eventually(lambda: there.lease_end(job) > back, "the lease is renewed again")
            there.open("go")
            there.done(job)
            assert len(there.starts(job)) == 1
            program.terminate()
            assert there.ended(program) == 0
    finally:
        server.stop()
