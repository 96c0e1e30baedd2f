"""Operations, summaries and the audit as a program uses them: a harbor, real workers, both colours."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import Harbor, State
from taskharbor.client.operation import DryRun
from taskharbor.events import Event, OperatorActed
from taskharbor.testing import drain


class Mail:
    """A harbor whose task fails until it is mended."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.harbor = Harbor("memory://", observers=[self.events.append])
        self.broken = True

        @self.harbor.task(name="mail.send", queue="mail", max_attempts=1)
        def send(to: str) -> None:
            if self.broken and to != "fine":
                raise ConnectionError("no server")

        self.send = send

    def kill(self, count: int) -> list[str]:
        handles = self.harbor.enqueue_many([self.send.s(f"user-{number}") for number in range(count)])
        self.work()
        return [handle.id for handle in handles]

    def work(self) -> None:
        self.harbor.worker().run(until_empty=True)


def test_a_worker_carries_an_operation_out_and_runs_what_it_brings_back() -> None:
    mail = Mail()
    mail.kill(3)
    mail.broken = False
    operation = mail.harbor.dead(type="mail.send").requeue(by="ada")
    mail.work()
    assert operation.status() == "done"
    assert mail.harbor.counts()["mail"] == {"done": 3}
    assert operation.wait(timeout=5).done == 3


def test_run_carries_it_out_without_a_worker() -> None:
    mail = Mail()
    mail.kill(3)
    heard: list[Any] = []
    progress = mail.harbor.dead().delete().run(on_progress=heard.append)
    assert (progress.status, progress.done) == ("done", 3)
    assert heard[-1] == progress
    assert "mail" not in mail.harbor.counts()


def test_the_same_awaited() -> None:
    mail = Mail()
    mail.kill(4)

    async def test() -> None:
        harbor = mail.harbor
        summary = await harbor.dead().asummary(by="error")
        assert [(row.value, row.n) for row in summary] == [("ConnectionError", 4)]
        dry = await harbor.dead().arequeue(dry_run=True)
        assert (dry.count.n, len(dry.sample)) == (4, 4)
        operation = await harbor.dead(queue="mail").adelete(limit=1)
        assert (await operation.arun()).done == 1
        assert (await operation.await_(timeout=5)).status == "done"
        stopped = await harbor.dead().adelete()
        await stopped.astop()
        assert await stopped.astatus() == "stopped"
        entries = [entry async for entry in harbor.audit()]
        assert [entry.action for entry in entries] == ["stop", "delete", "delete"]
        await harbor.aclose()

    asyncio.run(test())


def test_a_dry_run_stores_nothing() -> None:
    mail = Mail()
    mail.kill(2)
    before = mail.harbor.counts()
    for dry in (mail.harbor.dead().requeue(dry_run=True), mail.harbor.dead().delete(dry_run=True)):
        assert isinstance(dry, DryRun)
        assert dry.count.n == 2
        assert {info.state for info in dry.sample} == {State.DLQ}
        assert all(info.job.payload == b"" for info in dry.sample)
    assert mail.harbor.counts() == before
    assert list(mail.harbor.audit()) == []


def test_a_preview_and_its_operation_have_the_same_cut() -> None:
    mail = Mail()
    seen = mail.kill(2)
    dry = mail.harbor.dead().delete(dry_run=True)
    later = mail.kill(1)
    mail.harbor.dead(until=dry.cut).delete().run()
    assert [info.job.id for info in mail.harbor.dead()] == later
    assert seen


class TestSummary:
    def test_kinds_of_failure(self) -> None:
        mail = Mail()
        ids = mail.kill(3)

        @mail.harbor.task(name="report", max_attempts=1)
        def report() -> None:
            raise KeyError("x")

        report.enqueue()
        mail.work()
        by_type = mail.harbor.dead().summary(by="type")
        assert [(row.value, row.n) for row in by_type] == [("mail.send", 3), ("report", 1)]
        assert by_type.complete
        assert by_type.jobs == 4
        assert by_type.rows[0].sample.job.id == max(ids)
        assert [row.n for row in mail.harbor.dead().summary()] == [3, 1]
        assert [row.value for row in mail.harbor.dead().summary(by="queue")] == ["mail", "default"]
        assert [row.value for row in mail.harbor.dead(queue="mail").summary(by="reason")] == ["failed 1 of 1 attempts"]
        for row in by_type:
            assert row.oldest <= row.newest <= datetime.now(UTC)

    def test_an_unknown_key(self) -> None:
        with pytest.raises(ValueError, match="by: expected one of fingerprint, error, type, reason, queue, got 'day'"):
            Mail().harbor.dead().summary(by="day")  # type: ignore[arg-type]  # on purpose


class TestAudit:
    def test_what_a_program_does_to_single_jobs(self) -> None:
        mail = Mail()
        first, second = mail.kill(2)
        job = mail.harbor.job(first)
        job.amend(payload={"to": "fine"}, by="ada")
        job.requeue(by="ada")
        mail.work()
        mail.harbor.job(second).delete(by="bob")
        mail.harbor.pause("mail", by="bob")
        mail.harbor.resume("mail")
        waiting = mail.send.options(delay=60).enqueue("x")
        waiting.cancel()  # a program's own business
        entries = list(mail.harbor.audit())
        assert [(entry.action, entry.by) for entry in reversed(entries)][:4] == [
            ("amend", "ada"),
            ("requeue", "ada"),
            ("delete", "bob"),
            ("pause", "bob"),
        ]
        assert entries[0].action == "resume"
        assert "@" in entries[0].by  # the user of this process
        assert entries[0].target == "mail"
        assert {(entry.done, entry.refused) for entry in entries} == {(1, 0)}
        assert [entry.ids for entry in mail.harbor.audit(by="ada")] == [(first,), (first,)]
        assert mail.harbor.job(first).result() is None
        waiting2 = mail.send.options(delay=60).enqueue("x")
        waiting2.cancel(by="ada")
        assert next(iter(mail.harbor.audit())).action == "cancel"

    def test_what_is_refused_is_in_the_audit_as_refused(self) -> None:
        mail = Mail()
        handle = mail.send.enqueue("x")
        with pytest.raises(Exception, match="requeue takes dlq and cancelled"):
            handle.requeue(by="ada")
        (entry,) = mail.harbor.audit()
        assert (entry.done, entry.refused) == (0, 1)

    def test_by_time(self) -> None:
        mail = Mail()
        mail.harbor.pause("mail", by="ada")
        now = datetime.now(UTC)
        assert list(mail.harbor.audit(since=now + timedelta(hours=1))) == []
        assert len(list(mail.harbor.audit(since=now - timedelta(hours=1)))) == 1
        assert list(mail.harbor.audit(until=now - timedelta(hours=1))) == []

    def test_an_event_for_each_action(self) -> None:
        mail = Mail()
        mail.kill(1)
        mail.harbor.pause("mail", by="ada")
        mail.harbor.resume("mail", by="ada")
        mail.harbor.dead().requeue(by="ada").run()
        acted = [event.entry for event in mail.events if isinstance(event, OperatorActed)]
        assert [(entry.action, entry.status) for entry in acted] == [
            ("pause", ""),
            ("resume", ""),
            ("requeue", "running"),
            ("requeue", "done"),
        ]


def test_drain_runs_operations_too() -> None:
    mail = Mail()
    mail.kill(2)
    mail.broken = False
    operation = mail.harbor.dead().requeue()
    assert drain(mail.harbor) == 2
    assert operation.status() == "done"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda h: h.jobs().requeue(),
            "requeue: expected a filter with state='dlq' or .*, got state=None",
        ),
        (lambda h: h.jobs(state="done").requeue(), "got state='done'"),
        (lambda h: h.jobs(state="done").cancel(), "cancel: expected a filter for jobs that have not ended"),
        (lambda h: h.jobs(queue="mail").delete(), "delete: expected a filter with state="),
        (lambda h: h.dead().requeue(canary=-1), "canary: expected 0 or more, got -1"),
        (lambda h: h.dead().requeue(canary=101), "canary: expected at most 100, got 101"),
        (lambda h: h.dead().requeue(canary="5"), "canary: expected a whole number, got str"),
        (lambda h: h.dead().requeue(max_failures=1), "max_failures: expected it together with canary="),
        (lambda h: h.dead().requeue(spread=-1), "spread"),
        (lambda h: h.dead().requeue(limit=0), "limit: expected 1 or more, got 0"),
        (lambda h: h.dead().requeue(by=""), "by: expected 1 to 255 bytes"),
        (lambda h: h.dead().cancel(), "cancel: expected a filter for jobs that have not ended, got state='dlq'"),
        (lambda h: h.dead(state="done"), "dead: expected no state="),
        (lambda h: h.dead().delete(spread=5), "unexpected keyword argument 'spread'"),
        (lambda h: h.task(name="x", queue="taskharbor")(print), "'taskharbor' is for the core's own jobs"),
        (lambda h: h.worker(queues=["taskharbor"]), "every worker serves 'taskharbor' beside its own queues"),
    ],
)
def test_what_makes_no_sense_is_refused_and_stores_nothing(call: Any, text: str) -> None:
    harbor = Harbor("memory://")
    with pytest.raises((ValueError, TypeError), match=text.replace("(", r"\(")):
        call(harbor)
    assert harbor.counts() == {}
    assert list(harbor.audit()) == []
