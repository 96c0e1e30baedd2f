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
    assert [finding["ours"] for finding in found if finding["kind"] == "call"] == ["….enqueue()"]


def found_in(folder: Path, code: str) -> list[dict[str, Any]]:
    """The findings of a program that begins with the usual imports."""
    (folder / "a.py").write_text(f"from datetime import datetime\nfrom rq import Queue\nqueue = Queue()\n{code}\n")
    answer = taskharbor("from", "rq", str(folder), "--output", "json")
    assert (answer.code, answer.err) == (0, "")
    return [finding for finding in answer.json["findings"] if finding["subject"] != "rq.Queue"]


@pytest.mark.parametrize(
    ("call", "ours", "advice"),
    [
        (
            "queue.enqueue(Reports().build, 'eu')",
            "Reports().build.enqueue('eu')",
            "a method of an object cannot be a task",
        ),
        ("queue.enqueue(tasks['send'], 1)", "tasks['send'].enqueue(1)", "the function is chosen when the line runs"),
        ("queue.enqueue(lambda: 1)", "(lambda: 1).enqueue()", "the function is chosen when the line runs"),
    ],
)
def test_what_is_enqueued_need_not_be_a_name(tmp_path: Path, call: str, ours: str, advice: str) -> None:
    found = found_in(tmp_path, f"{call}\nqueue.enqueue(send, 2)")
    assert found[0]["ours"] == ours
    assert advice in found[0]["advice"][0]["text"]
    assert found[1]["ours"] == "send.enqueue(2)"


def test_a_place_that_cannot_be_translated_does_not_end_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from taskharbor.moving import rq_calls

    real = rq_calls._retry

    def broken(value: ast.expr, advice: Any) -> Any:
        if isinstance(value, ast.Name):
            raise LookupError("no such case")
        return real(value, advice)

    monkeypatch.setattr(rq_calls, "_retry", broken)
    found = found_in(tmp_path, "queue.enqueue(send, 1, retry=often)\nqueue.enqueue(send, 2)")
    assert (found[0]["line"], found[0]["level"], found[0]["ours"]) == (4, "missing", "")
    assert "cannot translate it (LookupError)" in found[0]["advice"][0]["text"]
    assert found[1]["ours"] == "send.enqueue(2)"


def test_what_would_be_refused_here_is_translated(tmp_path: Path) -> None:
    found = found_in(
        tmp_path,
        "def send(to, when: int) -> None: ...\n"
        "queue.enqueue_at(datetime(2030, 1, 1), send, meta={'tenant': 3, 'who': who, 'is': 'text'})\n"
        "queue.enqueue_many([])\njob.save_meta()\njob.get_status()\nQueue('slow', default_timeout=9)",
    )
    by_subject = {
        finding["subject"]: finding
        for finding in found
        if finding["theirs"].startswith(("def", "job", "queue.enqueue_many"))
    }
    arguments = found[-1]
    send = next(finding for finding in found if finding["subject"] == "send" and finding["kind"] == "call")
    options = "run_at=datetime(2030, 1, 1).astimezone(), metadata={'tenant': '3', 'who': str(who), 'is': 'text'}"
    assert send["ours"] == f"send.options({options}).enqueue()"
    assert "parameters without annotations" in str(by_subject["send"]["advice"])
    assert {".enqueue_many()", ".save_meta()", ".get_status()"} <= set(by_subject)
    assert "RQ pickles them" in str(arguments["advice"])
    answer = taskharbor("from", "rq", str(tmp_path))
    assert "default_timeout: timeout= of each task" in answer.out
