"""Names that htmx would carry out, in every field that a producer may choose; every page and action that meets them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from taskharbor import Harbor, JobRequest
from taskharbor.model.audit import AuditEntry
from taskharbor.model.ids import new_id
from taskharbor.model.job import WorkerInfo
from taskharbor.model.outcome import Ack, Fail
from taskharbor.model.progress import Progress, write_note
from taskharbor.model.times import to_ms
from taskharbor.policy.trail import with_trail
from tests.dashboard.scene import record

MINUTE = timedelta(minutes=1)
FAR = datetime(2100, 1, 1, tzinfo=UTC)


def act_of(prefix: str = "") -> str:
    """Markup that pauses the queue `payments`, if a page takes it for more than text."""
    return (
        f"<i hx-swap-oob=beforeend:body><b data-owned hx-post={prefix}/queues/payments/pause hx-trigger=load></b></i>"
    )


OTHERS = (  # other ways into a page, for the large run
    "<i hx-swap-oob=innerHTML:#said><b data-owned hx-get=/jobs hx-trigger=load></b></i>",
    "</p></main><b data-owned id=main hx-swap-oob=true>ä \u2028 \U0001f600</b>",
    "&lt;i&gt;<template><b data-owned></b></template><i hx-swap-oob=beforeend:#main><b data-owned></b></i>",
    "\"'><img data-owned src=x onerror=alert(1) hx-swap-oob=outerHTML:#said>",
    "<i hx-swap-oob=beforeend:head><script data-owned>alert(1)</script></i>",
    "<title>owned</title><hr data-owned hx-swap-oob=outerHTML:#said>",
)


async def plant(harbor: Harbor, driver: Any, now: datetime, text: str) -> None:
    """Jobs in every state, a flow, a worker, a schedule and an audit, with this text wherever one may choose a text."""
    chosen: dict[str, Any] = {"group": text, "metadata": {text: text}, "flow_id": f"{text} flow", "max_attempts": 1}
    began = now - MINUTE
    for state in ("done", "dead", "running"):
        job = record(text, text, began, id=f"{text} {state}", idempotency_key=f"{text} {state}", **chosen)
        await driver.enqueue([job], began)
        (held,) = await driver.reserve((text,), began, 10 * MINUTE, 1, text)
        outcome: Any = Ack(held.lease, b'"%s"' % text.encode()) if state == "done" else None
        if state == "dead":
            outcome = Fail(held.lease, text, 1, now, text, error_class=text, fingerprint=text[:30])
        if outcome is None:
            note = write_note(Progress(done=1, total=2, note=text, at=now))
            await driver.extend([held.lease], now, 10 * MINUTE, {held.lease.token: note})
        else:
            assert await driver.settle([with_trail(held.job, outcome, now)], now) == [None]
    waiting = record(text, text, began, id=f"{text} waits", depends_on=(f"{text} running",), **chosen)
    await driver.enqueue([waiting, later(text, 0, now)], now)
    worker = WorkerInfo(worker=text, queues=(text,), running=1, started_at=began, concurrency=1, host=text, seen_at=now)
    await driver.beat(worker, now)
    entry = AuditEntry(
        id=new_id(to_ms(now)), at=now, by=text, action=text, target=text, ids=(text,), filter={text: text}
    )
    await driver.put_audit([entry.stored()], now)
    step = JobRequest(type=text, queue=text, payload={text: text}, group=text)
    await harbor.schedules.aadd(text, step, every=900, by=text)
    await harbor.schedules.aedit(text, jitter=5, by=text)


def later(text: str, number: int, now: datetime) -> Any:
    """A job that is due in 2100."""
    return record(text, text, now, id=f"{text} later {number}", run_at=FAR, metadata={text: text})


def acts_on(text: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Each action on what has this text as its name: an address of it, and its fields."""
    name, until = quote(text, safe=""), FAR.isoformat()

    def job(which: str) -> str:
        return quote(f"{text} {which}", safe="")

    return {
        "/queues/{queue:path}/pause": (f"/queues/{name}/pause", {}),
        "/queues/{queue:path}/resume": (f"/queues/{name}/resume", {}),
        "/jobs/{id:path}/edit": (f"/jobs/{job('later 0')}/edit", {"priority": "7", "deliveries": "0", "edits": "0"}),
        "/jobs/act": ("/jobs/act", {"action": "retry", "id": [f"{text} done", f"{text} later 0"]}),
        "/jobs/{id:path}/reveal": (f"/jobs/{job('done')}/reveal", {}),
        "/jobs/{id:path}/download": (f"/jobs/{job('done')}/download", {"part": "result"}),
        "/operations": ("/operations", {"action": "requeue", "queue": text, "state": "dlq", "until": until}),
        "/operations/{id:path}/stop": (f"/operations/{name}/stop", {}),
        "/operations/{id:path}/resume": (f"/operations/{name}/resume", {}),
        "/schedules/{name:path}/run": (f"/schedules/{name}/run", {}),
        "/schedules/{name:path}/pause": (f"/schedules/{name}/pause", {}),
        "/schedules/{name:path}/resume": (f"/schedules/{name}/resume", {}),
        "/schedules/{name:path}/edit": (f"/schedules/{name}/edit", {"jitter": "5m", "was_jitter": "0s"}),
        "/schedules/{name:path}/reset": (f"/schedules/{name}/reset", {}),
        "/schedules/{name:path}/delete": (f"/schedules/{name}/delete", {}),
        "/flows/{id:path}/requeue": (f"/flows/{job('flow')}/requeue", {}),
        "/jobs/{id:path}/retry": (f"/jobs/{job('done')}/retry", {}),
        "/jobs/{id:path}/cancel": (f"/jobs/{job('waits')}/cancel", {}),
        "/flows/{id:path}/cancel": (f"/flows/{job('flow')}/cancel", {}),
        "/jobs/{id:path}/delete": (f"/jobs/{job('done')}/delete", {}),
    }


def pages_of(text: str) -> list[str]:
    """Every page that shows the text."""
    name = quote(text, safe="")
    jobs = [quote(f"{text} {which}", safe="") for which in ("done", "dead", "running", "waits", "later 0")]
    lists = ["/", "/queues", "/jobs", "/dead", "/flows", "/schedules", "/workers", "/operations", "/about"]
    lists += [
        f"/jobs?queue={name}",
        f"/jobs?group={name}",
        f"/jobs?q={name}",
        f"/operations/new?state=dlq&queue={name}",
    ]
    return [*lists, *(f"/jobs/{job}" for job in jobs), f"/queues/{name}", f"/schedules/{name}", f"/flows/{name}%20flow"]
