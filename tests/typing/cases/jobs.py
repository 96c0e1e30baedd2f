"""Looking at jobs and mending them: calls that must pass the type checkers, and some that must not. Never run."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from taskharbor import (
    Attempt,
    Audit,
    AuditEntry,
    Client,
    Count,
    DryRun,
    FlowInfo,
    Flows,
    FlowStatus,
    Harbor,
    JobHandle,
    JobInfo,
    Jobs,
    Operation,
    OperationProgress,
    OperationStatus,
    Progress,
    QueueInfo,
    State,
    Summary,
    SummaryRow,
    WorkerInfo,
)

harbor = Harbor("memory://")


@harbor.task
def plain(to: str, subject: str = "Hello") -> int:
    return len(to)


job = assert_type(plain.job("01J"), JobHandle[int])
assert_type(harbor.job("01J"), JobHandle[Any])
assert_type(Client("memory://").handle("01J"), JobHandle[Any])
assert_type(job.result(3), int)
info = assert_type(job.info(), JobInfo)
assert_type(job.executions(), list[Attempt])
assert_type(job.progress(), Progress | None)
assert_type(job.wait(timedelta(seconds=3)), State)
assert_type(job.watch(), Iterator[JobInfo])
job.requeue()
job.requeue(run_at=datetime.now(UTC), reset_attempts=False)
job.requeue(delay=3)
job.delete()
job.amend(payload={"to": "ada"}, run_at=None, priority=1, max_attempts=2, timeout=None, metadata={"a": None})
job.amend(run_at=datetime.now(UTC), timeout=timedelta(seconds=3), metadata={"a": "b"}, expect=info)

jobs = assert_type(harbor.jobs(state="dlq", type=plain, error=ValueError, newest=True), Jobs)
harbor.jobs(state=State.DLQ, queue="q", type="t", group="g", flow="f", error="E", fingerprint="x")
harbor.jobs(since=datetime.now(UTC), until=None)
for each in jobs:
    assert_type(each, JobInfo)
assert_type(jobs.count(), Count)
assert_type(jobs.count(cap=5).n, int)
assert_type(jobs.ids(5), list[str])
assert_type(jobs.preview(), list[JobInfo])
kept = {jobs: 1}
dead = assert_type(harbor.dead(type=plain, since=datetime.now(UTC)), Jobs)
operation = assert_type(dead.requeue(spread=60, canary=5, max_failures=1, limit=9, by="ada"), Operation)
assert_type(dead.requeue(reset_attempts=False, dry_run=True), DryRun)
assert_type(jobs.cancel(limit=3), Operation)
assert_type(jobs.delete(by="ada"), Operation)
assert_type(jobs.delete(dry_run=True).count, Count)
assert_type(operation.status(), OperationStatus)
assert_type(operation.progress(), OperationProgress)
assert_type(operation.run(on_progress=lambda progress: print(progress.done)), OperationProgress)
assert_type(operation.wait(timedelta(seconds=3)), OperationProgress)
operation.stop()
assert_type(harbor.operation("01J"), Operation)
summary = assert_type(dead.summary(by="error"), Summary)
for row in summary:
    assert_type(row, SummaryRow)
assert_type(harbor.audit(by="ada"), Audit)
for entry in harbor.audit():
    assert_type(entry, AuditEntry)
job.cancel(by="ada")
job.requeue(by="ada")
job.delete(by="ada")
harbor.pause("q", by="ada")


@harbor.on_dead("mail.*", queue="alerts")
def tell(found: JobInfo) -> None: ...


dead.summary(by="day")  # E: arg-type
dead.requeue(spread="long")  # E: call-overload
dead.delete(canary=5)  # E: call-overload
assert_type(harbor.counts(), dict[str, dict[str, int]])
harbor.counts(cap=None)
assert_type(harbor.workers(), list[WorkerInfo])
assert_type(harbor.queues(), list[QueueInfo])
assert_type(harbor.declared_queues, tuple[str, ...])
assert_type(harbor.is_paused("q"), bool)
harbor.pause("q")
harbor.resume("q")
flows = assert_type(harbor.flows(status=FlowStatus.FAILED, since=datetime.now(UTC), newest=True), Flows)
for flow in flows:
    assert_type(flow, FlowInfo)


async def awaited() -> None:
    assert_type(await job.ainfo(), JobInfo)
    assert_type(await job.aexecutions(), list[Attempt])
    assert_type(await job.aprogress(), Progress | None)
    assert_type(await job.await_(3), State)
    assert_type(job.awatch(), AsyncIterator[JobInfo])
    async for seen in job.awatch(timeout=3):
        assert_type(seen, JobInfo)
    await job.arequeue(delay=3)
    await job.aamend(payload={"to": "ada"}, expect=info)
    await job.adelete()
    async for each in jobs:
        assert_type(each, JobInfo)
    assert_type(await jobs.acount(), Count)
    assert_type(await jobs.aids(5), list[str])
    assert_type(await jobs.apreview(5), list[JobInfo])
    assert_type(await harbor.acounts(), dict[str, dict[str, int]])
    assert_type(await harbor.aworkers(), list[WorkerInfo])
    assert_type(await harbor.aqueues(), list[QueueInfo])
    assert_type(await harbor.ais_paused("q"), bool)
    await harbor.apause("q")
    await harbor.aresume("q")
    async for flow in harbor.flows():
        assert_type(flow, FlowInfo)


text: str = job.result()  # E: assignment
job.amend(payload=["ada"])  # E: arg-type
job.amend(priority="high")  # E: arg-type
job.amend(queue="other")  # E: call-arg
job.amend(run_at=5)  # E: arg-type
job.amend({"to": "ada"})  # E: call-arg
job.amend(expect=job)  # E: arg-type
job.requeue(5)  # E: call-arg arg-type
job.requeue(delay="soon")  # E: arg-type
jobs.ids()  # E: call-arg
jobs.count("9")  # E: arg-type
jobs.queue = "other"  # E: misc
harbor.jobs("dlq")  # E: call-arg
harbor.jobs(state=5)  # E: arg-type
harbor.jobs(type=len)  # E: arg-type
harbor.jobs(sinse=None)  # E: call-arg
harbor.flows(status=5)  # E: arg-type
harbor.pause()  # E: call-arg
plain.job(5)  # E: arg-type
number: int = harbor.queues  # E: assignment
