"""Which store a command works on: what was typed, then what the code names, then the environment; and what was not used
is named."""

import sys
from pathlib import Path

import pytest

from taskharbor.drivers import JobRecord
from tests.cli.shell import Process, store, taskharbor


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that names its store in code, and one that leaves it to the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("code_names_it", "code_leaves_it"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    app = "from taskharbor import Harbor\nharbor = Harbor({})\n@harbor.task\ndef work() -> None: ...\n"
    (tmp_path / "code_names_it.py").write_text(app.format("'sqlite:///mine.db'"))
    (tmp_path / "code_leaves_it.py").write_text(app.format(""))
    for name in ("mine", "other", "third"):
        store(f"sqlite:///{tmp_path}/{name}.db", JobRecord(id=name, type="x"))
    return tmp_path


def listed(app: str, *arguments: str, dsn: str = "") -> tuple[str, str]:
    """The id of the only job in the store that was used, and what stands on stderr."""
    environment = {"TASKHARBOR_DSN": dsn} if dsn else None
    answer = taskharbor("list", "--app", app, "--output", "json", *arguments, environment=environment)
    assert answer.code == 0, answer.err
    ((job),) = answer.json["jobs"]
    return job["id"], answer.err


def test_what_the_code_names_wins_over_the_environment_which_is_said(folder: Path):
    used, told = listed("code_names_it:harbor", dsn="sqlite:///other.db")
    assert used == "mine"
    assert told == (
        "note: $TASKHARBOR_DSN names another store, which is not used: code_names_it:harbor names its own; --dsn "
        "chooses another one\n"
    )


def test_what_was_typed_wins_over_both(folder: Path):
    used, told = listed("code_names_it:harbor", "--dsn", "sqlite:///third.db", dsn="sqlite:///other.db")
    assert used == "third"
    assert told == "note: $TASKHARBOR_DSN names another store, which is not used: --dsn names this one\n"


def test_the_environment_names_the_store_of_a_program_that_leaves_it_open(folder: Path):
    assert listed("code_leaves_it:harbor", dsn="sqlite:///other.db") == ("other", "")


def test_nothing_is_said_where_all_of_them_name_one_store(folder: Path):
    assert listed("code_names_it:harbor", dsn=f"sqlite:///{folder}/mine.db") == ("mine", "")
    assert listed("code_names_it:harbor", "--dsn", "sqlite:///mine.db") == ("mine", "")


def test_an_empty_variable_is_no_matter_where_the_code_names_the_store(folder: Path):
    answer = taskharbor("list", "--app", "code_names_it:harbor", environment={"TASKHARBOR_DSN": ""})
    assert (answer.code, answer.err) == (0, "")
    answer = taskharbor("list", "--app", "code_leaves_it:harbor", environment={"TASKHARBOR_DSN": ""})
    assert (answer.code, "$TASKHARBOR_DSN is set, but empty" in answer.line) == (2, True)


def test_a_job_goes_where_the_program_of_the_code_looks_for_it(folder: Path):
    stored = taskharbor("enqueue", "--app", "code_names_it:harbor", "--job", "code_names_it.work",
                        environment={"TASKHARBOR_DSN": "sqlite:///other.db"})  # fmt: skip
    assert stored.err.count("$TASKHARBOR_DSN") == 1
    found = taskharbor("inspect", stored.out.strip(), "--dsn", "sqlite:///mine.db", "--output", "json")
    assert found.json["type"] == "code_names_it.work"


def test_the_conformance_suite_runs_on_the_store_of_the_code(folder: Path):
    answer = taskharbor("conformance", "--app", "code_names_it:harbor", "--theme", "pause", "--namespace", "x-")
    assert (answer.code, answer.err) == (0, "")
    refused = taskharbor("conformance", "--app", "code_names_it:harbor", "--theme", "pause")
    assert (refused.code, "not empty" in refused.line) == (2, True)


def test_doctor_names_every_store_that_it_saw(folder: Path):
    answer = taskharbor("doctor", "--app", "code_names_it:harbor", "--dsn", "sqlite:///third.db", "--output", "json",
                        environment={"TASKHARBOR_DSN": "postgresql://ada:secret@host/x"})  # fmt: skip
    told = [(check["status"], check["text"]) for check in answer.json["checks"] if check["check"] == "dsn"]
    assert told == [
        ("ok", f"sqlite:///{folder}/third.db (from --dsn)"),
        ("warning", f"code_names_it:harbor names another store, which is not used here: sqlite:///{folder}/mine.db"),
        ("warning", "$TASKHARBOR_DSN names another store, which is not used here: postgresql://…@host/x"),
    ]
    assert answer.err == ""


def test_a_worker_serves_the_store_that_the_code_names_and_says_what_it_does_not_use(folder: Path):
    with Process("worker", "run", "--app", "code_names_it:harbor", "--no-spare", cwd=str(folder),
                 TASKHARBOR_DSN="sqlite:///other.db") as worker:  # fmt: skip
        worker.wait_for("$TASKHARBOR_DSN names another store, which is not used: code_names_it:harbor names its own")
        worker.wait_for(f"store=sqlite:///{folder}/mine.db")
    assert worker.seen.count("$TASKHARBOR_DSN") == 1


def test_a_worker_on_another_store_than_its_code_names_says_so(folder: Path):
    with Process("worker", "run", "--app", "code_names_it:harbor", "--no-spare", "--dsn", "sqlite:///third.db",
                 cwd=str(folder)) as worker:  # fmt: skip
        worker.wait_for("code_names_it:harbor names another store, which is not used")


@pytest.mark.parametrize("dsn", ["postgresql://ada:canary@127.0.0.1:1/jobs", "redis://127.0.0.1:1/0?password=canary"])
def test_a_password_that_others_can_read_is_pointed_out_and_one_in_the_environment_is_not(dsn: str):
    typed = taskharbor("list", "--dsn", dsn)
    named = taskharbor("list", environment={"TASKHARBOR_DSN": dsn})
    note = "note: every user of this machine can read the password in --dsn; $TASKHARBOR_DSN keeps it from them\n"
    assert typed.err == note + named.err
    assert "canary" not in typed.err
