"""Flows on SQL stores: in the caller's transaction, and returned by a handler that holds one."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor, JobContext, JobNotFound
from taskharbor.flow import chain, group
from taskharbor.testing import drain
from tests.flow.tasks import Tasks


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "harbor.db"


def test_a_flow_exists_if_and_only_if_the_callers_transaction_commits(file: Path) -> None:
    with Harbor(f"sqlite:///{file}") as harbor:
        tasks = Tasks(harbor)
        chain(tasks.nothing.s()).enqueue()  # makes the file
        connection = sqlite3.connect(file, isolation_level=None)
        flow = chain(tasks.number.s(1), group(tasks.add.s(), tasks.add.s(y=2)))
        connection.execute("begin immediate")
        gone = flow.options(connection=connection).enqueue()
        connection.rollback()
        connection.execute("begin immediate")
        kept = flow.options(connection=connection).enqueue()
        connection.commit()
        connection.close()
        drain(harbor)
        assert kept.result(1) == [2, 3]
        with pytest.raises(JobNotFound, match="its transaction was rolled back"):
            gone.status()


def test_a_workflow_that_is_returned_commits_with_what_its_handler_wrote(file: Path) -> None:
    with Harbor(f"sqlite:///{file}") as harbor:
        tasks = Tasks(harbor)

        @harbor.task(name="writes")
        def writes(ctx: JobContext, n: int) -> Any:
            with ctx.transaction() as connection:
                connection.execute("create table if not exists found (n integer)")
                connection.execute("insert into found values (?)", (n,))
            return group(tasks.number.s(i) for i in range(n))

        handle = chain(writes.s(3), tasks.total.s()).enqueue()
        drain(harbor)
        assert handle.result(1) == 3
    with sqlite3.connect(file) as connection:
        assert connection.execute("select n from found").fetchall() == [(3,)]
    connection.close()
