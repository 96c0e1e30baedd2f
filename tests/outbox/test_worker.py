"""A worker that relays: `harbor.worker(outbox=…)`, `taskharbor worker run --outbox`."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.cli.commands.worker import run
from taskharbor.worker.supervisor.messages import Setup, line, read_setup


def test_a_worker_runs_what_comes_through_an_outbox(tmp_path: Path) -> None:
    harbor, seen = Harbor("memory://"), list[int]()

    @harbor.task
    async def note(n: int) -> None:
        seen.append(n)

    with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as mine, harbor:
        harbor.outbox.create(mine)
        for n in range(3):
            note.options(connection=mine).enqueue(n)
        mine.commit()
        worker = harbor.worker(concurrency=1, outbox=f"sqlite:///{tmp_path}/app.db")
        for _ in range(2):  # again, like any worker
            worker.run(until_empty=True)
        assert seen == [0, 1, 2]
        assert not mine.execute("select 1 from taskharbor_outbox").fetchall()


@pytest.mark.parametrize("given", ["redis://ada:secret@host/0", "nothing", 7])
def test_an_address_that_is_not_one_of_a_sql_database_is_refused_at_once(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="expected") as refused:
        Harbor("memory://").worker(outbox=given)
    assert "secret" not in str(refused.value)


def test_the_address_reaches_the_worker_processes_and_is_not_shown() -> None:
    setup = Setup(outbox="postgresql://ada:secret@host/shop")
    assert read_setup(line(setup)).outbox == setup.outbox
    assert "secret" not in repr(setup)
    assert "--outbox" in {name for option in run.params for name in option.opts}
