"""Real workers of a Django project: `manage.py harbor worker run`; killed workers, lost databases, roles, commands."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.django.environment import described, python
from tests.django.site_program import BACKEND, PATIENCE, SITE, attempt, clean, command, run
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


@contextmanager
def worker(environment: dict[str, str], log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`manage.py harbor worker run`, ready."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command("harbor", "worker", "run", "--concurrency", "1", "--no-spare", *options),
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
    assert "no issues" in run("check", "--database", "default", **environment)
    marker = tmp_path / "marker"
    with worker(environment, tmp_path / "log", "--lease", "5"):
        code = f"""
jobs = [tasks.write.enqueue("x"), tasks.write_async.enqueue("y"), tasks.in_a_child.enqueue("z"),
        tasks.die_once.enqueue({str(marker)!r})]
plain = tasks.plain.enqueue(10)
for job in jobs:
    end(job)
died = jobs[3]
print(json.dumps([[str(job.status) for job in jobs], sorted(job.return_value for job in jobs[:2]),
    jobs[2].return_value[0] != os.getpid(), died.attempts, [error.exception_class_path for error in died.errors],
    died.return_value, plain.result(60)]))
"""
        found = json.loads(script(code, environment))
    statuses, counts, elsewhere, attempts, errors, value, of_plain = found
    assert (statuses, counts, elsewhere) == (["SUCCESSFUL"] * 4, [1, 2], True)
    assert (attempts, errors, value) == (2, ["taskharbor.LeaseExpired"], "alive")
    assert of_plain in (10, 11, 12, 13)
    listed = run("harbor", "list", "--state", "done", "--output", "json", **environment)
    assert len(json.loads(listed)["jobs"] if "jobs" in listed else json.loads(listed)) >= 5


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
    with worker(environment, tmp_path / "log"):
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
    assert "TaskHarbor" not in run("migrate", SITE_TASKS=manual, **environment)
    unready = attempt("check", "--database", "default", SITE_TASKS=manual, **environment)
    assert "taskharbor.W011" in unready.stderr + unready.stdout
    assert "manage.py harbor migrate" in unready.stderr + unready.stdout
    assert "hunter2" not in unready.stderr + unready.stdout
    assert "create schema" in run("harbor", "migrate", "--sql", SITE_TASKS=manual, **environment)
    run("migrate", **environment)
    assert "no issues" in run("check", "--database", "default", **environment)


def test_the_command_line(tmp_path: Path) -> None:
    environment = {"SITE_DATABASE": str(tmp_path / "db.sqlite3"), "SITE_OTHER": str(tmp_path / "other.sqlite3")}
    run("migrate", **environment)
    run("migrate", "--database", "other", **environment)
    assert "shop.tasks.write" in run("harbor", "task", "list", **environment)
    assert "manage.py harbor" in run("harbor", "--help", **environment)
    run("harbor", "enqueue", "--job", "shop.tasks.write", "--json", '{"text": "by hand"}', **environment)
    run("harbor", "--backend", "second", "stats", **environment)
    unknown = attempt("harbor", "--backend", "third", "stats", **environment)
    assert unknown.returncode
    assert "these have it: default, second" in unknown.stderr
    assert attempt("harbor", "statz", **environment).returncode == 2


def test_no_secret_in_an_error(tmp_path: Path) -> None:
    environment = {"SITE_DATABASE": "postgresql://harbor@127.0.0.1:1/nothing", "SITE_OTHER": str(tmp_path / "x")}
    for arguments in (("harbor", "stats"), ("harbor", "doctor"), ("check", "--database", "default")):
        said = attempt(*arguments, **environment)
        assert "hunter2" not in said.stdout + said.stderr, arguments
