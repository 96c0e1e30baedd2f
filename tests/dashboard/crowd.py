"""Jobs by the million for one page to be read beside: stored by SQL where a store has it, else through the driver.

What the scene made is in the store as well. The crowd's ids are larger than those of the scene, so a list that begins
with the newest has to go past it.
"""

import asyncio
import sqlite3
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from taskharbor import Harbor, JobRequest
from taskharbor.drivers import JobRecord
from taskharbor.model.job import Figures
from taskharbor.model.outcome import Ack, Fail, Outcome
from taskharbor.model.schedule import ScheduleChange
from taskharbor.model.times import to_us
from tests.dashboard.scene import MINUTE
from tests.dashboard.site import NOW

BATCH = 1_000
KINDS = 5  # fingerprints of dead jobs
AT = to_us(NOW - MINUTE)  # when they ended

# kind: how each store names the state, and whether such a job has ended
SQLITE_STATES = {"ready": 1, "done": 3, "dead": 4}
POSTGRES_STATES = {"ready": 2, "done": 5, "dead": 6}
SQLITE = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number})
INSERT INTO taskharbor_jobs (
    num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, holds, type,
    payload, attempts, max_attempts, deliveries, lost, group_limit, last_error, reason, created_at, finished_at,
    priority, error_class, fingerprint)
SELECT {base} + i, '{kind}' || printf('%08d', i), '{kind}', {state}, {lined}, 0, {at}, {base} + i, NULL, '', '', '', '',
    0, 't', CAST('{{}}' AS BLOB), 0, 0, 0, 0, 0, '{error}', '{error}', {at} - {number} + i, {finished}, 0,
    {error_class}, {fingerprint}
FROM n
"""
POSTGRES = """
insert into taskharbor.{table} (id, queue, type, payload, priority, attempts, max_attempts, deliveries, lost,
                                created_at, state, wake, due, seq, finished_at, worker, error_class, fingerprint,
                                last_error, reason)
select '{kind}' || lpad(n::text, 8, '0'), '{kind}', 't', '{{}}', 0, 0, 0, 0, 0, {at} - {number} + n, {state}, 0, 0, n,
       {finished}, 'w', {error_class}, {fingerprint}, '{error}', '{error}'
from generate_series(1, {number}) as n
"""


def _parts(kind: str, number: int, states: dict[str, int]) -> dict[str, Any]:
    is_dead, has_ended = kind == "dead", kind != "ready"
    return {
        "kind": kind,
        "number": number,
        "state": states[kind],
        "at": AT,
        "finished": str(AT) if has_ended else "NULL",
        "error": "boom" if is_dead else "",
        "error_class": "'E'" if is_dead else "NULL",
    }


def fill_sqlite(path: str, numbers: dict[str, int]) -> None:
    """Into a file that a driver has opened once."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    (base,) = connection.execute(
        "SELECT max(number, (SELECT coalesce(max(num), 0) FROM taskharbor_jobs)) FROM taskharbor_meta"
    ).fetchone()
    for kind, number in numbers.items():
        parts = _parts(kind, number, SQLITE_STATES) | {"base": base, "lined": int(kind == "ready")}
        parts["fingerprint"] = f"'f' || (i % {KINDS})" if kind == "dead" else "NULL"
        connection.execute(SQLITE.format(**parts))
        connection.execute("INSERT OR IGNORE INTO taskharbor_queues (name) VALUES (?)", (kind,))
        base += number
    connection.execute("UPDATE taskharbor_meta SET number = ?", (base + 1,))
    connection.execute("COMMIT")
    connection.close()


def fill_postgres(address: str, numbers: dict[str, int]) -> None:
    """Into a database with the schema."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        for kind, number in numbers.items():
            parts = _parts(kind, number, POSTGRES_STATES)
            parts |= {"table": "jobs" if kind == "ready" else "history"}
            parts["fingerprint"] = f"'f' || mod(n, {KINDS})" if kind == "dead" else "null"
            connection.execute(POSTGRES.format(**parts).encode())
        connection.execute("vacuum analyze")


async def fill_by_driver(driver: Any, numbers: dict[str, int]) -> None:
    """Through the calls of any driver."""
    lease = timedelta(hours=1)
    for kind, number in numbers.items():
        for start in range(0, number, BATCH):
            jobs = [JobRecord(id=f"{kind}{each:08}", type="t", queue=kind) for each in range(start, start + BATCH)]
            await driver.enqueue(jobs, NOW - MINUTE)
            if kind == "ready":
                continue
            reserved = await driver.reserve((kind,), NOW - MINUTE, lease, BATCH, "w")
            outcomes: list[Outcome] = [
                Ack(each.lease)
                if kind == "done"
                else Fail(each.lease, "boom", 1, NOW - MINUTE, "boom", error_class="E", fingerprint=f"f{place % KINDS}")
                for place, each in enumerate(reserved)
            ]
            await driver.settle(outcomes, NOW - MINUTE)


async def fill(driver: Any, million: int, place: str | None = None) -> None:
    """`million` ready, as many done, and a tenth of it dead, each in a queue of its own. `place`: the file of a SQLite
    store, or the address of a Postgres one."""
    numbers = {"ready": million, "done": million, "dead": million // 10}
    if place is None:
        await fill_by_driver(driver, numbers)
    else:
        await asyncio.to_thread(fill_postgres if place.startswith("postgres") else fill_sqlite, place, numbers)


async def fill_widely(harbor: Harbor, *, queues: int, groups: int, schedules: int) -> None:
    """Many queues with a job each, many groups with one in the queue `grouped`, and as many schedules as given."""
    driver: Any = await harbor._store.awaited.driver(0)
    jobs = [JobRecord(id=f"wide-{each:05}", type="t", queue=f"wide-{each:04}") for each in range(queues)]
    jobs += [JobRecord(id=f"group-{each:05}", type="t", queue="grouped", group=f"g{each}") for each in range(groups)]
    for start in range(0, len(jobs), 500):
        await driver.enqueue(jobs[start : start + 500], NOW)
    minute = NOW.replace(second=0, microsecond=0)
    rows = [Figures(minute - ago * MINUTE, job.queue, {"done": 2}) for ago in range(5) for job in jobs[:queues]]
    for start in range(0, len(rows), 400):
        await driver.add_figures(rows[start : start + 400], NOW)
    await harbor.schedules.aadd("wide", JobRequest(type="t", queue="wide-0001"), every=3600, by="ada")
    (first,) = (await driver.schedules(names=["wide"], limit=1)).items
    for start in range(0, schedules, 100):
        changes = [
            ScheduleChange(name=name, expect=None, to=replace(first, name=name, queue=f"wide-{each % queues:04}"))
            for each in range(start, start + 100)
            for name in [f"wide-{each:05}"]
        ]
        assert all(await driver.change_schedules(changes, NOW))
