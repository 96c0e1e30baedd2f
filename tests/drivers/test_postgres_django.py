"""Django's connections in the threads of a worker: one that the server ended is replaced before the next job.

Django keeps a connection for each thread and replaces a broken one when a request begins. A worker has no requests, so
`close_old_connections` has to run in the handler's thread, around each job: that is what call middleware is for.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import django
import psycopg
import pytest
from django.conf import settings
from django.db import close_old_connections, connections

from taskharbor import Harbor, JobContext
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")


@pytest.fixture(params=["closed after each job", "kept and checked", "kept"])
def kept(request: pytest.FixtureRequest) -> Iterator[str]:
    """Django's database `worker`, with the settings that say how long a connection is kept."""
    if not settings.configured:
        settings.configure(DATABASES={"default": {}}, USE_TZ=True)
        django.setup()
    mine = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": database(),
        "USER": "harbor",
        "HOST": "127.0.0.1",
        "PORT": str(postgres.shared().port),
        "CONN_MAX_AGE": 0 if request.param == "closed after each job" else None,
        "CONN_HEALTH_CHECKS": request.param == "kept and checked",
    }
    connections.databases["worker"] = connections.configure_settings({"default": {}, "worker": mine})["worker"]
    yield request.param
    del connections.databases["worker"]


@functools.cache
def database() -> str:
    return postgres.shared().database()


@contextmanager
def fresh_connections(ctx: JobContext) -> Iterator[None]:
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def jobs_after_a_lost_connection(harbor: Harbor) -> tuple[list[str], list[int]]:
    """Three jobs; the server ends the connection of Django behind the first. How two ended, and on which connection."""
    seen: list[int] = []

    @harbor.task(max_attempts=1)
    def look() -> None:
        with connections["worker"].cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            seen.append(cursor.fetchone()[0])

    @harbor.task
    def the_server_ends_it() -> None:
        with psycopg.connect(postgres.shared().address(), autocommit=True) as server:
            server.execute("select pg_terminate_backend(%s)", (seen[-1],))

    @harbor.task
    def close() -> None:  # the thread ends with the worker, and no other thread can reach its connection
        connections["worker"].close()

    first, ended, *later, last = [task.enqueue() for task in (look, the_server_ends_it, look, look, close)]
    harbor.worker(concurrency=1).run(until_empty=True)
    assert [first.status(), ended.status(), last.status()] == ["done"] * 3
    states = [str(job.status()) for job in later]
    harbor.close()
    return states, seen


def test_a_connection_that_the_server_ended_is_replaced(kept: str) -> None:
    states, seen = jobs_after_a_lost_connection(Harbor("memory://", call_middleware=[fresh_connections]))
    # Unchecked, Django learns of it by the error of one job; that job is retried like any other.
    assert states == ["dlq" if kept == "kept" else "done", "done"]
    assert seen[0] != seen[-1]
    if kept == "kept and checked":
        assert seen[1] == seen[2], "one that works is kept"


def test_without_the_check_every_later_job_of_the_thread_fails(kept: str) -> None:
    states, _ = jobs_after_a_lost_connection(Harbor("memory://"))
    assert states == ["dlq", "dlq"]
