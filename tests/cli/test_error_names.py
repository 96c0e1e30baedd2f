"""`--error` in the shell: a bare name looks for every class of that name, and changes none of them."""

import pytest

from taskharbor.drivers import State
from tests.cli.dead_jobs import Dead, bury, states
from tests.cli.shell import Answer, taskharbor

ZIP = Dead("z1", error="zipfile.BadZipFile")
OWN = Dead("c1", error="app.ConnectionError")
BUILTIN = Dead("c2")


def run(dsn: str, *arguments: str) -> Answer:
    return taskharbor(*arguments, "--dsn", dsn)


@pytest.fixture
def dead(any_dsn: str) -> str:
    bury(any_dsn, ZIP, OWN, BUILTIN)
    return any_dsn


def listed(dsn: str, error: str) -> list[str]:
    return [job["id"] for job in run(dsn, "list", "--error", error, "--output", "json").json["jobs"]]


def test_looking_takes_a_bare_name_and_a_full_one(dead: str):
    assert listed(dead, "BadZipFile") == listed(dead, "zipfile.BadZipFile") == ["z1"]
    assert listed(dead, "ConnectionError") == ["c1", "c2"]
    assert listed(dead, "builtins.ConnectionError") == ["c2"]
    assert "z1" in run(dead, "dlq", "list", "--error", "BadZipFile").out
    assert run(dead, "dlq", "export", "--error", "ConnectionError").err.startswith("2 dead jobs")
    answer = run(dead, "dlq", "summary", "--by", "error", "--error", "ConnectionError", "--output", "json")
    assert sorted(row["value"] for row in answer.json["rows"]) == ["ConnectionError", "app.ConnectionError"]


@pytest.mark.parametrize("command", [["dlq", "requeue"], ["dlq", "delete"], ["job", "delete", "--state", "dlq"]])
@pytest.mark.parametrize("how", ["--yes", "--dry-run"])
def test_changing_refuses_a_bare_name_and_says_what_to_type(dsn: str, command: list[str], how: str):
    bury(dsn, ZIP, OWN, BUILTIN)
    answer = run(dsn, *command, "--error", "BadZipFile", how)
    assert answer.code == 2
    assert "expected the full name of one class" in answer.line
    assert answer.line.endswith(f"Type: taskharbor {' '.join(command)} --error zipfile.BadZipFile")
    answer = run(dsn, *command, "--error", "ConnectionError", "--queue", "mail", how)
    assert answer.code == 2
    assert "'builtins.ConnectionError', 'app.ConnectionError'" in answer.line
    assert "--queue mail --error builtins.ConnectionError, or: taskharbor" in answer.line
    assert states(dsn, "z1", "c1", "c2") == [State.DLQ] * 3


def test_changing_takes_exactly_the_class_that_was_typed(dead: str):
    assert run(dead, "dlq", "requeue", "--error", "ConnectionError", "--yes").code == 2
    assert run(dead, "dlq", "requeue", "--error", "app.ConnectionError", "--yes").out == "1 job was requeued\n"
    assert states(dead, "z1", "c1", "c2") == [State.DLQ, State.READY, State.DLQ]
    assert run(dead, "dlq", "requeue", "--error", "builtins.ConnectionError", "--yes").out == "1 job was requeued\n"
    assert states(dead, "z1", "c1", "c2") == [State.DLQ, State.READY, State.READY]


def test_a_builtin_needs_no_module_while_no_other_class_has_its_name(dsn: str):
    bury(dsn, ZIP, BUILTIN)
    assert run(dsn, "dlq", "requeue", "--error", "ConnectionError", "--yes").out == "1 job was requeued\n"
    assert states(dsn, "z1", "c2") == [State.DLQ, State.READY]


def test_what_the_summary_suggests_means_one_class(dsn: str):
    bury(dsn, BUILTIN, Dead("c3"), OWN)
    told = run(dsn, "dlq", "summary", "--by", "error").err
    assert "taskharbor dlq requeue --error builtins.ConnectionError --canary 5 --dry-run" in told
