"""Leases of processes that give no sign of life: kept when its interpreter is held, not when it is stopped."""

import os
import signal

from tests.supervisor.program import Yard, eventually, on

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
def test_a_stopped_process_loses_its_leases_and_nothing_that_it_does_later_counts(there: Yard) -> None:
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
