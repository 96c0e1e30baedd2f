"""Dead jobs for the tests of `taskharbor dlq`, and how they are found again."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from taskharbor.drivers import Driver, JobInfo, JobRecord, State
from taskharbor.model.audit import AuditEntry, read_entry
from taskharbor.model.outcome import Fail
from tests.cli.shell import MINUTE, store, within


@dataclass(frozen=True)
class Dead:
    """A job that died, and of what."""

    id: str
    type: str = "mail.send"
    queue: str = "mail"
    error: str = "ConnectionError"
    text: str = "the server is away"
    payload: Any = None
    group: str | None = None
    max_attempts: int = 3

    @property
    def fingerprint(self) -> str:
        return f"{self.type}-{self.error}"

    def record(self) -> JobRecord:
        payload = json.dumps({"to": "ada"} if self.payload is None else self.payload).encode()
        return JobRecord(
            id=self.id,
            type=self.type,
            queue=self.queue,
            payload=payload,
            group=self.group,
            max_attempts=self.max_attempts,
        )


def bury(dsn: str, *jobs: Dead) -> None:
    """Store jobs and let them die."""
    store(dsn, *(job.record() for job in jobs))
    die_again(dsn, *jobs)


def die_again(dsn: str, *jobs: Dead) -> None:
    """Let jobs die that are ready."""
    known = {job.id: job for job in jobs}

    async def work(driver: Driver, now: datetime) -> None:
        for queue in {job.queue for job in jobs}:
            while reserved := await driver.reserve([queue], now, MINUTE, 1000, "w1"):
                await driver.settle([_fail(each, known[each.job.id], now) for each in reserved], now)

    within(dsn, work)


def _fail(reserved: Any, job: Dead, now: datetime) -> Fail:
    reason = f"failed {job.max_attempts} of {job.max_attempts} attempts"
    error = f"{job.error}: {job.text}\n  at x.py"
    return Fail(reserved.lease, reason, job.max_attempts, now, error, (), job.error, job.fingerprint)


def look(dsn: str, id: str) -> JobInfo:
    return within(dsn, lambda driver, now: driver.inspect(id, now))


def states(dsn: str, *ids: str) -> list[State]:
    return [look(dsn, id).state for id in ids]


def audit_of(dsn: str) -> list[AuditEntry]:
    """The audit, the newest entry first."""

    async def read(driver: Any, now: datetime) -> list[AuditEntry]:
        return [read_entry(stored) for stored in (await driver.audit(limit=1000)).items]

    return within(dsn, read)
