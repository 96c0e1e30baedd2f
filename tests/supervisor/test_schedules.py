"""Schedules under `taskharbor worker run`: fired by every process, declared by one of them, once."""

import os
import signal

from taskharbor import ScheduleInfo, ScheduleNotFound, Schedules
from tests.supervisor.worker_run import Yard, children_of, eventually, on

APP = "tests.supervisor.scheduled_app:harbor"


def info(yard: Yard) -> ScheduleInfo | None:
    try:
        return Schedules(yard.client._store).get("tick")
    except ScheduleNotFound:
        return None


@on("sqlite")
def test_it_is_fired_and_a_replaced_process_does_not_declare_it_again(there: Yard) -> None:
    run = there.start("--processes", "2", "--no-spare", app=APP)
    eventually(lambda: (found := info(there)) is not None and found.fired >= 2, "slots were fired")
    assert there.log.count("ScheduleChanged") == 1
    Schedules(there.client._store).delete("tick")
    before = children_of(run.pid)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: there.log.count("ProcessStarted") >= 4, "both were replaced")
    [job] = there.enqueue("note")
    there.done(job)  # the new ones serve
    assert is_deleted(there)
    run.send_signal(signal.SIGTERM)
    assert there.ended(run) == 0
    there.start("--processes", "1", "--no-spare", app=APP)
    eventually(lambda: there.log.count("ProcessStarted") >= 5, "it was started again")
    [job] = there.enqueue("note")
    there.done(job)
    assert is_deleted(there), "what a person deleted stays deleted"
    Schedules(there.client._store).reset("tick")
    eventually(lambda: (found := info(there)) is not None and found.fired >= 1, "a reset brings it back")


def is_deleted(yard: Yard) -> bool:
    found = info(yard)
    return found is not None and found.deleted
