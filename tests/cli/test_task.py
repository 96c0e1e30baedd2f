"""`taskharbor task list`: what an application declares."""

from pathlib import Path

import pytest

from tests.cli.shell import taskharbor

APP = """
from taskharbor import Harbor
harbor = Harbor("sqlite:///jobs.db")
empty = Harbor("sqlite:///jobs.db")

@harbor.task(queue="mail", max_attempts=3, timeout=90, priority=5)
def send(to: str) -> None: ...

@harbor.task(process=True)
def crunch() -> None: ...
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"tasks_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return name


def test_tasks_by_name_with_their_options(app: str, tmp_path: Path):
    answer = taskharbor("task", "list", "--app", f"{app}:harbor", "--output", "json")
    assert answer.json == {
        "tasks": [
            {
                "name": f"{app}.crunch",
                "queue": "default",
                "max_attempts": 5,
                "timeout": None,
                "priority": 0,
                "process": True,
            },
            {
                "name": f"{app}.send",
                "queue": "mail",
                "max_attempts": 3,
                "timeout": 90.0,
                "priority": 5,
                "process": False,
            },
        ]
    }
    head, *rows = taskharbor("task", "list", "--app", f"{app}:harbor").out.splitlines()
    assert head.split() == ["NAME", "QUEUE", "ATTEMPTS", "TIMEOUT", "PRIORITY", "RUNS", "IN"]
    assert [row.split() for row in rows] == [
        [f"{app}.crunch", "default", "5", "none", "0", "a", "child", "process"],
        [f"{app}.send", "mail", "3", "1m", "30s", "5", "the", "worker"],
    ]
    assert not list(tmp_path.glob("*.db")), "it uses no store"


def test_an_app_without_tasks_and_no_app(app: str):
    answer = taskharbor("task", "list", "--app", f"{app}:empty")
    assert (answer.code, answer.out) == (0, "")
    assert "declares no tasks" in answer.err
    answer = taskharbor("task", "list")
    assert (answer.code, "expected --app module:name" in answer.line) == (2, True)
