"""`taskharbor from rq` on a small project: the whole report, and that what it says to write works."""

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.testing import drain, enqueued
from tests.cli.shell import taskharbor
from tests.moving.test_celery import expect

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE / "rq_shop")


def test_the_whole_report() -> None:
    answer = taskharbor("from", "rq", ".")
    assert (answer.code, answer.err) == (0, "")
    expect(HERE / "rq_shop.txt", answer.out)


def test_the_calls_that_it_says_to_write_store_the_jobs() -> None:
    findings = taskharbor("from", "rq", ".", "--output", "json").json["findings"]
    harbor = Harbor("memory://", queues=["mail", "pictures", "default"])
    tasks = {finding["subject"]: finding["ours"] for finding in findings if finding["kind"] == "task"}
    names: dict[str, Any] = {"harbor": harbor, "user": SimpleNamespace(id=7, email="ada", picture="a.png")}
    exec(
        f"""
from datetime import datetime, timedelta, timezone
from taskharbor import Fixed
{tasks["send"]}
def send(to, subject="Hello"): return subject
{tasks["resize"]}
def resize(path: str) -> str: return path
""",
        names,
    )
    calls = [finding["ours"] for finding in findings if finding["kind"] == "call" and "await" not in finding["ours"]]
    for call in calls:
        ast.parse(call)
        exec(call, names)
    jobs = enqueued(harbor, names["send"])
    assert sorted((job.queue, job.max_attempts, job.priority) for job in jobs) == [
        ("default", 1, 0),
        ("default", 1, 0),
        ("default", 1, 1),
        ("mail", 1, 0),
        ("mail", 3, 0),
        ("mail", 4, 0),
    ]
    drain(harbor)


def test_a_place_that_is_not_there_is_one_line() -> None:
    answer = taskharbor("from", "rq", "nowhere")
    assert (answer.code, answer.line) == (2, "taskharbor: nowhere: no such file or folder")


def test_environments_and_hidden_folders_are_left_out(tmp_path: Path) -> None:
    code = "from rq import Queue\nqueue = Queue()\n"
    for folder in (".hidden", "environment", "node_modules", "jobs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text(code)
    (tmp_path / "environment" / "pyvenv.cfg").touch()
    (tmp_path / "jobs" / "back").symlink_to(tmp_path)
    json_answer = taskharbor("from", "rq", str(tmp_path), "--output", "json")
    assert [finding["file"] for finding in json.loads(json_answer.out)["findings"]] == [str(tmp_path / "jobs" / "a.py")]


def test_a_call_without_a_function_is_reported_as_well(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from rq import Queue\nqueue = Queue()\nqueue.enqueue_call()\n")
    found = taskharbor("from", "rq", str(tmp_path), "--output", "json").json["findings"]
    assert found[-1]["ours"] == "….enqueue()"
