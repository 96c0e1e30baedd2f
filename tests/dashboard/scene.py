"""A believable store for pictures and tests: a shop with mail, billing, imports, and a few things that went wrong.

Everything is written through the driver with moments before `now`, so the same scene is made in any store in a second,
and shows the same on every run.
"""

import json
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from taskharbor import Harbor, JobRequest
from taskharbor.drivers import Driver, JobRecord
from taskharbor.model.audit import AuditEntry
from taskharbor.model.ids import new_id
from taskharbor.model.job import Figures, WorkerInfo
from taskharbor.model.outcome import Ack, Fail, Outcome, Retry
from taskharbor.model.progress import Progress, write_note
from taskharbor.model.times import to_ms
from taskharbor.policy.trail import with_trail

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LEASE = timedelta(minutes=5)

ERRORS = (
    ("billing.charge", "billing", "CardDeclined", "card_declined: the bank said no for customer 'ada'", 14, 2 * MINUTE),
    ("mail.receipt", "mail", "SMTPServerDisconnected", "Connection unexpectedly closed", 37, 11 * MINUTE),
    ("imports.load", "imports", "KeyError", "'cents'", 4, 26 * MINUTE),
    ("reports.nightly", "reports", "TimeoutError", "timed out after 30s", 2, 9 * HOUR),
)
WORKERS = (("web-1", ("billing", "mail"), 8), ("web-2", ("billing", "mail"), 8), ("batch-1", ("imports", "media"), 4))


@dataclass
class Scene:
    """What was made: ids of the jobs and flows that pages show."""

    dead: str = ""
    scheduled: str = ""
    ready: str = ""
    running: str = ""
    done: str = ""
    flow: str = ""
    failed_flow: str = ""
    fingerprint: str = "billing.charge-CardDeclined"


def record(type: str, queue: str, at: datetime, number: int = 0, **fields: Any) -> JobRecord:
    """A job enqueued at a moment; the number tells jobs of one moment apart."""
    payload = fields.pop("payload", {"customer": "ada", "cents": 1250 + number})
    fields.setdefault("max_attempts", 3)
    return JobRecord(
        id=fields.pop("id", None) or new_id(to_ms(at + number * timedelta(milliseconds=1))),
        type=type,
        queue=queue,
        payload=json.dumps(payload).encode(),
        created_at=at,
        **fields,
    )


async def play(driver: Driver, now: datetime) -> Scene:
    """Make the scene in an empty store."""
    scene = Scene()
    await _done(driver, now, scene)
    await _dead(driver, now, scene)
    await _flows(driver, now, scene)
    await _waiting(driver, now, scene)
    await _running(driver, now, scene)
    await _workers(driver, now)
    await _figures(driver, now)
    await _audit(driver, now, scene)
    await driver.pause("media")
    return scene


async def plan(harbor: Harbor) -> None:
    """Two schedules, one of them paused."""
    nightly = JobRequest(type="reports.nightly", payload={"region": "eu"}, queue="reports")
    await harbor.schedules.aadd("nightly", nightly, cron="30 2 * * *", tz="Europe/Zurich", by="ada")
    ping = JobRequest(type="search.reindex", queue="search")
    await harbor.schedules.aadd("reindex", ping, every=900, by="ada")
    await harbor.schedules.apause("reindex", by="ada")


async def plan_more(harbor: Harbor) -> None:
    """Some more, for pictures: other rules and zones, and one that was edited."""
    add = harbor.schedules.aadd
    await add("invoices", JobRequest(type="billing.invoice", queue="billing"), cron="0 6 1 * *", by="ada")
    digest = JobRequest(type="mail.digest", queue="mail")
    await add("digest", digest, cron="0 8 * * MON", tz="America/New_York", jitter=600, by="grace")
    await add("sync-rates", JobRequest(type="imports.rates", queue="imports"), every=300, overlap="allow", by="ada")
    await add("cleanup", JobRequest(type="media.cleanup", queue="media"), cron="*/15 9-17 * * MON-FRI", by="ada")
    await harbor.schedules.aedit("cleanup", cron="*/30 9-17 * * MON-FRI", tz="Europe/Zurich", by="grace")


async def _settle(driver: Driver, queue: str, at: datetime, worker: str, outcome: Any, limit: int = 100) -> list[str]:
    reserved = await driver.reserve((queue,), at, LEASE, limit, worker)
    after = at + 2 * SECOND
    outcomes: list[Outcome] = [with_trail(each.job, outcome(each), after, lost_by=each.lost_by) for each in reserved]
    assert await driver.settle(outcomes, after) == [None] * len(outcomes)
    return [each.job.id for each in reserved]


async def _done(driver: Driver, now: datetime, scene: Scene) -> None:
    for minutes, queue, kind in (
        (50, "mail", "mail.receipt"),
        (35, "billing", "billing.charge"),
        (8, "mail", "mail.welcome"),
    ):
        at = now - minutes * MINUTE
        await driver.enqueue([record(kind, queue, at, number) for number in range(40)], at)
        ids = await _settle(driver, queue, at + SECOND, "web-1", lambda each: Ack(each.lease, b'"sent"'))
        scene.done = ids[0]


async def _dead(driver: Driver, now: datetime, scene: Scene) -> None:
    for type, queue, error, text, number, ago in ERRORS:
        at = now - ago - 2 * MINUTE
        await driver.enqueue([record(type, queue, at, each) for each in range(number)], at)

        def fault(each: Any, error: str = error, text: str = text, type: str = type) -> dict[str, Any]:
            return {
                "attempts": each.job.attempts + 1,
                "last_error": f"{error}: {text}",
                "error_class": error,
                "fingerprint": f"{type}-{error}",
            }

        for attempt in (1, 2):
            began = at + attempt * 20 * SECOND
            await _settle(
                driver,
                queue,
                began,
                f"web-{attempt}",
                lambda each, began=began, fault=fault: Retry(
                    each.lease, began + 10 * SECOND, failed_at=began, **fault(each)
                ),
            )
        last = now - ago - MINUTE
        ids = await _settle(
            driver,
            queue,
            last,
            "web-1",
            lambda each, last=last, fault=fault: Fail(
                each.lease, "all 3 attempts failed", failed_at=last, **fault(each)
            ),
        )
        scene.dead = scene.dead or ids[-1]


async def _flows(driver: Driver, now: datetime, scene: Scene) -> None:
    at = now - 6 * MINUTE
    scene.flow, scene.failed_flow = new_id(to_ms(at)), new_id(to_ms(at - HOUR))
    for flow, start, fails in ((scene.failed_flow, at - HOUR, True), (scene.flow, at, False)):
        split = record("imports.split", "imports", start, flow_id=flow)
        rates = record("imports.rates", "imports", start, 1, flow_id=flow, depends_on=(split.id,))
        loads = [
            record("imports.load", "imports", start, 10 + n, flow_id=flow, depends_on=(split.id,)) for n in range(8)
        ]
        ids = (rates.id, *(load.id for load in loads))
        total = record("imports.total", "imports", start, 30, flow_id=flow, depends_on=ids)
        report = record("mail.report", "mail", start, 31, flow_id=flow, depends_on=(total.id,))
        await driver.enqueue([split, rates, *loads, total, report], start)
        await _settle(driver, "imports", start + SECOND, "batch-1", lambda each: Ack(each.lease, b"8"), 1)
        await _settle(
            driver, "imports", start + 4 * SECOND, "batch-1", lambda each: Ack(each.lease, b"125"), 8 if fails else 5
        )
        if fails:
            fault = {"attempts": 3, "last_error": "KeyError: 'cents'", "error_class": "KeyError"}
            await _settle(
                driver,
                "imports",
                start + 9 * SECOND,
                "batch-1",
                lambda each, start=start, fault=fault: Fail(
                    each.lease, "all 3 attempts failed", failed_at=start, fingerprint="imports.load-KeyError", **fault
                ),
                1,
            )


async def _waiting(driver: Driver, now: datetime, scene: Scene) -> None:
    jobs = [
        record("billing.charge", "billing", now - (20 - n) * SECOND, n, group=f"customer-{n % 3}") for n in range(9)
    ]
    jobs += [record("mail.receipt", "mail", now - (30 - n) * SECOND, n) for n in range(14)]
    jobs += [record("media.thumbnail", "media", now - 4 * MINUTE, n) for n in range(23)]
    jobs += [record("search.reindex", "search", now - 7 * MINUTE, n) for n in range(6)]
    later = [record("mail.newsletter", "mail", now - 90 * SECOND, n, run_at=now + (n + 1) * HOUR) for n in range(3)]
    await driver.enqueue(jobs, now - 5 * SECOND)
    await driver.enqueue(later, now - 5 * SECOND)
    scene.ready, scene.scheduled = jobs[-1].id, later[0].id


async def _running(driver: Driver, now: datetime, scene: Scene) -> None:
    at = now - 12 * SECOND
    for worker, queues, _ in WORKERS:
        await driver.reserve(queues, now - 2 * SECOND, LEASE, 3, worker)
    video = record("media.transcode", "video", at - SECOND, payload={"file": "talk.mp4"})
    await driver.enqueue([video], at - SECOND)
    (reserved,) = await driver.reserve(("video",), at, LEASE, 1, "batch-1")
    note = write_note(Progress(done=312, total=480, note="seconds of video", at=now - 3 * SECOND))
    able: Any = driver
    await able.extend([reserved.lease], now - 3 * SECOND, LEASE, {reserved.lease.token: note})
    scene.running = video.id


async def _workers(driver: Driver, now: datetime) -> None:
    for number, (name, queues, slots) in enumerate(WORKERS):
        info = WorkerInfo(
            worker=name,
            queues=(*queues, "video") if name == "batch-1" else queues,
            running=4 if name == "batch-1" else 3,
            started_at=now - (3 + number) * HOUR,
            concurrency=slots,
            host=f"host-{number + 1}",
            pid=4100 + number,
            seen_at=now - 4 * SECOND,
        )
        await driver.beat(info, now - 4 * SECOND)


async def _figures(driver: Driver, now: datetime) -> None:
    rows = []
    minute = now.replace(second=0, microsecond=0)
    for ago in range(24 * 60):
        wave = 1 + math.sin(ago / 9) * 0.35 + math.sin(ago / 47) * 0.3
        done = max(int(42 * wave), 0)
        failed = 6 if 10 <= ago <= 24 else int(ago % 7 == 0)
        for queue, share in (("mail", 0.7), ("billing", 0.3)):
            counts = {
                "done": int(done * share),
                "failed": failed if queue == "mail" else failed // 2,
                "dead": failed // 3,
            }
            number = counts["done"]
            counts |= {"ran_04": number * 6 // 10, "ran_05": number * 3 // 10, "ran_06": number // 10}
            counts |= {"waited_02": number * 8 // 10, "waited_04": number // 5}
            rows.append(Figures(minute - ago * MINUTE, queue, counts))
    able: Any = driver
    for start in range(0, len(rows), 400):
        await able.add_figures(rows[start : start + 400], now)


async def _audit(driver: Driver, now: datetime, scene: Scene) -> None:
    acts: list[tuple[int, str, str, dict[str, Any]]] = [
        (40, "grace", "requeue", {"ids": (scene.done,), "n": 1}),
        (12, "ada", "pause", {"target": "media"}),
        (5, "ada", "reveal", {"ids": (scene.dead,), "n": 1}),
    ]
    entries = []
    for minutes, by, action, what in acts:
        at = now - minutes * MINUTE
        entries.append(AuditEntry(id=new_id(to_ms(at)), at=at, by=by, action=action, done=1, refused=0, **what))
    able: Any = driver
    await able.put_audit([entry.stored() for entry in entries], now)
