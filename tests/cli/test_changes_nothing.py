"""Commands that only look make no store: no file, no schema, no table. Those that may make one say that they did."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from taskharbor.drivers import JobRecord
from tests import lanes
from tests.cli.shell import leaves, store, taskharbor, within
from tests.servers.postgres import shared

LOOKING = {
    "list": "", "inspect": "j1", "explain": "j1", "job retry": "j1", "job cancel": "j1 --yes", "dlq list": "",
    "dlq requeue": "--all --yes", "queue list": "", "flow show": "f1", "stats": "", "doctor": "", "job show": "j1",
    "job attempts": "j1", "job amend": "j1 --priority 1 --yes", "job delete": "j1 --yes", "flow list": "",
    "flow cancel": "f1 --yes", "flow requeue": "f1", "dlq summary": "", "dlq show": "j1", "dlq edit": "j1 --json {}",
    "dlq delete": "--queue mail --yes", "dlq export": "", "dlq operations list": "", "dlq operations show": "01JQ",
    "dlq operations stop": "01JQ", "dlq operations resume": "01JQ", "audit": "",
    "schedule list": "", "schedule show": "s1", "schedule preview": "s1", "schedule edit": "s1 --every 5m",
    "schedule reset": "s1", "schedule pause": "s1", "schedule resume": "s1", "schedule run": "s1",
    "schedule delete": "s1 --yes",
}  # fmt: skip
MAY_CREATE = {"enqueue", "queue pause", "queue resume", "schedule add", "migrate", "bench", "conformance", "worker run"}
WITHOUT_A_STORE = {"worker health", "demo", "completion", "task list", "from celery", "from rq", "outbox sql"}
SERVING = {"dashboard"}  # tests/dashboard
# On other stores than a file that is not there: one command of each kind. All stores are opened in one place.
EACH_TIME = lanes.Chosen("list", "doctor", "dlq requeue", "schedule run")


def test_every_command_is_asked():
    assert {*LOOKING, *MAY_CREATE, *WITHOUT_A_STORE, *SERVING} == set(leaves())


def refused(command: str, dsn: str) -> str:
    """What a command says of a store that is not there; its one line, or the line of doctor's about the store."""
    answer = taskharbor(*command.split(), *LOOKING[command].split(), "--dsn", dsn)
    if command != "doctor":
        assert answer.code == 3
        return answer.line
    assert answer.code == 1
    (line,) = (line for line in answer.out.splitlines() if line.startswith("problem"))
    return line


@pytest.mark.parametrize("command", LOOKING)
def test_no_file_is_made(tmp_path: Path, command: str):
    said = refused(command, f"sqlite:///{tmp_path}/typo.db")
    assert (
        f"there is no store at {tmp_path}/typo.db; `taskharbor enqueue` or `taskharbor worker run` creates one" in said
    )
    assert list(tmp_path.iterdir()) == []
    said = refused(command, f"sqlite:///{tmp_path}/nodir/typo.db")
    assert f"there is no store at {tmp_path}/nodir/typo.db; its folder does not exist either" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.left_to("full", except_for=EACH_TIME)
@pytest.mark.parametrize("command", LOOKING)
def test_no_tables_are_created_in_a_file_of_another_program(tmp_path: Path, command: str):
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (id)")
    before = path.read_bytes()
    assert "taskharbor migrate" in refused(command, f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["shop.db"]


@pytest.fixture(scope="module")
def fresh() -> str:
    """The address of a database without our schema."""
    server = shared()
    return server.address(server.database())


def schemas(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select nspname from pg_namespace where nspname not like 'pg_t%' order by 1")
        return [row[0] for row in rows]


@pytest.mark.left_to("full", except_for=EACH_TIME)
@pytest.mark.parametrize("command", LOOKING)
def test_no_schema_is_made(fresh: str, command: str):
    before = schemas(fresh)
    said = refused(command, fresh)
    assert "taskharbor migrate" in said
    if command == "doctor":
        assert said.endswith("no schema yet; run: taskharbor migrate")
    assert schemas(fresh) == before


def test_a_user_without_create_rights_learns_what_to_do():
    server = shared()
    database = server.database()
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute("drop role if exists harmless")
        connection.execute("create role harmless login")
        connection.execute(f"revoke create on database {database} from public".encode())
    dsn = server.address(database).replace("harbor@", "harmless@")
    for command in ("enqueue --job x", "queue pause mail", "list"):
        answer = taskharbor(*command.split(), "--dsn", dsn)
        assert answer.code == 3
        assert "taskharbor migrate" in answer.line
    assert "taskharbor" not in schemas(dsn)


def test_a_store_that_had_to_be_created_is_reported(tmp_path: Path):
    server = shared()
    files = [(f"sqlite:///{tmp_path}/{name}.db", f"sqlite:///{tmp_path}/{name}.db") for name in ("a", "b")]
    database = server.address(server.database())
    places = [*files, (database, database.replace("harbor@", "…@"))]
    for (dsn, place), command in zip(places, ("enqueue --job x", "queue pause q", "enqueue --job x"), strict=True):
        assert taskharbor(*command.split(), "--dsn", dsn).err.splitlines()[0] == f"created a new store: {place}"
        assert "made" not in taskharbor(*command.split(), "--dsn", dsn).err
        assert taskharbor("list", "--dsn", dsn).code == 0


def test_a_store_of_ones_own_is_as_usual(dsn: str):
    for command, arguments in LOOKING.items():
        store(dsn, JobRecord(id="j1", type="x"))
        answer = taskharbor(*command.split(), *arguments.split(), "--dsn", dsn)
        within(dsn, lambda driver, now: driver.delete(["j1"]))
        refused = {"flow show", "flow cancel", "flow requeue", "job retry", "dlq show", "dlq edit"}
        refused |= {f"dlq operations {verb}" for verb in ("show", "stop", "resume")}
        refused |= {each for each in LOOKING if each.startswith("schedule ") and each != "schedule list"}
        assert answer.code == (1 if command in refused else 0), (command, answer.err)
