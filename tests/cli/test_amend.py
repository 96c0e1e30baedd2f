"""`taskharbor job amend`: shows what changes, asks, and changes nothing that it has not seen."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskharbor.drivers import Driver, JobInfo, JobRecord, State, open_driver
from taskharbor.model.amendment import Amend
from tests.cli.shell import Answer, at_terminal, kill, reserve, store, taskharbor, within
from tests.drivers.small_driver import OPTIONAL

SECRET = "canary-4711"
PAYLOAD = f'{{"to":"{SECRET}","n":1.10}}'.encode()


def look(dsn: str, id: str = "j1") -> JobInfo:
    return within(dsn, lambda driver, now: driver.inspect(id, now))


def amend(dsn: str, *arguments: str, id: str = "j1") -> Answer:
    return taskharbor("job", "amend", id, *arguments, "--dsn", dsn)


@pytest.fixture
def waiting(any_dsn: str) -> str:
    run_at = datetime.now(UTC) + timedelta(hours=1)
    store(
        any_dsn,
        JobRecord(id="j1", type="mail", payload=PAYLOAD, run_at=run_at, max_attempts=3, metadata={"a": "1", "b": "2"}),
    )
    return any_dsn


def test_every_field(waiting: str):
    answer = amend(
        waiting,
        *(
            "--payload-json",
            '{"to": "ada"}',
            "--delay",
            "2h",
            "--priority",
            "7",
            "--max-attempts",
            "9",
            "--timeout",
            "90s",
        ),
        *("--metadata", "a=3", "--metadata", "b=", "--metadata", "c=x=y", "--yes"),
    )
    assert answer.code == 0, answer.err
    head, *rows, last = answer.out.splitlines()
    assert head.split() == ["FIELD", "BEFORE", "AFTER"]
    assert last == "j1 was changed"
    found = {row.split("  ")[0]: row.split("  ")[1:] for row in rows}
    assert found.keys() == {
        *("payload", "run_at", "priority", "max_attempts", "timeout", "metadata a", "metadata b", "metadata c")
    }
    job = look(waiting).job
    assert job.payload == b'{"to":"ada","n":1.10}'
    assert (job.priority, job.max_attempts, job.timeout) == (7, 9, timedelta(seconds=90))
    assert job.metadata == {"a": "3", "c": "x=y"}
    assert job.run_at is not None
    assert job.run_at - datetime.now(UTC) > timedelta(minutes=119)
    assert job.edits == 1


def test_now_and_none(waiting: str):
    assert amend(waiting, "--timeout", "90", "--yes").code == 0
    answer = amend(waiting, "--now", "--timeout", "none", "--priority", "0", "--yes", "--output", "json")
    assert answer.json["id"] == "j1"
    assert [(change["field"], change["after"]) for change in answer.json["changes"]] == [
        ("run_at", None),
        ("timeout", None),
    ]
    assert (look(waiting).state, look(waiting).job.timeout) == (State.READY, None)


def test_arguments_are_never_shown(waiting: str):
    for output in ("table", "json"):
        answer = amend(waiting, "--payload-json", f'{{"to": "{SECRET}{output}"}}', "--yes", "--output", output)
        assert answer.code == 0
        assert "canary" not in answer.out + answer.err
    for wrong in (f'{{"to": "{SECRET}"', f'["{SECRET}"]', f'"{SECRET}"'):
        answer = amend(waiting, "--payload-json", wrong, "--yes")
        assert answer.code == 2
        assert "canary" not in answer.line


def test_what_cannot_be_changed(any_dsn: str):
    store(any_dsn, JobRecord(id="done", type="x", queue="mail"), JobRecord(id="running", type="x", queue="busy"))
    (held,) = reserve(any_dsn, "mail")
    within(any_dsn, lambda driver, now: driver.ack(held.lease, now))
    reserve(any_dsn, "busy")
    for id, state in (("done", "done"), ("running", "inflight")):
        answer = amend(any_dsn, "--priority", "3", "--yes", id=id)
        assert (answer.code, f"job {id} is {state}" in answer.line) == (1, True)
    answer = amend(any_dsn, "--priority", "3", "--yes", id="nope")
    assert (answer.code, answer.line) == (1, "taskharbor: no job nope")


def test_a_dead_job_stays_dead_with_its_new_values(any_dsn: str):
    store(any_dsn, JobRecord(id="j1", type="x", payload=PAYLOAD))
    kill(any_dsn, "j1")
    assert amend(any_dsn, "--payload-json", '{"to": "ada"}', "--yes").code == 0
    assert look(any_dsn).state is State.DLQ
    assert taskharbor("job", "retry", "j1", "--dsn", any_dsn).code == 0
    assert (look(any_dsn).state, look(any_dsn).job.payload) == (State.READY, b'{"to":"ada","n":1.10}')


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "expected at least one change"),
        (["--now", "--delay", "3"], "expected only one of --now and --delay"),
        (["--metadata", "x"], "expected KEY=VALUE"),
        (["--metadata", "taskharbor.bind=x"], "belong to the core"),
        (["--priority", "0"], "already has these values"),
        (["--timeout", "0"], "timeout"),
        (["--priority", str(2**40)], "priority"),
    ],
)
def test_mistakes(dsn: str, arguments: list[str], told: str):
    store(dsn, JobRecord(id="j1", type="x"))
    answer = amend(dsn, *arguments, "--yes")
    assert (answer.code, told in answer.line) == (2, True), answer.err
    assert look(dsn).job.edits == 0


def test_a_job_that_changed_since_it_was_shown_is_left_alone(dsn: str, monkeypatch: pytest.MonkeyPatch):
    store(dsn, JobRecord(id="j1", type="x"))

    def faster(question: str, yes: bool) -> None:
        async def change(driver: Driver, now: datetime) -> None:
            await driver.amend([Amend(id="j1", deliveries=0, edits=0, priority=1)], now)

        within(dsn, change)

    monkeypatch.setattr("taskharbor.cli.amending.confirm", faster)
    answer = amend(dsn, "--priority", "3")
    assert answer.code == 1
    assert "j1 was reserved or amended since" in answer.err
    assert look(dsn).job.priority == 1


def test_a_person_sees_what_changes_and_is_asked(dsn: str):
    store(dsn, JobRecord(id="j1", type="mail", run_at=datetime.now(UTC) + timedelta(days=400)))
    code, seen = at_terminal(
        *("job", "amend", "j1", "--delay", "2h", "--priority", "3", "--dsn", dsn),
        columns=80,
        answer=b"n\n",
        NO_COLOR="1",
    )
    assert code == 1
    assert "Change job j1 (mail, scheduled)?" in seen
    assert "…" not in seen
    assert look(dsn).job.priority == 0
    assert "pass --yes" in amend(dsn, "--priority", "3").err


APP = """
import base64
from taskharbor import Harbor
from taskharbor.model.codec import JsonCodec

class Sealed:
    def encode(self, value): return base64.b85encode(JsonCodec().encode(value))
    def decode(self, data, type=object): return JsonCodec().decode(base64.b85decode(data))

harbor = Harbor({dsn!r})
sealed = Harbor({dsn!r}, codec=Sealed())

@harbor.task(name="mail")
def mail(to: str, n: int = 1) -> None: ...

@sealed.task(name="sealed")
def sealed_mail(to: str) -> None: ...
"""


def test_with_an_app_the_arguments_are_checked_and_sealed(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "amended_app.py").write_text(APP.format(dsn=dsn))
    store(
        dsn,
        JobRecord(id="j1", type="mail", payload=b'{"to":"eve","n":2}'),
        JobRecord(id="s1", type="sealed", payload=b"b85 of something"),
        JobRecord(id="u1", type="unknown", payload=b"{}"),
    )
    app = ["--app", "amended_app:harbor", "--yes"]
    assert amend(dsn, "--payload-json", '{"to": "ada"}', *app).code == 0
    assert look(dsn).job.payload == b'{"to":"ada","n":2}'
    answer = amend(dsn, "--payload-json", '{"n": "many"}', *app)
    assert (answer.code, "parameter 'n': expected int" in answer.line) == (2, True)
    answer = amend(dsn, "--payload-json", "{}", *app, id="u1")
    assert "has no task 'unknown'" in answer.line
    answer = amend(dsn, "--payload-json", '{"to": "ada"}', "--yes", id="s1")
    assert (answer.code, "not a JSON object; pass --app" in answer.line) == (2, True)
    assert amend(dsn, "--payload-json", '{"to": "ada"}', "--app", "amended_app:sealed", "--yes", id="s1").code == 0
    assert look(dsn, "s1").job.payload != b"b85 of something"
    assert b"ada" not in look(dsn, "s1").job.payload


def test_a_driver_without_the_verb_is_one_line(dsn: str, monkeypatch: pytest.MonkeyPatch):
    store(dsn, JobRecord(id="j1", type="x", flow_id="f"))
    for verb in OPTIONAL:
        monkeypatch.setattr(type(open_driver(dsn)), verb, getattr(Driver, verb))
    for command, what in (("job amend j1 --priority 3 --yes", "amend"), ("flow list", "a list of flows")):
        answer = taskharbor(*command.split(), "--dsn", dsn)
        assert (answer.code, answer.err.startswith(f"taskharbor: {what} needs a store that keeps it")) == (1, True)
    for command in ("list", "inspect j1", "flow show f", "explain j1", "stats", "dlq list"):
        assert taskharbor(*command.split(), "--dsn", dsn).code == 0
