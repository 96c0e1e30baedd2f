"""A whole local run with nothing but commands, each typed into a real process, on each store."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import PATIENCE, Answer, Process, looking_again, program, taskharbor
from tests.servers import postgres, redis


def sqlite_store(folder: Path) -> str:
    return f"sqlite:///{folder}/jobs.db"


def postgres_store(folder: Path) -> str:
    server = postgres.shared()
    return server.address(server.database())


def redis_store(folder: Path) -> str:
    server = redis.shared()
    server.empty()
    return server.url


STORES = (sqlite_store, postgres_store, redis_store)


class Shell:
    """A person at a shell with TASKHARBOR_DSN set."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def __call__(self, *arguments: str, code: int = 0) -> Answer:
        answer = program(*arguments, TASKHARBOR_DSN=self.dsn, timeout=PATIENCE)
        assert answer.code == code, (arguments, answer)
        return answer

    def enqueue(self, *arguments: str) -> str:
        return self("enqueue", *arguments).out.strip()

    def explain(self, id: str) -> str:
        """The reason that counts."""
        return str(self("explain", id, "--output", "json").json["reasons"][0]["code"])

    def until(self, id: str, **facts: object) -> dict[str, Any]:
        """The job, once it is so. Looked at from this process: one for each look would be the test's whole load."""

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = taskharbor("inspect", id, "--dsn", self.dsn, "--output", "json").json
            return found if facts.items() <= found.items() else None

        return looking_again(look, f"{id} is {facts}")


@pytest.mark.left_to("full")
@pytest.mark.parametrize("make", STORES)
def test_a_whole_run_with_nothing_but_commands(make: Callable[[Path], str], tmp_path: Path) -> None:
    shell = Shell(make(tmp_path))
    shell("migrate")
    with Process("worker", "run", "--dsn", shell.dsn, "--queues", "default,mail", "--poll-interval", "0.2") as worker:
        worker.wait_for("WorkerStarted")

        # see it done
        done = shell.enqueue("--job", "echo", "--json", '{"text": "hello"}')
        shell.until(done, state="done")
        assert shell("inspect", done, "--show-payload", "--output", "json").json["result"] == {"text": "hello"}

        # see one retried into the DLQ, requeue it
        dead = shell.enqueue("--job", "fail", "--json", '{"reason": "no luck"}', "--max-attempts", "2")
        assert shell.until(dead, state="dlq")["deliveries"] == 2
        assert "event=JobRetried" in worker.seen
        assert dead in shell("dlq", "list").out
        shell("dlq", "requeue", dead)
        assert shell.until(dead, state="dlq", deliveries=4)["attempts"] == 2

        # pause and resume a queue, explain a job that waits
        shell("queue", "pause", "mail")
        waits = shell.enqueue("--job", "echo", "--queue", "mail")
        assert shell.explain(waits) == "paused"
        shell("queue", "resume", "mail")
        shell.until(waits, state="done")

        # one for later is made due now
        later = shell.enqueue("--job", "echo", "--delay", "1h")
        assert shell.explain(later) == "not_due"
        shell("job", "retry", later)
        shell.until(later, state="done")

        # what is going on
        (mail,) = [row for row in shell("queue", "list", "--output", "json").json["queues"] if row["queue"] == "mail"]
        assert (mail["paused"], mail["workers"], mail["jobs"]["done"]) == (False, 1, 1)

        # drain: what runs is finished
        running = shell.enqueue("--job", "sleep", "--json", '{"seconds": 6}')
        shell.until(running, state="inflight")
    assert worker.code == 0, worker.seen[-2000:]
    assert shell.until(running, state="done")["deliveries"] == 1
    assert "Traceback" not in worker.seen


def test_the_demo_in_a_pipe(tmp_path: Path) -> None:
    answer = program("demo", "--folder", str(tmp_path), timeout=4 * PATIENCE, TASKHARBOR_DSN="sqlite:////nowhere/x.db")
    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.out
    for words in ("40/40", "6/6", "26/26", "3/3", "72 jobs succeeded", "dead letter: the card was refused"):
        assert words in answer.out, words
    # What it says to try next can be typed.
    typed = [line.strip() for line in answer.out.splitlines() if re.match(r"  \S*taskharbor ", line)]
    export = next(line.strip() for line in answer.out.splitlines() if line.startswith("  export "))
    environment = {"TASKHARBOR_DSN": export.partition("=")[2]}
    commands = [line.split()[1:] for line in typed if "worker run" not in line and "dashboard" not in line]
    assert [command[0] for command in commands] == ["dlq", "inspect", "explain", "flow", "dlq"]
    for command in commands:
        looked = taskharbor(*command, environment=environment)
        assert looked.code == 0, (command, looked)
        assert looked.out
    flow = taskharbor("flow", "show", commands[3][-1], "--output", "json", environment=environment).json
    assert (flow["status"], flow["done"]) == ("succeeded", flow["total"])
    assert "Traceback" not in (tmp_path / "worker.log").read_text()


def test_a_worker_on_memory_is_alone() -> None:
    answer = taskharbor("worker", "run", "--dsn", "memory://", "--processes", "2")
    assert (answer.code, "memory://" in answer.line) == (2, True)


def test_ctrl_c_is_130_and_one_line(tmp_path: Path) -> None:
    """A command that had to be interrupted takes away what it had stored for itself."""
    dsn = sqlite_store(tmp_path)
    with Process("bench", "--jobs", "500000", "--dsn", dsn) as measuring:
        measuring.wait_for("enqueueing")
        looking_again(lambda: jobs_in(dsn) or None, "a job is stored")
        measuring.interrupt()
        assert measuring.process.wait(PATIENCE) == 130
    assert measuring.seen.split("\n")[-2:] == ["taskharbor: interrupted", ""]
    assert "Traceback" not in measuring.seen
    assert jobs_in(dsn) == 0


def jobs_in(dsn: str) -> int:
    answer = taskharbor("queue", "list", "--dsn", dsn, "--output", "json")
    return sum(sum(row["jobs"].values()) for row in answer.json["queues"]) if answer.code == 0 else 0


def test_ctrl_c_is_how_a_watch_ends(tmp_path: Path) -> None:
    dsn = sqlite_store(tmp_path)
    assert taskharbor("migrate", "--dsn", dsn).code == 0
    with Process("stats", "--watch", "--interval", "0.2", "--dsn", dsn, "--output", "json") as watching:
        watching.wait_for('"queues"')
        watching.interrupt()
        assert watching.process.wait(PATIENCE) == 0
    assert all(json.loads(line) for line in watching.seen.splitlines() if line.strip())
