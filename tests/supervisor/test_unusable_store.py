"""A store that can never be used ends the start with one line and exit code 3; one that is away is waited for.

A password that PostgreSQL refuses is in tests/cli/test_secrets.py, where a server asks for one.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from taskharbor.drivers.postgres.tries import _is_lasting
from tests import lanes
from tests.servers import postgres, redis
from tests.supervisor.test_usage_errors import run


def a_text(folder: Path) -> str:
    (folder / "jobs.db").write_text("not a database " * 100)
    return f"sqlite:///{folder}/jobs.db"


def a_folder(folder: Path) -> str:
    return f"sqlite:///{folder}"


def no_folder(folder: Path) -> str:
    return f"sqlite:///{folder}/missing/jobs.db"


def other_tables(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "jobs.db")) as other:
        other.execute("CREATE TABLE taskharbor_meta (something TEXT)")
    return f"sqlite:///{folder}/jobs.db"


def no_database(folder: Path) -> str:
    return postgres.shared().address("nowhere")


def no_role(folder: Path) -> str:
    return f"postgresql://canary:canary@127.0.0.1:{postgres.shared().port}/postgres"


def a_wrong_password(folder: Path) -> str:
    return redis.shared().url.replace("redis://", "redis://:canary@")


def no_such_number(folder: Path) -> str:
    return f"redis://127.0.0.1:{redis.shared().port}/9999"


def no_cluster(folder: Path) -> str:
    return f"redis+cluster://127.0.0.1:{redis.shared().port}"


Address = Callable[[Path], str]
HOPELESS: dict[Address, str] = {
    a_text: "it is not an SQLite database",
    a_folder: os.strerror(21),
    no_folder: "does not exist; create it first",
    other_tables: "its tables are not those that TaskHarbor made",
    no_database: 'database "nowhere" does not exist',
    no_role: 'role "…" does not exist',
    a_wrong_password: "Redis refused the login",
    no_such_number: "no database of the number",
    no_cluster: "not part of a Cluster",
}


@pytest.mark.left_to("full", except_for=lanes.Chosen("other_tables", "no_database"))
@pytest.mark.parametrize("address", HOPELESS, ids=lambda make: make.__name__)
def test_a_store_that_can_never_open_ends_the_start_with_its_reason(address: Address, tmp_path: Path) -> None:
    code, said = run("--dsn", address(tmp_path), cwd=tmp_path)
    lines = said.splitlines()
    assert code == 3, said
    assert lines[-1].startswith("taskharbor: ")
    assert HOPELESS[address] in lines[-1]
    assert all(HOPELESS[address] in line for line in lines)  # the driver may log it as well
    assert "canary" not in said
    assert "StoreLost" not in said


@pytest.mark.parametrize(
    ("lasting", "text"),
    [
        (True, 'connection failed: … FATAL:  password authentication failed for user "ada"'),
        (True, "connection failed: … fe_sendauth: no password supplied"),
        (True, 'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "ada", database "jobs", no encryption'),
        (True, "FATAL:  no such database: jobs"),
        (True, 'x\nAll failures were:\n- host: a: database "b" does not exist\n- host: c: database "b" does not exist'),
        (False, 'x\nAll failures were:\n- host: a: database "b" does not exist\n- host: c: Connection refused'),
        (False, "FATAL:  the database system is starting up"),
        (False, "FATAL:  sorry, too many clients already"),
        (False, "Connection refused"),
        (False, "failed to resolve host 'db': [Errno -2] Name or service not known"),
    ],
)
def test_the_error_of_postgres_decides_whether_to_wait(lasting: bool, text: str) -> None:
    assert _is_lasting(text) is lasting
