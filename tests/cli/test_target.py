"""Which store a command works on, and the error when that is unclear."""

import subprocess
import sys
from pathlib import Path

import pytest

from taskharbor.cli.target import Target
from taskharbor.drivers import JobRecord
from tests.cli.shell import program, store, taskharbor

MEMORY = ("enqueue --job x", "list", "inspect j1", "explain j1", "job retry j1", "job cancel j1 --yes", "dlq list",
          "dlq requeue j1", "queue list", "queue pause q", "flow show f1", "stats", "migrate")  # fmt: skip


def test_options_may_stand_before_the_command_too(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    answer = taskharbor("--dsn", dsn, "--output", "json", "list")
    assert [job["id"] for job in answer.json["jobs"]] == ["j1"]
    assert taskharbor("--dsn", "sqlite:////nowhere/x.db", "list", "--dsn", dsn).code == 0


def test_what_was_typed_wins_over_the_environment(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    environment = {"TASKHARBOR_DSN": dsn}
    assert taskharbor("list", environment=environment).out.splitlines()[1].startswith("j1")
    elsewhere = {"TASKHARBOR_DSN": "sqlite:////nowhere/x.db"}
    assert taskharbor("--dsn", dsn, "list", environment=elsewhere).code == 0
    assert taskharbor("list", environment=elsewhere).code == 3


def test_an_empty_environment_is_a_setting_that_is_missing(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    empty = {"TASKHARBOR_DSN": ""}
    answer = taskharbor("list", environment=empty)
    assert (answer.code, "$TASKHARBOR_DSN is set, but empty" in answer.line) == (2, True)
    assert taskharbor("list", "--dsn", dsn, environment=empty).code == 0


def test_without_anything_a_file_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    answer = taskharbor("list")
    assert f"there is no store at {tmp_path}/taskharbor.db; name yours with --dsn, $TASKHARBOR_DSN or" in answer.line
    assert answer.code == 3
    assert list(tmp_path.iterdir()) == []
    assert taskharbor("enqueue", "--job", "x").code == 0
    assert taskharbor("list").code == 0


@pytest.mark.parametrize(
    ("driver", "dsn"),
    [("postgres", "sqlite:///x.db"), ("sqlite", "postgresql://h/d"), ("memory", "redis://h/0"), ("nope", "memory://")],
)
@pytest.mark.parametrize("command", ["list", "worker run", "enqueue --job x", "doctor"])
def test_a_driver_that_contradicts_the_dsn(command: str, driver: str, dsn: str):
    answer = taskharbor(*command.split(), "--driver", driver, "--dsn", dsn)
    text = answer.out if command == "doctor" else answer.line
    assert f"--driver {driver} contradicts the DSN" in text
    assert answer.code == (1 if command == "doctor" else 2)


@pytest.mark.parametrize("name", ["postgres", "postgresql"])
def test_a_driver_goes_by_its_names(name: str):
    assert taskharbor("migrate", "--sql", "--driver", name, "--dsn", "postgres://h/d").code == 0


def test_a_driver_without_an_address():
    assert "needs an address as well: --dsn postgres://" in taskharbor("list", "--driver", "postgres").line


@pytest.mark.parametrize("command", MEMORY)
def test_a_second_process_on_memory(command: str):
    answer = taskharbor(*command.split(), "--dsn", "memory://")
    assert "memory:// lives inside one process" in answer.line
    assert answer.code == 2


@pytest.mark.parametrize("dsn", ["nonsense", "gopher://u:canary@host/x", "sqlite:///x.db?canary=1", "sqlite:///"])
def test_a_dsn_that_cannot_be_used(dsn: str):
    answer = taskharbor("list", "--dsn", dsn)
    assert answer.code == 2
    assert "canary" not in answer.err.replace("'canary'", "")


def test_a_command_that_only_looks_makes_no_store(dsn: str):
    for command in ("list", "inspect j1", "explain j1", "dlq list", "queue list", "stats", "doctor", "flow show f1"):
        answer = taskharbor(*command.split(), "--dsn", dsn)
        assert "there is no store at" in answer.out + answer.err, command
        assert "name yours" not in answer.out + answer.err  # it was
        assert answer.code == (1 if command == "doctor" else 3)
    assert not Path(dsn.removeprefix("sqlite:///")).exists()


def test_a_damaged_file(dsn: str):
    Path(dsn.removeprefix("sqlite:///")).write_bytes(b"not a database, but long enough to be looked at" * 100)
    answer = taskharbor("list", "--dsn", dsn)
    assert "not an SQLite database" in answer.line
    assert answer.code == 3


@pytest.mark.parametrize(
    ("dsn", "module", "extra"),
    [("postgresql://h/d", "psycopg", "postgres"), ("redis://h/0", "redis", "redis")],
)
@pytest.mark.parametrize("command", ["list", "enqueue --job x", "worker run", "migrate", "bench", "doctor"])
def test_a_driver_whose_library_is_not_installed(
    command: str, dsn: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
):
    ours = f"taskharbor.drivers.{extra}"
    for name in [name for name in sys.modules if name.startswith((module, ours))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(f"taskharbor.drivers.{extra}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    answer = taskharbor(*command.split(), "--dsn", dsn)
    assert f"pip install 'taskharbor[{extra}]'" in (answer.out if command == "doctor" else answer.line)
    assert answer.code == (1 if command == "doctor" else 2)


# --app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize(
    ("app", "expected"),
    [
        ("tasks", "expected module:name"),
        (":harbor", "expected module:name"),
        ("no_such_module_here:harbor", "there is no module 'no_such_module_here' here"),
        ("json:dumps", "expected a Harbor under that name in json, found a function"),
        ("json:nothing", "found nothing"),
        ("broken_a:harbor", "importing broken_a failed at broken_a.py:2: ZeroDivisionError"),
        ("broken_b:harbor", "importing broken_b failed at broken_b.py:1: ModuleNotFoundError"),
        ("broken_c:harbor", "importing broken_c failed at broken_c.py:2: SyntaxError"),
        ("broken_d:harbor", "not loaded; in a Django project use `python manage.py harbor …`"),
    ],
)
def test_an_app_that_cannot_be_used(folder: Path, app: str, expected: str):
    (folder / "broken_a.py").write_text("x = 1\ny = x / 0\n")
    (folder / "broken_b.py").write_text("import no_such_module_there\n")
    (folder / "broken_c.py").write_text("x = 1\ndef harbor(:\n")
    (folder / "broken_d.py").write_text(
        "import django.core.exceptions as of\nraise of.AppRegistryNotReady('not loaded')\n"
    )
    answer = taskharbor("list", "--app", app)
    assert expected in answer.line
    assert answer.code == 2


def test_an_app_made_with_a_driver_of_its_own(folder: Path, dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    (folder / "own_driver.py").write_text(
        "from taskharbor import Harbor\nfrom taskharbor.drivers import open_driver\n"
        f"harbor = Harbor(open_driver({dsn!r}))\n"
        "other = Harbor(open_driver('memory://'))\n"
    )
    assert taskharbor("list", "--app", "own_driver:harbor").out.splitlines()[1].startswith("j1")
    assert taskharbor("migrate", "--app", "own_driver:harbor").out == "the schema is up to date\n"
    assert "memory://" in taskharbor("list", "--app", "own_driver:other").line


def test_what_an_apps_tasks_enqueue_goes_to_the_given_store(folder: Path, dsn: str):
    (folder / "elsewhere.py").write_text("from taskharbor import Harbor\nharbor = Harbor('memory://')\n")
    harbor = Target(dsn=dsn, driver=None, app="elsewhere:harbor", output=None).harbor
    assert harbor is not None
    assert (harbor._store.dsn, type(harbor.driver).__name__) == (dsn, "SqliteDriver")


# The program itself


def test_help_and_version_of_a_real_process():
    answer = program("--help")
    assert (answer.code, answer.err) == (0, "")
    assert "taskharbor demo" in answer.out
    assert program("--version").out.startswith("taskharbor, version 0.")


def test_an_unknown_command():
    answer = taskharbor("lsit")
    assert "lsit" in answer.line
    assert "taskharbor --help" in answer.line
    assert answer.code == 2


def test_a_mistake_of_ours_is_one_line_too(dsn: str, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("canary")

    monkeypatch.setattr("taskharbor.cli.commands.list.rows", broken)
    store(dsn, JobRecord(id="j1", type="x"))
    answer = taskharbor("list", "--dsn", dsn)
    assert answer.line.startswith("taskharbor: this is a bug in taskharbor: ZeroDivisionError at test_target.py:")
    assert "canary" not in answer.err
    assert answer.code == 70


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str):
    assert "_TASKHARBOR_COMPLETE" in taskharbor("completion", shell).out


def test_completion_answers_a_shell():
    answer = program(_TASKHARBOR_COMPLETE="bash_complete", COMP_WORDS="taskharbor list --state ", COMP_CWORD="3")
    assert answer.out.split() == [f"plain,{state}" for state in
        ("blocked", "scheduled", "ready", "inflight", "done", "dlq", "cancelled")]  # fmt: skip


def test_an_empty_address_is_a_variable_that_is_not_set_and_no_wish_for_another_store():
    for arguments in (["list", "--dsn", ""], ["--dsn", "", "list"], ["worker", "run", "--dsn", ""]):
        answer = taskharbor(*arguments)
        assert answer.code == 2
        assert answer.line == "taskharbor: --dsn: expected an address such as sqlite:///jobs.db, got an empty value"


def test_a_disk_without_room_for_the_output(dsn: str):
    store(dsn, JobRecord(id="a", type="t"))
    done = subprocess.run(
        f"{sys.executable} -m taskharbor list --dsn '{dsn}' > /dev/full",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "taskharbor: the output cannot be written: No space left on device\n"


EVERY = (*MEMORY, "doctor", "bench --jobs 1", "queue resume q", "dlq requeue --all --yes", "conformance")


@pytest.mark.parametrize("command", EVERY)
@pytest.mark.parametrize(
    ("app", "told"),
    [("nosuch:harbor", "no module 'nosuch'"), ("json:dumps", "found a function"), ("", "got an empty value")],
)
def test_a_wrong_app_is_reported_even_with_an_address(dsn: str, command: str, app: str, told: str):
    store(dsn, JobRecord(id="j1", type="x"))
    answer = taskharbor(*command.split(), "--app", app, "--dsn", dsn)
    assert told in (answer.out if command == "doctor" and app else answer.line)
    assert answer.code == (1 if command == "doctor" and app else 2)
    assert taskharbor("inspect", "j1", "--dsn", dsn).code == 0, "and nothing was done"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("inspec j1", "taskharbor inspect"),
        ("lst", "taskharbor list"),
        ("dlq requeu j1", "taskharbor dlq requeue"),
        ("worker rn", "taskharbor worker run"),
        ("zzz", None),
    ],
)
def test_a_command_that_is_mistyped(typed: str, meant: str | None):
    answer = taskharbor(*typed.split())
    assert answer.code == 2
    assert answer.line.lower().count("did you mean") == (meant is not None)
    assert meant is None or f"did you mean {meant}? (see taskharbor" in answer.line
