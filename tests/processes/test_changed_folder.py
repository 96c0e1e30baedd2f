"""Applications that change the folder or the environment: supervisor and workers use one store all the same."""

import json
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.servers import postgres
from tests.supervisor.worker_run import ROOT, Yard, eventually, yard

MOVED = "tests.processes.app_changes_folder:harbor"
SHORT = ("--lease", "2", "--heartbeat", "0.3")


def kept_by_the_supervisor(there: Yard, cwd: Path, dsn: str) -> None:
    """A job outlives its first lease several times, and nobody says that it was lost."""
    there.start(*SHORT, app=MOVED, cwd=cwd, dsn=dsn, before=("env", f"PYTHONPATH={ROOT}"))
    [job] = there.enqueue("gate", name="go")
    there.started(job)
    first = there.lease_end(job)
    eventually(lambda: there.lease_end(job) > first + 3, "the lease was renewed again and again")
    there.open("go")
    there.done(job)
    assert len(there.starts(job)) == 1
    for trouble in ("LeaseLost", "StoreDiffers", "LeasesNotKept"):
        assert f"event={trouble}" not in there.log


@pytest.mark.left_to("full")
def test_a_relative_path_of_the_application_belongs_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "environment").write_text(json.dumps({"TASKHARBOR_DSN": "sqlite:///jobs.db"}))
    (tmp_path / "inner").mkdir()
    (tmp_path / "outer").mkdir()
    with yard(f"sqlite:///{tmp_path}/inner/jobs.db", tmp_path) as there:
        kept_by_the_supervisor(there, tmp_path / "outer", "")
    assert not list((tmp_path / "outer").iterdir())


def test_a_relative_path_of_the_command_line_belongs_to_that_folder(tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    with yard(f"sqlite:///{tmp_path}/outer/jobs.db", tmp_path) as there:
        kept_by_the_supervisor(there, tmp_path / "outer", "sqlite:///jobs.db")
    assert not list((tmp_path / "inner").iterdir())


@pytest.mark.left_to("full")
def test_the_supervisor_uses_the_database_that_the_application_chose(tmp_path: Path) -> None:
    server = postgres.shared()
    address = server.address(server.database())
    parts = conninfo_to_dict(address)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    chosen = {names[name]: str(value) for name, value in parts.items() if name in names}
    (tmp_path / "environment").write_text(json.dumps({"TASKHARBOR_DSN": "postgresql:///", **chosen}))
    with yard(address, tmp_path) as there:
        kept_by_the_supervisor(there, ROOT, "")
