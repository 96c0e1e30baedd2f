"""As process 1 of a container: signals are handled, orphans are reaped, and nothing is left behind.

A PID namespace is a container's, without the container; making one needs to be root, or user namespaces.
"""

import os
import subprocess

from taskharbor import JobRequest
from tests.supervisor.worker_run import PATIENCE, Yard, children_of, eventually, exists


def namespace() -> tuple[str, ...]:
    """The command that runs what follows it as process 1."""
    command = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    return command if os.geteuid() == 0 else (*command[:1], "--map-root-user", "--user", *command[1:])


def look(yard: Yard) -> dict[str, int]:
    answer: dict[str, int] = yard.client.enqueue(JobRequest(type="look", payload={})).result(PATIENCE)
    return answer


def test_process_1_handles_signals_and_reaps_orphans(here: Yard) -> None:
    orphans = here.enqueue("orphan", 3)
    outer = here.start("--lease", "600", "--heartbeat", "200", "--shutdown-timeout", "600", before=namespace())
    here.done(*orphans)
    before = look(here)
    assert before["processes"] >= 1 + 1 + 3  # the supervisor, the worker, and what it left behind
    here.open("orphans")
    eventually(lambda: look(here)["processes"] <= before["processes"] - 3, "the orphans have ended")
    eventually(lambda: look(here)["zombies"] == 0, "they are reaped")
    [first] = children_of(outer.pid)
    workers = children_of(first)
    [job] = here.enqueue("gate", name="go")
    here.started(job)
    subprocess.run(["kill", "-TERM", str(first)], check=True)
    eventually(lambda: "event=WorkerStopping" in here.log, "it drains")
    here.open("go")
    assert here.ended(outer) == 0
    assert here.state(job) == "done"
    assert not any(map(exists, workers))


def test_process_1_takes_a_second_signal_as_well(here: Yard) -> None:
    [job] = here.enqueue("gate", name="never")
    outer = here.start("--lease", "600", "--heartbeat", "200", "--shutdown-timeout", "600", before=namespace())
    here.started(job)
    [first] = children_of(outer.pid)
    for times in (1, 2):
        subprocess.run(["kill", "-INT", str(first)], check=True)
        eventually(lambda: here.log.count("event=SupervisorStopping") == times, "the signal was handled")  # noqa: B023 - called before the loop goes on
    assert here.ended(outer) == 0
    info = here.info(job)
    assert (info.state, info.job.attempts, info.job.lost) == ("ready", 0, 0)
