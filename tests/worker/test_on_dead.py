"""Tasks that run when a job dies."""

import logging
from typing import Any

import pytest

from taskharbor import Harbor, JobContext, JobInfo, State, Unrecoverable
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.tasks.on_dead import MAX_DEAD_PAYLOAD_BYTES


def work(harbor: Harbor) -> None:
    harbor.worker().run(until_empty=True)


def test_it_receives_the_job_that_died() -> None:
    harbor = Harbor("memory://")
    told: list[JobInfo] = []

    @harbor.task(name="mail.send", max_attempts=2, retry=lambda attempts, error: 0)
    def send(to: str) -> None:
        raise ConnectionError("no server")

    @harbor.on_dead("mail.*")
    async def tell(dead: JobInfo, ctx: JobContext) -> None:
        told.append(dead)

    handle = send.enqueue("ada")
    work(harbor)
    (info,) = told
    stored = handle.info()
    assert (info.job.id, info.state, info.job.type) == (handle.id, State.DLQ, "mail.send")
    assert (info.job.reason, info.job.attempts) == ("failed 2 of 2 attempts", 2)
    assert "ConnectionError: no server" in info.job.last_error
    assert (info.job.error_class, info.job.fingerprint) == (stored.job.error_class, stored.job.fingerprint)
    assert info.job.payload == b'{"to":"ada"}'
    assert info.job.finished_at is not None


def test_once_for_each_death_and_only_for_types_that_fit() -> None:
    harbor = Harbor("memory://")
    told: list[str] = []

    @harbor.task(name="mail.send", max_attempts=1)
    def send() -> None:
        raise ValueError

    @harbor.task(name="report", max_attempts=1)
    def report() -> None:
        raise Unrecoverable("never")

    @harbor.on_dead("mail.*")
    def tell(dead: JobInfo) -> None:
        told.append(dead.job.type)

    @harbor.on_dead()
    def tell_all(dead: JobInfo) -> None:
        told.append(f"all {dead.job.type}")

    handle = send.enqueue()
    report.enqueue()
    work(harbor)
    assert sorted(told) == ["all mail.send", "all report", "mail.send"]
    handle.requeue()
    work(harbor)
    assert sorted(told) == ["all mail.send", "all mail.send", "all report", "mail.send", "mail.send"]


def test_a_death_in_such_a_task_starts_none() -> None:
    harbor = Harbor("memory://")
    ran: list[str] = []

    @harbor.task(name="mail", max_attempts=1)
    def mail() -> None:
        raise ValueError

    @harbor.on_dead("*", max_attempts=1)
    def first(dead: JobInfo) -> None:
        ran.append("first")
        raise ValueError

    @harbor.on_dead("*", max_attempts=1)
    def second(dead: JobInfo) -> None:
        ran.append("second")
        raise ValueError

    mail.enqueue()
    work(harbor)
    assert sorted(ran) == ["first", "second"]
    assert harbor.counts() == {"default": {"dlq": 3}}


def test_it_is_stored_with_the_death_or_not_at_all() -> None:
    """The store refuses the outcome: the job is not dead, so the task does not run."""
    harbor = Harbor("memory://")
    told: list[JobInfo] = []

    @harbor.task(name="mail", max_attempts=1)
    def mail(ctx: JobContext) -> None:
        harbor.job(ctx.job.id).cancel()
        raise ValueError

    @harbor.on_dead("*")
    def tell(dead: JobInfo) -> None:
        told.append(dead)

    handle = mail.enqueue()
    work(harbor)
    assert handle.status() is State.CANCELLED
    assert told == []


def test_a_large_payload_is_left_out() -> None:
    harbor = Harbor("memory://")
    told: list[JobInfo] = []

    @harbor.task(name="mail", max_attempts=1)
    def mail(text: str) -> None:
        raise ValueError

    @harbor.on_dead("*")
    def tell(dead: JobInfo) -> None:
        told.append(dead)

    handle = mail.enqueue("x" * MAX_DEAD_PAYLOAD_BYTES)
    work(harbor)
    assert told[0].job.payload == b""
    assert len(handle.info().job.payload) > MAX_DEAD_PAYLOAD_BYTES


def test_its_options_are_those_of_a_task() -> None:
    harbor = Harbor("memory://", default_queue="own")

    @harbor.on_dead("*", name="alert", queue="alerts", priority=5)
    def tell(dead: JobInfo) -> None: ...

    @harbor.on_dead("*", name="other")
    def other(dead: JobInfo) -> None: ...

    @harbor.task(name="mail", max_attempts=1)
    def mail() -> None:
        raise ValueError

    mail.enqueue()
    harbor.worker(queues=["own"]).run(until_empty=True)
    (stored,) = harbor.jobs(type="alert")
    assert (stored.job.queue, stored.job.priority) == ("alerts", 5)
    assert [info.job.queue for info in harbor.jobs(type="other")] == ["own"]


def test_the_job_dies_even_if_the_task_cannot_be_enqueued(caplog: pytest.LogCaptureFixture) -> None:
    class Codec:
        def encode(self, value: Any) -> bytes:
            if "dead" in value:
                raise RuntimeError("secret")
            return repr(value).encode()

        def decode(self, data: bytes, type: Any = Any) -> Any:
            return {}

    harbor = Harbor(MemoryDriver(), codec=Codec())

    @harbor.task(name="mail", max_attempts=1)
    def mail() -> None:
        raise ValueError

    @harbor.on_dead("*")
    def tell(dead: JobInfo) -> None: ...

    handle = mail.enqueue()
    with caplog.at_level(logging.ERROR):
        work(harbor)
    assert handle.status() is State.DLQ
    assert "could not be enqueued for it (ValueError)" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda h: h.on_dead(print), "expected a pattern for types such as 'mail.\\*', got builtin_function_or_method"),
        (lambda h: h.on_dead("*")(lambda: None), "expected a function with one parameter for the dead job"),
        (lambda h: h.on_dead("*")(lambda a, b: None), "expected a function with one parameter for the dead job"),
        (lambda h: h.on_dead("*")(lambda dead: None), "annotate the parameter 'dead'"),
    ],
)
def test_what_cannot_be_such_a_task(declare: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        declare(Harbor("memory://"))


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_error_that_quotes_the_payload_of_the_dead_job_does_not_show_it(attempts: int) -> None:
    harbor = Harbor("memory://")

    @harbor.task(name="mail.send", max_attempts=1)
    def send(to: str) -> None:
        raise ValueError

    @harbor.on_dead("mail.*", name="tell", max_attempts=attempts, retry=lambda attempts, error: 0)
    def tell(dead: JobInfo) -> None:
        raise RuntimeError(f"nobody to tell about {dead.job.payload.decode()}")

    send.enqueue("the-secret-of-ada")
    work(harbor)
    (job,) = harbor.jobs(type="tell")
    assert job.state is State.DLQ
    for attempt in harbor.job(job.job.id).executions():
        assert "nobody to tell about" in attempt.error
        assert "the-secret-of-ada" not in attempt.error
