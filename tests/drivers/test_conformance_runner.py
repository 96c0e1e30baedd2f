"""The runner and its manners: an empty store or a namespace, nothing left behind, nothing of others touched."""

import asyncio
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.conformance import DriverCases, DriverMachine, StoreNotEmpty, Verdict, all_cases, run
from taskharbor.conformance.case import THEMES
from taskharbor.conformance.machine import check_machine
from taskharbor.drivers import JobRecord, Reserved, ScheduleChange, SchedulePage, StoredSchedule, replace
from taskharbor.drivers.memory import MemoryDriver
from tests import lanes
from tests.drivers.memory_damage import damage, damage_field
from tests.drivers.small_driver import SmallDriver

pytestmark = pytest.mark.lane("conformance-memory")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def store_in_use() -> MemoryDriver:
    """A store with an application's ready, done, dead and cancelled jobs, and with a schedule."""
    driver = MemoryDriver("memory://")

    async def fill() -> None:
        await driver.enqueue(
            [JobRecord(id=f"mine{number}", type="t", idempotency_key=f"k{number}") for number in range(4)], NOW
        )
        done, dead = await driver.reserve(["default"], NOW, timedelta(seconds=9), 2)
        await driver.ack(done.lease, NOW)
        await driver.fail(dead.lease, NOW, "dead", attempts=1)
        await driver.cancel(["mine2"], NOW)
        row = StoredSchedule(name="mine", queue="default", revision="1", next_at=NOW, body=b"mine")
        await driver.change_schedules([ScheduleChange(name="mine", expect=None, to=row)], NOW)

    asyncio.run(fill())
    return driver


def everything(driver: MemoryDriver) -> object:
    calls = driver.list(now=NOW, limit=10_000), driver.queues(), driver.schedules(limit=1_000)
    return [asyncio.run(call) for call in calls]


def test_a_store_in_use_is_refused():
    driver = store_in_use()
    before = everything(driver)
    with pytest.raises(StoreNotEmpty, match="'default'"):
        run(lambda: driver)
    assert everything(driver) == before


def test_with_a_namespace_nothing_of_others_is_touched_and_nothing_is_left():
    driver = store_in_use()
    before = everything(driver)
    report = run(lambda: driver, damage=damage, damage_field=damage_field, namespace="suite ")
    assert report.ok, str(report)
    assert not report.skipped
    assert everything(driver) == before


def test_an_empty_store_is_empty_afterwards():
    driver = MemoryDriver("memory://")
    assert run(lambda: driver, damage=damage, themes=lanes.few(THEMES, ("enqueue", "flows", "schedules"))).ok
    assert asyncio.run(driver.queues()) == []
    assert asyncio.run(driver.schedules()) == SchedulePage(())


def test_the_report_names_the_case_and_the_sentence():
    class Broken(MemoryDriver):
        async def pause(self, queue):
            pass

    report = run(lambda: Broken("memory://"), themes=["pause"])
    assert not report.ok
    failed = report.failed[0]
    assert failed.case.title == "pause.pause_and_resume"
    assert "pause.py:" in failed.text
    assert "the contract says: A paused queue returns nothing." in str(report)


def test_cases_that_need_a_hook_are_skipped_without_it():
    report = run("memory://", themes=["damaged"])
    assert {result.verdict for result in report.results} == {Verdict.SKIPPED}
    assert "no damage hook" in str(report)


def test_what_is_not_offered_is_neither_run_nor_passed():
    report = run(SmallDriver, themes=["amend", "pause"])
    assert report.ok
    assert {result.case.theme for result in report.not_offered} == {"amend"}
    assert {result.verdict for result in report.results if result.case.theme == "pause"} == {Verdict.OK}
    lines = str(report).splitlines()
    number = len(report.not_offered)
    assert any(re.fullmatch(rf"  amend +0 of +{number}  not offered", line) for line in lines)
    assert f"not offered {number}: amend" in lines
    assert lines[-1].endswith(f"0 failed, 0 skipped, {number} not offered")


def test_the_machine_leaves_out_what_is_not_offered():
    class Refusing(SmallDriver):
        """Keeps none of the fields of executions, and fails where an optional verb is used."""

        async def reserve(self, *given, **named):
            found = []
            for taken in await super().reserve(*given, **named):
                entry = self.store.entries[taken.job.id]
                entry.record = replace(entry.record, began_at=None, ran_on="")
                found.append(Reserved(entry.record, taken.lease))
            return found

        amend = upcoming = flows = property(lambda self: 1 / 0)

        @classmethod
        def lacks(cls):
            return SmallDriver.lacks()

    check_machine(Refusing, runs=5, steps=30, share_store=False)


def test_the_test_class_has_the_cases_of_what_the_driver_offers():
    amends = {
        f"test_{case.theme}_{case.name}"
        for case in all_cases()
        if "amend" in case.needs and "upcoming" not in case.needs
    }
    upcoming = {f"test_{case.theme}_{case.name}" for case in all_cases() if "upcoming" in case.needs}

    class Some(DriverCases):
        lacks = frozenset({"upcoming", "amend"})

        def make_driver(self):
            return MemoryDriver("memory://")

    class More(Some):
        lacks = frozenset({"upcoming"})

    def tests(suite):
        return {name for name in dir(suite) if name.startswith("test_") and getattr(suite, name) is not None}

    assert tests(More) - tests(Some) == amends
    assert tests(DriverCases) - tests(More) == upcoming
    with pytest.raises(AssertionError, match="give your test class `lacks = MyDriver"):
        Some().test_lacks()


def test_an_unknown_theme_is_reported():
    with pytest.raises(ValueError, match="no theme is called 'colour'"):
        all_cases(["colour"])


@pytest.mark.left_to("full")
def test_the_machine_on_a_shared_store():
    check_machine(lambda: MemoryDriver("memory://"), runs=20, steps=40, share_store=True)


class Miscounting(MemoryDriver):
    """The subject of a walk that soon fails, at one step of many."""

    async def cancel_flow(self, flow_id, now):
        return await super().cancel_flow(flow_id, now) + 1


def test_a_walk_that_is_not_shrunk_says_how_to_find_it_again(monkeypatch):
    class Machine(DriverMachine):
        machine_shares_store = False
        machine_shrinks = False

        def make_driver(self):
            return Miscounting("memory://")

    def failure() -> tuple[str, list[str]]:
        with pytest.raises(AssertionError, match="cancel_flow cancelled") as found:
            Machine().test_machine()
        *steps, how = found.value.__notes__
        return how, steps

    how, steps = failure()
    # Two kinds of steps cancel a flow.
    assert any(
        line.startswith(("state.step(action=('cancel_flow'", "state.step(action=('begin_flow_anew'")) for line in steps
    )
    seed, shrink = re.findall(r"(TASKHARBOR_MACHINE_\w+)=(\d+)", how)
    assert shrink == ("TASKHARBOR_MACHINE_SHRINK", "1")
    monkeypatch.setenv(*seed)
    assert failure() == (how, steps)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def test_from_the_shell():
    themes = [word for theme in lanes.few(THEMES, ("pause", "reserve")) for word in ("--theme", theme)]
    done = python("-m", "taskharbor.conformance", "memory://", *themes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout


def test_asserts_that_are_switched_off_are_no_proof():
    done = python("-O", "-m", "taskharbor.conformance", "memory://")
    assert done.returncode != 0
    assert "without -O" in done.stderr


def test_a_missing_extra_is_one_line_where_it_is_needed():
    hidden = "import sys; sys.modules['pytest'] = sys.modules['hypothesis'] = None; "
    fine = python("-c", hidden + "import taskharbor.conformance as c; assert c.run('memory://', themes=['pause']).ok")
    assert fine.returncode == 0, fine.stderr
    missing = python("-c", hidden + "from taskharbor.conformance import DriverConformance")
    assert "pip install 'taskharbor[conformance]'" in missing.stderr.splitlines()[-1]
