"""Worker processes on a PostgreSQL that gives them too few connections: they wait, and no healthy job is lost."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.servers import postgres
from tests.supervisor.worker_run import Yard, eventually, yard

pytestmark = pytest.mark.lane("postgres")
LEASE_S = 3


class Role:
    """A role that may have a limited number of connections, and the connections of others that it shares them with."""

    def __init__(self, name: str, dsn: str) -> None:
        self.name = name
        self._dsn = dsn
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"create role {name} login")
            connection.execute(f"grant pg_read_all_data, pg_write_all_data to {name}")
            connection.execute(f"grant all on schema taskharbor to {name}")
            connection.execute(f"grant all on all tables in schema taskharbor to {name}")
            connection.execute(f"grant all on all sequences in schema taskharbor to {name}")

    @property
    def dsn(self) -> str:
        return self._dsn.replace("harbor@", f"{self.name}@")

    def limit(self, connections: int) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(f"alter role {self.name} connection limit {connections}")

    def connections(self) -> int:
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute("select count(*) from pg_stat_activity where usename = %s", [self.name]).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def role() -> Role:
    server = postgres.shared()
    store = server.store()
    return Role(f"few_{store}", server.address(store))


@pytest.fixture
def there(role: Role, tmp_path: Path) -> Iterator[Yard]:
    with yard(role._dsn, tmp_path) as made:
        yield made


def run(there: Yard, role: Role, *options: str) -> None:
    there.start("--lease", f"{LEASE_S}s", "--concurrency", "3", *options, dsn=role.dsn)


def states(there: Yard) -> Counter[str]:
    return Counter(info.state.value for info in there.jobs())


def test_jobs_run_once_whichever_process_lacks_connections(there: Yard, role: Role) -> None:
    """There are two connections for two processes and their supervisor, then six: still fewer than they want. Which of
    them goes without is chance. The jobs outlive several leases."""
    role.limit(2)
    jobs = there.enqueue("gate", 8, name="open")
    run(there, role, "--processes", "2")
    eventually(lambda: "too many connections for role" in there.log, "the shortage was felt")
    role.limit(6)
    first = eventually(lambda: there.starts(), "a job was started")[0].job
    ends = {there.lease_end(first)}
    while len(ends) < 5:
        ends.add(there.lease_end(first))
    there.open("open")
    eventually(lambda: states(there)["done"] == len(jobs), "all jobs are done")
    assert Counter(line.job for line in there.starts()) == dict.fromkeys(jobs, 1)
    assert all(info.job.deliveries == 1 for info in there.jobs())


def test_what_worker_processes_hold(there: Yard, role: Role) -> None:
    """As docs/driver-postgres.md says: three connections of each process at most, two where it is idle, and the
    supervisor's."""
    role.limit(100)
    jobs = there.enqueue("gate", 6, name="open")
    run(there, role, "--processes", "2")
    there.started(*jobs)
    running = role.connections()
    there.open("open")
    eventually(lambda: states(there)["done"] == len(jobs), "all jobs are done")
    assert 3 <= running <= 2 * 3 + 1
    assert role.connections() <= 2 * 3 + 1
    eventually(lambda: role.connections() <= 2 * 2 + 1, "what they no longer need is closed")
