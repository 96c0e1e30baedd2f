"""Leases of processes that give no sign of life: kept when its interpreter is held, not when it is stopped."""

import os
import signal

from tests.supervisor.program import Yard, eventually

SHORT = ("--lease", "3", "--heartbeat", "0.5")


def test_a_handler_that_holds_the_interpreter_for_longer_than_its_lease_is_not_run_twice(everywhere: Yard) -> None:
    [job] = everywhere.enqueue("hold", seconds=8)
    everywhere.start(*SHORT, "--processes", "2")
    everywhere.started(job)
    notes = everywhere.enqueue("note", 3)  # the other process is alive, and would take the job as well
    everywhere.done(*notes)
    everywhere.done(job)
    assert [(line.word, line.fence) for line in everywhere.journal() if line.job == job] == [("start", 1), ("end", 1)]
    assert everywhere.info(job).job.deliveries == 1
    assert f"event=ProcessSilent pid={everywhere.starts(job)[0].pid}" in everywhere.log


def test_a_stopped_process_loses_its_leases_and_nothing_that_it_does_later_counts(everywhere: Yard) -> None:
    [job] = everywhere.enqueue("gate", name="go")
    everywhere.start(*SHORT, "--processes", "2", "--max-lost", "20")
    [zombie] = everywhere.started(job)
    os.kill(zombie.pid, signal.SIGSTOP)
    [second] = everywhere.started(job, times=2)
    assert second.pid != zombie.pid
    assert second.fence > zombie.fence
    first_end = everywhere.info(job).lease_expires_at
    assert first_end is not None

    def renewed() -> bool:  # so that the zombie has slept for three leases and more
        end = everywhere.info(job).lease_expires_at
        return end is not None and (end - first_end).total_seconds() > 6

    eventually(renewed, "the second one's lease is renewed")
    os.kill(zombie.pid, signal.SIGCONT)
    eventually(lambda: "event=LeaseLost" in everywhere.log, "the zombie learns that its lease is lost")
    assert everywhere.state(job) == "inflight"
    everywhere.open("go")
    everywhere.done(job)
    info, last = everywhere.info(job), everywhere.starts(job)[-1]
    assert (info.job.result, info.job.deliveries) == (str(last.pid).encode(), last.fence)
    assert f"event=ProcessStopped pid={zombie.pid}" in everywhere.log
    assert f"event=ProcessContinued pid={zombie.pid}" in everywhere.log
