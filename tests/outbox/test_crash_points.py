"""`crash_points`: planted faults are found, their lines are named, and a sound handler passes."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.testing import crash_points as ended
from tests.outbox import faulty_handlers as handlers


def checked(task: Any, **options: Any) -> Any:
    return ended(task.s("ada"), harbor=handlers.harbor, observe=handlers.observe, begin=handlers.begin, **options)


@pytest.mark.parametrize(
    ("task", "difference"),
    [
        (handlers.charges_twice, "charged: 'ada' 2 times instead of once"),
        (handlers.books_what_it_forgets, "ledger: ('ada', 500) never instead of once"),
        (handlers.receipts_twice, """send_receipt b'{"text":"receipt of ada"}'' 2 times instead of once"""),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_a_planted_fault_is_found_and_its_line_named(task: Any, difference: str) -> None:
    report = checked(task)
    assert not report
    line = handlers.fault_line(task.function)
    assert any(fault.point.line == line for fault in report.faults), str(report)
    assert all(fault.point.line >= line for fault in report.faults if fault.point.function == task.function.__name__)
    assert re.search(rf"faulty_handlers\.py: it ended .*line {line}", str(report))
    assert difference in str(report).replace("\\", ""), str(report)


def test_a_sound_handler_passes_and_the_report_says_how_much_was_tried() -> None:
    report = checked(handlers.does_it_right)
    assert report, str(report)
    assert report.tried > 10
    assert str(report) == f"{report.task}: ended at {report.tried} points, and the outcome was the same each time"


def test_it_is_deterministic_and_bounded() -> None:
    whole, few = checked(handlers.charges_twice), checked(handlers.charges_twice, limit=3)
    assert checked(handlers.charges_twice) == whole
    assert (few.tried, few.tried + few.left_out) == (3, whole.tried + whole.left_out)


def test_a_process_that_is_ended_runs_no_finally(tmp_path: Path) -> None:
    harbor, path = Harbor("memory://"), tmp_path / "journal"

    @harbor.task
    def tidies_up(name: str) -> None:
        try:
            with path.open("a") as file:
                file.write(f"{name}\n")
        finally:
            path.with_suffix(".lock").unlink(missing_ok=True)

    def begin() -> None:
        path.write_text("")
        path.with_suffix(".lock").write_text("")

    report = ended(
        tidies_up.s("ada"),
        harbor=harbor,
        begin=begin,
        observe=lambda: {"journal": path.read_text().splitlines()},
        process=True,
    )
    assert "journal: 'ada' 2 times instead of once" in str(report)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gave different outcomes.*charged: .*; does begin put everything back\?"):
        ended(
            handlers.charges_twice.s("ada"),
            harbor=handlers.harbor,
            observe=handlers.observe,
        )
    with pytest.raises(ValueError, match="expected 1 or more"):
        checked(handlers.charges_twice, limit=0)
    with pytest.raises(ValueError, match="expected a task of this harbor"), closing(sqlite3.connect(":memory:")):
        ended(handlers.charges_twice.s("ada"), harbor=Harbor("memory://"), observe=dict)


@pytest.mark.crash_points(limit=5)
def test_the_fixture_takes_the_options_of_the_marker_and_fails_its_test(crash_points: Any) -> None:
    given = {"harbor": handlers.harbor, "observe": handlers.observe, "begin": handlers.begin}
    assert crash_points(handlers.does_it_right.s("ada"), **given).tried == 5
    with pytest.raises(pytest.fail.Exception, match="charged: 'ada' 2 times instead of once"):
        crash_points(handlers.charges_twice.s("ada"), **given)
