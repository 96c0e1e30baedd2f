"""Programs as people start them: servers of the web, and programs that fork. Each request enqueues one job, exactly.

docs/operations.md has a table of what is tested here.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from taskharbor import Harbor
from taskharbor.testing import enqueued
from tests import lanes
from tests.on_uvloop.stores import on_postgres, on_redis, on_sqlite
from tests.processes import forking_program, web_apps
from tests.supervisor.worker_run import PATIENCE, ROOT, eventually

pytestmark = pytest.mark.left_to(
    "full", except_for=lanes.Chosen("test_each_request_is_one_job[sqlite-gthread-preload]")
)

STORES = {"sqlite": on_sqlite, "postgres": on_postgres, "redis": on_redis}
LISTENS = re.compile(r"(?:Listening at:|running on) (http://[\d.:]+)")
SERVES = {"gunicorn": "Booting worker", "uvicorn": "Application startup complete"}
REQUESTS = lanes.figure(test=40, full=200)
AT_ONCE = 8
PROCESSES = 2
USED = "tests.processes.web_apps:preloaded()"
SERVERS = {
    "sync": ("gunicorn", "tests.processes.web_apps:wsgi", "--worker-class", "sync"),
    "gthread": ("gunicorn", "tests.processes.web_apps:wsgi", "--worker-class", "gthread", "--threads", "4"),
    "sync-preload": ("gunicorn", USED, "--preload", "--worker-class", "sync"),
    "gthread-preload": ("gunicorn", USED, "--preload", "--worker-class", "gthread", "--threads", "4"),
    "gevent": ("gunicorn", "tests.processes.web_apps:wsgi", "--worker-class", "gevent"),
    "gevent-preload": ("gunicorn", USED, "--preload", "--worker-class", "gevent"),
    "uvicorn": ("uvicorn", "tests.processes.web_apps:served"),
}
ANY_PORT = {"gunicorn": ("--bind", "127.0.0.1:0"), "uvicorn": ("--port", "0")}


@contextmanager
def serving(dsn: str, folder: Path, *command: str) -> Iterator[str]:
    """Run a server; gives its address. It ends by TERM, without an error."""
    log = folder / "log"
    with log.open("wb") as file:
        program = subprocess.Popen(
            [sys.executable, "-m", *command, *ANY_PORT[command[0]]],
            cwd=ROOT,
            env={**os.environ, "TASKHARBOR_DSN": dsn, "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        address = eventually(lambda: LISTENS.findall(log.read_text()), "the server listens")[0]
        eventually(lambda: SERVES[command[0]] in log.read_text(), "a process of it serves")
        yield address
        program.terminate()
        assert program.wait(PATIENCE) in (0, -signal.SIGTERM)
        assert "Traceback" not in log.read_text()
    finally:
        try:
            os.killpg(program.pid, signal.SIGKILL)  # the group is the server's own
        except ProcessLookupError:
            pass
        program.wait()
        print(log.read_text())  # pytest shows it when the test has failed


Answer = dict[str, str]


def asker(client: httpx.Client, address: str) -> Callable[[int], Answer | None]:
    def ask(number: int) -> Answer | None:
        try:
            answer = client.post(f"{address}/", params={"number": number}, headers={"connection": "close"})
        except httpx.TransportError as cut_off:
            print(f"request {number}: {cut_off!r}")
            return None
        assert answer.status_code == 200, answer.text
        found: Answer = answer.json()
        return found

    return ask


def ask_until(
    address: str, enough: Callable[[list[Answer]], bool], meanwhile: Callable[[], object] = int
) -> tuple[range, set[str]]:
    """Ask from several threads until the answers are enough; returns the numbers asked, and the ids of the jobs."""
    answers: list[Answer] = []
    asked = 0
    with httpx.Client(timeout=PATIENCE) as client, ThreadPoolExecutor(AT_ONCE) as pool:

        def more() -> bool:
            nonlocal asked
            answers.extend(filter(None, pool.map(asker(client, address), range(asked, asked + AT_ONCE))))
            asked += AT_ONCE
            meanwhile()
            return enough(answers)

        eventually(more, "the answers are enough")
    return range(asked), {answer["job"] for answer in answers}


def stored(dsn: str) -> dict[str, int]:
    """The number in each job of the store."""
    with Harbor(dsn) as harbor:
        note = harbor.task(name=web_apps.note.name)(web_apps.note.function)
        return {job.id: json.loads(job.payload)["number"] for job in enqueued(harbor, note)}


@pytest.mark.may_skip("gevent is not installed")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("store", STORES)
def test_each_request_is_one_job(store: str, server: str, tmp_path: Path) -> None:
    """Each process of the server has enqueued; with `--preload` the harbor was used before they were forked."""
    if "gevent" in server:
        pytest.importorskip("gevent")
    dsn = STORES[store](tmp_path)

    def enough(answers: list[Answer]) -> bool:
        return len(answers) >= REQUESTS and len({answer["pid"] for answer in answers}) == PROCESSES

    with serving(dsn, tmp_path, *SERVERS[server], "--workers", str(PROCESSES)) as address:
        asked, answered = ask_until(address, enough)
    before_the_fork = (web_apps.IMPORTED, web_apps.IMPORTED + 1) if "preload" in server else ()
    found = stored(dsn)
    assert sorted(found.values()) == [*asked, *before_the_fork]
    assert found.keys() >= answered
    assert len(answered) == len(asked)


def test_a_server_that_reloads_its_program_loses_no_job(tmp_path: Path) -> None:
    """`uvicorn --reload`: a changed file ends the process with its harbor; requests go on meanwhile.

    uvicorn may cut off a connection that it has accepted: that request has no answer, and a job or none.
    """
    dsn = on_sqlite(tmp_path)
    source = tmp_path / "watched" / "reloaded_site.py"
    source.parent.mkdir()

    def write(version: str) -> int:
        return source.write_text(f"from tests.processes.web_apps import asgi\n\napp = asgi({version!r})\n")

    write("first")
    options = ("--reload", "--reload-dir", str(source.parent), "--app-dir", str(source.parent))
    with serving(dsn, tmp_path, "uvicorn", "reloaded_site:app", *options) as address:
        asked, answered = ask_until(
            address,
            lambda answers: {"first", "second"} <= {answer["version"] for answer in answers},
            lambda: "Reloading" in (tmp_path / "log").read_text() or write("second"),
        )
    found = stored(dsn)
    assert found.keys() >= answered
    assert len({*found.values()} & {*asked}) == len(found)  # none twice, no other


@pytest.mark.parametrize("store", STORES)
def test_a_program_that_forks_after_use_stores_every_job_once(store: str, tmp_path: Path) -> None:
    dsn = STORES[store](tmp_path)
    subprocess.run(
        [sys.executable, "-m", "tests.processes.forking_program", "3"],
        cwd=ROOT,
        env={**os.environ, "TASKHARBOR_DSN": dsn},
        check=True,
        timeout=PATIENCE,
    )
    assert sorted(stored(dsn).values()) == [*range(8 * forking_program.EACH)]
