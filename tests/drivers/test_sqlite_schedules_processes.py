"""Schedules under many processes: a race for the same slots, processes that are killed, and one that waits."""

import asyncio
import signal
import sqlite3
from collections import Counter

import pytest

from taskharbor.drivers import ScheduleChange, StoredSchedule
from taskharbor.model.times import from_ms, to_ms
from tests import lanes
from tests.drivers.crash import line
from tests.drivers.sqlite_child import LEASE, now
from tests.drivers.test_sqlite_processes import PATIENCE, children, opened

pytestmark = pytest.mark.lane("sqlite")
SCHEDULES = 5
PROCESSES = lanes.figure(test=4, full=16)
SLOTS = lanes.figure(test=40, full=300)  # of each schedule


def names(number):
    return [f"s{n}" for n in range(number)]


def add(path, number=SCHEDULES):
    """Schedules whose first slot is at second 1."""
    rows = [StoredSchedule(name=name, queue="default", revision=name, next_at=from_ms(1000)) for name in names(number)]
    changes = [ScheduleChange(name=row.name, expect=None, to=row) for row in rows]
    assert opened(path, lambda driver: driver.change_schedules(changes, now())) == [True] * number


def stored(path):
    """How many jobs each slot has."""
    connection = sqlite3.connect(path)
    found = Counter(payload.decode() for (payload,) in connection.execute("SELECT payload FROM taskharbor_jobs"))
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    return found


def go(child, last=0):
    child.stdin.write(f"{last}\n")
    child.stdin.flush()


def rest(child):
    """The whole lines that a child still says until it ends."""
    text = child.communicate(timeout=PATIENCE)[0]
    return [each.strip() for each in text.splitlines(keepends=True) if each.endswith("\n")]


def test_processes_that_race_for_slots_store_one_job_for_each(tmp_path):
    path = tmp_path / "jobs.db"
    add(path)
    with children(*[("fire_slots", path)] * PROCESSES) as racing:
        assert [line(child) for child in racing] == ["ready"] * PROCESSES
        for child in racing:
            go(child, SLOTS)
        said = [slot for child in racing for slot in rest(child)]
        assert [child.returncode for child in racing] == [0] * PROCESSES
    each = {f"{name} {slot}": 1 for name in names(SCHEDULES) for slot in range(1, SLOTS + 1)}
    assert stored(path) == each
    assert Counter(said) == each


def test_killed_processes_lose_no_slot_and_store_none_twice(tmp_path):
    path, kills = tmp_path / "jobs.db", lanes.figure(test=3, full=20)
    add(path)
    said = list[str]()
    with children(*[("fire_slots", path)] * (kills + 1)) as (survivor, *victims):
        assert [line(child) for child in (survivor, *victims)] == ["ready"] * (kills + 1)
        for victim in victims:
            go(victim, 10**9)  # without an end: it is in the middle of it when it is killed
        for victim in victims:
            said += [line(victim) for _ in range(3)]
            victim.kill()
            said += rest(victim)
        last = max(int(slot.split()[1]) for slot in stored(path)) + 10
        go(survivor, last)
        said += rest(survivor)
        assert survivor.returncode == 0
    found = stored(path)
    assert found == {f"{name} {slot}": 1 for name in names(SCHEDULES) for slot in range(1, last + 1)}
    assert Counter(said) <= found


def test_a_process_that_is_killed_at_any_statement_has_fired_or_not(tmp_path):
    path = tmp_path / "jobs.db"
    add(path, 1)

    async def fired(driver):
        (row,) = (await driver.schedules()).items
        return to_ms(row.next_at) // 1000 - 1

    ends, slots = list[int](), list[int]()
    with children(("die_while_firing", path)) as (child,):
        while not ends or ends[-1] == -signal.SIGKILL:
            ends.append(int(line(child)))
            slots.append(opened(path, fired))
            assert stored(path) == {f"s0 {slot}": 1 for slot in range(1, slots[-1] + 1)}
            go(child)
    assert len(ends) > 6
    assert ends[-1] == 0
    assert slots == [*[0] * (len(ends) - 1), 1]  # none but the last came as far as its commit


@pytest.mark.parametrize("inotify", [True, False])
def test_a_change_wakes_a_call_that_waits_in_another_process(tmp_path, monkeypatch, inotify):
    path = tmp_path / "jobs.db"
    if not inotify:
        monkeypatch.setattr("taskharbor.drivers.sqlite.wait.inotify", lambda: None)
    add(path, 1)

    async def scenario(driver):
        with children(("fire_slots", path)) as (child,):
            assert await asyncio.to_thread(line, child) == "ready"
            assert await driver.reserve(["default"], now(), LEASE, 9, "w") == []
            waiting = asyncio.create_task(driver.wait(["default"], PATIENCE))
            assert (await asyncio.wait([waiting], timeout=0.05))[1] == {waiting}
            go(child, 1)
            assert await waiting is True
            assert len(await driver.reserve(["default"], now(), LEASE, 9, "w")) == 1

    opened(path, scenario)
