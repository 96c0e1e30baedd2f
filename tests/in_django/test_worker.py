"""Real workers of a Django project: `manage.py harbor worker run`; killed workers, lost databases, roles, commands."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests import lanes
from tests.in_django.environment import described, python, version
from tests.in_django.site_program import BACKEND, PATIENCE, SITE, clean, command, run
from tests.servers import postgres
from tests.supervisor.worker_run import eventually

# Enqueues, waits, prints: what a program of the project would do.
SCRIPT = """
import json, os, sys, time
sys.path.insert(0, os.environ["SITE_FOLDER"])
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from taskharbor.django import harbor
from shop import tasks

def end(result):
    ends = time.monotonic() + 120
    while not result.is_finished:
        assert time.monotonic() < ends, result
        time.sleep(0.05)
        result.refresh()
    return result
"""


def script(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [python(), "-c", SCRIPT + code],
        cwd="/",
        env=clean({**environment, "SITE_FOLDER": str(SITE)}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{described()}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


BY_MANAGE = command("harbor", "worker", "run")
BY_ITSELF = [python(), "-m", "taskharbor", "worker", "run", "--app", "taskharbor.django:harbor"]


@contextmanager
def worker(
    environment: dict[str, str], log: Path, *options: str, by: list[str] = BY_MANAGE
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of the project, ready."""
    if by is BY_ITSELF:
        environment = {**environment, "DJANGO_SETTINGS_MODULE": "site_settings", "PYTHONPATH": str(SITE)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*by, "--concurrency", "1", "--no-spare", *options],
            cwd="/",
            env=clean(environment),
            stdout=output,
            stderr=output,
        )
    try:
        await_text(log, "SupervisorServing", process)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()


def await_text(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    def is_said() -> bool:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        return text in log.read_text(encoding="utf-8")

    eventually(is_said, text)


def test_a_project_on_sqlite(tmp_path: Path) -> None:
    """migrate makes the store; a worker finds tasks.py, sets Django up, also in children; a killed job runs again."""
    environment = {"SITE_DATABASE": str(tmp_path / "db.sqlite3"), "SITE_OTHER": str(tmp_path / "other.sqlite3")}
    assert "TaskHarbor: the store in database 'default' is up to date" in run("migrate", **environment)
    marker, lifespans = tmp_path / "marker", tmp_path / "lifespans"
    options = {"database": "default", "lifespan": "supply.resources.opened"}
    backend = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": options}}
    of_worker = {**environment, "SITE_TASKS": json.dumps(backend), "SITE_LIFESPAN": str(lifespans)}
    with worker(of_worker, tmp_path / "log", "--lease", "5"):
        code = f"""
jobs = [tasks.write.enqueue("x"), tasks.write_async.enqueue("y"), tasks.in_a_child.enqueue("z"),
        tasks.die_once.enqueue({str(marker)!r})]
plain = tasks.plain.enqueue(10)
from supply.tasks import supplied, supplied_in_a_child
supplied = [end(supplied.enqueue("a")), end(supplied_in_a_child.enqueue("b"))]
for job in jobs:
    end(job)
died = jobs[3]
print(json.dumps([[str(job.status) for job in jobs], sorted(job.return_value for job in jobs[:2]),
    jobs[2].return_value[0] != os.getpid(), died.attempts, [error.exception_class_path for error in died.errors],
    died.return_value, plain.result(60), [job.return_value for job in supplied]]))
"""
        found = json.loads(script(code, of_worker))
    statuses, counts, elsewhere, attempts, errors, value, of_plain, supplied = found
    assert (statuses, counts, elsewhere) == (["SUCCESSFUL"] * 4, [1, 2], True)
    assert (attempts, errors, value) == (2, ["taskharbor.LeaseExpired"], "alive")
    assert of_plain in (10, 11, 12, 13)
    assert supplied == [["a", "shop", True], ["b", "shop", True]], "each process has opened one of its own"
    notes = [line.split() for line in lifespans.read_text(encoding="utf-8").splitlines()]
    opened, closed = ({pid for what, pid in notes if what == word} for word in ("opened", "closed"))
    assert len(opened) >= 4, "two workers, because one was killed, and a child of each"
    assert len(opened - closed) in (1, 2), "the killed one did not close its own; its child may have"
    listed = run("harbor", "list", "--state", "done", "--output", "json", **environment)
    assert len(json.loads(listed)["jobs"] if "jobs" in listed else json.loads(listed)) >= 5


@pytest.mark.left_to("full")
@pytest.mark.parametrize("kept", ["closed", "kept and checked"])
def test_the_database_is_restarted_under_a_worker(tmp_path: Path, kept: str) -> None:
    """The next job works, of a plain function and of a coroutine; and the worker leaves no connection behind."""
    server = postgres.Server()
    database = server.database()
    environment = {
        "SITE_DATABASE": server.address(database),
        "SITE_CONNECTIONS": json.dumps({} if kept == "closed" else {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}),
        "SITE_OTHER": str(tmp_path / "other.sqlite3"),
    }
    run("migrate", **environment)
    code = """
for _ in range(2):
    jobs = [tasks.backend_pid.enqueue(), tasks.backend_pid_async.enqueue()]
    print(json.dumps([end(job).return_value for job in jobs]))
"""
    with worker(environment, tmp_path / "log", by=BY_MANAGE if kept == "closed" else BY_ITSELF):
        first, again = map(json.loads, script(code, environment).splitlines())
        server.abort()
        server.start()
        after, _ = map(json.loads, script(code, environment).splitlines())
    assert not set(after) & set(first + again)
    if kept == "closed":
        assert len({*first, *again}) == 4, "a connection for each job"
    else:
        assert first == again, "one for each thread, which is kept"
    with psycopg.connect(server.address()) as session:
        rows = session.execute("select count(*) from pg_stat_activity where datname = %s", (database,)).fetchone()
    assert rows == (0,)
    server.stop()


@pytest.mark.left_to("full")
def test_a_role_without_the_right_to_create(tmp_path: Path) -> None:
    """`migrate` by the owner; web processes and workers need no right to change the schema, and never try."""
    server = postgres.shared()
    database = server.database()
    environment = {"SITE_DATABASE": server.address(database), "SITE_OTHER": str(tmp_path / "other.sqlite3")}
    missing = script(
        "from django.db import transaction\n"
        "try:\n    tasks.write.enqueue('x')\nexcept Exception as error:\n    print(type(error).__name__, error)",
        environment,
    )
    assert missing == (
        "StoreMissing the database 'default' has no tables of TaskHarbor yet; run `python manage.py migrate`"
    )
    options = {"database": "default", "migrate": "manual"}
    manual = json.dumps({"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}})
    ended = commands(
        {**environment, "SITE_TASKS": manual},
        ("migrate",),
        ("check", "--database", "default"),
        ("harbor", "migrate", "--sql"),
    )
    (_, migrated), (_, unready), (_, sql) = ended
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert "TaskHarbor" not in migrated
    assert "taskharbor.W011" in unready
    assert "manage.py harbor migrate" in unready
    assert "hunter2" not in unready
    assert "create schema" in sql
    run("migrate", **environment)
    assert "taskharbor.W011" not in run("check", "--database", "default", **environment)
    clerk = {**environment, "SITE_DATABASE": environment["SITE_DATABASE"].replace("harbor@", "clerk@")}
    with psycopg.connect(environment["SITE_DATABASE"], autocommit=True) as connection:
        if not connection.execute("select 1 from pg_roles where rolname = 'clerk'").fetchone():
            connection.execute("create role clerk login")
        connection.execute("revoke create on schema public from public")
        ((_, refused),) = commands(clerk, ("check", "--database", "default"))
        connection.execute("grant usage on schema taskharbor to clerk")
        tables = "on all tables in schema taskharbor, public to clerk"
        connection.execute(f"grant select, insert, update, delete {tables}".encode())
        connection.execute("grant usage on all sequences in schema taskharbor, public to clerk")
    assert "permission denied for schema taskharbor" in refused
    assert "as a role that may create the schema, and grant this one the use of it." in refused
    code = """
from django.db import connection, transaction
with transaction.atomic():
    result = tasks.write.enqueue("by a clerk")
harbor.worker().run(until_empty=True)
cursor = connection.cursor()
cursor.execute("select current_user, has_database_privilege(current_database(), 'create'), "
               "has_schema_privilege('taskharbor', 'create'), has_schema_privilege('public', 'create')")
print(json.dumps([end(result).return_value, *cursor.fetchone()]))
"""
    assert json.loads(script(code, clerk)) == [1, "clerk", False, False, False]
    ((_, allowed),) = commands(clerk, ("check", "--database", "default"))
    assert "taskharbor.W011" not in allowed


def test_a_pooler_that_gives_each_transaction_another_session(tmp_path: Path) -> None:
    """pgbouncer in transaction mode: DISABLE_SERVER_SIDE_CURSORS tells us too."""
    server = postgres.shared()
    environment = {
        "SITE_DATABASE": server.address(server.database(), server.pgbouncer()),
        "SITE_CONNECTIONS": json.dumps({"DISABLE_SERVER_SIDE_CURSORS": True}),
        "SITE_OTHER": str(tmp_path / "other.sqlite3"),
    }
    code = """
from django.core.management import call_command
from django.db import transaction
call_command("migrate", verbosity=0)
with transaction.atomic():
    kept = [tasks.write.enqueue(str(number)) for number in range(20)]
try:
    with transaction.atomic():
        tasks.write.enqueue("gone")
        raise KeyError
except KeyError:
    pass
harbor.worker().run(until_empty=True)
assert "pgbouncer=1" in harbor._store.drivers._source
print({str(end(each).status) for each in kept}, len(list(harbor.jobs())))
"""
    assert script(code, environment) == "{'SUCCESSFUL'} 20"


WITHOUT_A_DATABASE = """
import django, sys
from django.conf import settings
settings.configure(INSTALLED_APPS=["taskharbor.django", *sys.argv[1:]],
    TASKS={"default": {"BACKEND": "taskharbor.django.TaskHarborBackend", "OPTIONS": {"dsn": "memory://"}}})
django.setup()
from taskharbor.django.testing import drain
if sys.argv[1:]:
    from django_tasks import task
else:
    from django.tasks import task

@task
def double(number):
    return number * 2

result = double.enqueue(4)
drain()
result.refresh()
print(result.return_value)
"""


def test_a_project_without_a_database() -> None:
    apps = ["django_tasks"] if version() < (6, 0) else []
    done = subprocess.run(
        [python(), "-c", WITHOUT_A_DATABASE, *apps], env=clean({}), capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.strip() == "8", done.stderr


# Several commands in one process: most of what one costs is to start Python and Django.
COMMANDS = """
import io, contextlib
from django.core.management import execute_from_command_line

def command(*arguments):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            execute_from_command_line(["manage.py", *arguments])
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        except Exception as error:
            code, _ = 1, said.write(f"{type(error).__name__}: {error}")
    return [code, said.getvalue()]
"""


def commands(environment: dict[str, str], *wanted: tuple[str, ...]) -> list[tuple[int, str]]:
    """Exit code and output of each command of manage.py."""
    code = f"{COMMANDS}\nprint(json.dumps([command(*each) for each in {wanted!r}]))"
    return [(code, text) for code, text in json.loads(script(code, environment))]


def test_the_command_line(tmp_path: Path) -> None:
    environment = {"SITE_DATABASE": str(tmp_path / "db.sqlite3"), "SITE_OTHER": str(tmp_path / "other.sqlite3")}
    by_hand = ("harbor", "enqueue", "--job", "shop.tasks.write", "--json", '{"text": "by hand"}')
    ended = commands(
        environment,
        ("migrate", "--verbosity", "0"),
        ("migrate", "--verbosity", "0", "--database", "other"),
        ("harbor", "task", "list"),
        ("harbor", "--help"),
        by_hand,
        ("harbor", "--backend", "second", "list"),
        ("harbor", "--backend=third", "list"),
        ("harbor", "lst", "--settings", "site_settings"),
        ("harbor", "list", "--pythonpath=.", "--settings=site_settings"),
    )
    assert [code for code, _ in ended] == [0, 0, 0, 0, 0, 0, 1, 2, 0], ended
    _, _, (_, tasks), (_, help), _, (_, second), (_, third), (_, typo), (_, listed) = ended
    assert "shop.tasks.write" in tasks
    assert "Usage: manage.py harbor" in help
    assert "these have it: default, second" in third
    assert "did you mean manage.py harbor list" in typo
    assert "shop.tasks.write" in listed
    assert "shop.tasks.write" not in second


def test_called_by_a_program(tmp_path: Path) -> None:
    """`call_command` returns, or raises what Django's own commands raise."""
    environment = {"SITE_DATABASE": str(tmp_path / "db.sqlite3"), "SITE_OTHER": str(tmp_path / "other.sqlite3")}
    code = """
import io
from django.core.management import CommandError, call_command
call_command("migrate", verbosity=0)
said, wrong = io.StringIO(), io.StringIO()
call_command("harbor", "list", "--output", "json", stdout=said)
try:
    call_command("harbor", "lst", stderr=wrong)
except CommandError as error:
    print(json.dumps([json.loads(said.getvalue())["jobs"], error.returncode, "did you mean" in wrong.getvalue()]))
"""
    assert json.loads(script(code, environment)) == [[], 2, True]


def test_no_secret_in_an_error(tmp_path: Path) -> None:
    environment = {"SITE_DATABASE": "postgresql://harbor@127.0.0.1:1/nothing", "SITE_OTHER": str(tmp_path / "x")}
    ended = commands(environment, ("harbor", "list"), ("harbor", "doctor"), ("check", "--database", "default"))
    assert [code for code, _ in ended] == [3, 1, 0], ended
    for _, text in ended:
        assert "hunter2" not in text


EARLY = """
import os, runpy, signal, sys
program, number, *sys.argv[1:] = sys.argv[1:]

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == "taskharbor.cli.main":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, AtImport())
sys.argv[0] = program
sys.path.insert(0, os.path.dirname(program))
runpy.run_path(program, run_name="__main__")
"""


@pytest.mark.left_to("full", except_for=lanes.Chosen("15"))
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=int)
def test_a_signal_while_the_command_is_imported_is_held_back(tmp_path: Path, number: signal.Signals) -> None:
    environment = {"SITE_DATABASE": str(tmp_path / "site.sqlite3"), "SITE_OTHER": str(tmp_path / "other.sqlite3")}
    given = [python(), "-c", EARLY, str(SITE / "manage.py"), str(int(number)), "harbor", "worker", "run", "--no-spare"]
    done = subprocess.run(given, cwd="/", env=clean(environment), timeout=PATIENCE, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
