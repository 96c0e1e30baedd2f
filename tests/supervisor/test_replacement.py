"""Processes are replaced at --max-jobs, at --max-memory and when the program changes. Nothing is lost."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from taskharbor import JobRequest
from tests import lanes
from tests.supervisor.worker_run import Yard, eventually

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_a_process_is_replaced_after_max_jobs_and_nothing_is_lost",
        "test_a_process_whose_slots_are_all_stuck_is_reported_and_replaced",
    ),
)


def test_a_process_is_replaced_after_max_jobs_and_nothing_is_lost(here: Yard) -> None:
    [long] = here.enqueue("gate", name="go")
    here.start("--max-jobs", "5", "--concurrency", "2", "--shutdown-timeout", "1")
    [line] = here.started(long)
    notes = here.enqueue("note", 20)
    here.done(*notes)
    eventually(lambda: f"event=ProcessReplaced pid={line.pid}" in here.log, "the first process is replaced")
    assert here.state(long) == "inflight"
    here.open("go")  # what it still runs may take as long as it needs
    here.done(long)
    assert max(Counter(start.pid for start in here.starts()).values()) <= 5
    assert sorted(start.job for start in here.starts()) == sorted([long, *notes])  # each once


@pytest.mark.parametrize("task", ["leak", "leak_in_child"])
def test_a_process_is_replaced_at_max_memory_and_nothing_is_lost(here: Yard, task: str) -> None:
    here.start("--max-memory", "200M", "--concurrency", "1")
    leaks: list[str] = []

    def replaced() -> bool:
        leaks.extend(here.enqueue(task, megabytes=40))
        here.done(leaks[-1])
        return "event=ProcessReplaced" in here.log

    eventually(replaced, "a process was replaced")
    notes = here.enqueue("note", 3)
    here.done(*notes)
    assert "event=ProcessReplaced" in here.log
    assert sorted(start.job for start in here.starts()) == sorted([*leaks, *notes])


APP = """
from taskharbor import Harbor
harbor = Harbor()

@harbor.task(name="tell")
def tell() -> int:
    return {answer}
"""


def test_reload_restarts_a_changed_program_and_waits_for_a_broken_one(here: Yard, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    program = folder / "changing.py"

    def answered(expected: bytes) -> bool:
        [job] = here.enqueue("tell")
        here.done(job)
        return here.info(job).job.result == expected

    program.write_text(APP.format(answer=1))
    here.start("--reload", app="changing:harbor", cwd=folder)
    assert answered(b"1")
    program.write_text(APP.format(answer=22))
    eventually(lambda: answered(b"22"), "the new program answers")
    program.write_text("this is no Python\n")
    eventually(lambda: "importing changing failed" in here.log, "the mistake is logged")
    program.write_text(APP.format(answer=333))
    assert answered(b"333")
    assert "event=SourcesChanged" in here.log
    assert "event=ProcessEnded" in here.log
    assert "event=ProcessDied" not in here.log  # they ended on request


def test_a_process_whose_slots_are_all_stuck_is_reported_and_replaced(here: Yard) -> None:
    """Its functions run past their timeout and cannot be ended: only the end of their process frees the slots."""
    requests = [JobRequest(type="outlive", payload={}, max_attempts=1) for _ in range(2)]
    stuck = [handle.id for handle in here.client.enqueue_many(requests)]
    file = str(here.folder / "health")
    here.start("--concurrency", "2", "--health-file", file, "--no-spare")
    here.started(*stuck)
    seen: list[dict[str, Any]] = []

    def unready() -> bool:
        report = here.health()
        seen.extend(each for each in report.get("processes", ()) if each["stuck"] == 2)
        return bool(seen) and not report["ok"]

    eventually(unready, "no slot is left, and it says so")
    [note] = here.enqueue("note")
    here.done(note)
    assert here.starts(note)[0].pid not in {line.pid for line in here.starts(stuck[0])}
    assert here.log.count("event=HandlerStuck") == 2
    assert "event=WorkerStuck" in here.log
    assert "event=ProcessReplaced" in here.log
    eventually(lambda: here.health().get("ok"), "it is ready again")
    assert [here.state(job) for job in stuck] == ["dlq", "dlq"]
