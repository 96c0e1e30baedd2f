"""`taskharbor enqueue`."""

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from taskharbor.drivers import JobInfo
from taskharbor.ops.job_edit import edit_of
from tests.cli.dead_jobs import Dead, bury
from tests.cli.shell import Answer, taskharbor, within

APP = """
from taskharbor import Harbor

harbor = Harbor({dsn!r}, default_queue="post")

@harbor.task(name="mail", queue="mail", max_attempts=7)
def mail(to: str, copies: int = 1) -> None: ...

@harbor.task(name="plain")
def plain() -> None: ...

@harbor.task(name="load")
def load(data: bytes, names: dict[int, str]) -> None: ...

@harbor.task(name="as it is", raw=True)
def as_it_is(payload: bytes) -> None: ...
"""


def inspect(dsn: str, id: str) -> JobInfo:
    return within(dsn, lambda driver, now: driver.inspect(id, now))


def enqueue(dsn: str, *arguments: str) -> Answer:
    return taskharbor("enqueue", "--dsn", dsn, *arguments)


@pytest.fixture
def app(tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of an application in the current folder; what `--app` says."""
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP.format(dsn=dsn))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"{name}:harbor"


def test_prints_the_id_and_nothing_else(dsn: str):
    enqueue(dsn, "--job", "first")
    answer = enqueue(dsn, "--job", "echo", "--json", '{"text": "hello"}')
    assert (answer.code, answer.err) == (0, "")
    job = inspect(dsn, answer.out.strip()).job
    assert (job.type, job.queue, job.payload) == ("echo", "default", b'{"text": "hello"}')


def test_the_payload_of_a_raw_task_is_stored_as_it_was_typed(dsn: str, app: str):
    text = '{"a":1,  "b": [0.10]}'
    answer = enqueue(dsn, "--app", app, "--job", "as it is", "--json", text)
    assert inspect(dsn, answer.out.strip()).job.payload == text.encode(), answer.err


def test_the_payload_is_stored_as_it_was_typed(dsn: str):
    text = '{"big": 123456789012345678901234567890, "exact": 0.10, "word": "é"}'
    assert inspect(dsn, enqueue(dsn, "--job", "x", "--json", text).out.strip()).job.payload == text.encode()


def test_a_payload_from_stdin(dsn: str):
    answer = taskharbor("enqueue", "--dsn", dsn, "--job", "x", "--json", "-", stdin="[1, 2]\n")
    assert inspect(dsn, answer.out.strip()).job.payload == b"[1, 2]"


def test_every_option_reaches_the_record(dsn: str):
    answer = enqueue(
        dsn, "--job", "x", "--queue", "mail", "--run-at", "2099-01-31T09:00:00+01:00", "--idempotency-key", "k",
        "--max-attempts", "3", "--timeout", "90s", "--priority", "-4", "--group", "g", "--group-limit", "2",
    )  # fmt: skip
    job = inspect(dsn, answer.out.strip()).job
    assert job.run_at == datetime.fromisoformat("2099-01-31T08:00:00Z")
    assert (job.queue, job.idempotency_key, job.max_attempts) == ("mail", "k", 3)
    assert (job.timeout, job.priority, job.group, job.group_limit) == (timedelta(seconds=90), -4, "g", 2)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("15m", 900), ("2h", 7200), ("1d", 86400)])
def test_delay_counts_from_the_stores_time(dsn: str, text: str, seconds: int):
    job = inspect(dsn, enqueue(dsn, "--job", "x", "--delay", text).out.strip()).job
    assert job.run_at is not None
    assert job.run_at - job.created_at == timedelta(seconds=seconds)


def test_a_known_key_returns_the_job_that_exists(dsn: str):
    first = enqueue(dsn, "--job", "x", "--idempotency-key", "k")
    again = enqueue(dsn, "--job", "x", "--idempotency-key", "k")
    assert again.out == first.out
    assert "not stored again" in again.err
    told = enqueue(dsn, "--job", "x", "--idempotency-key", "k", "--output", "json").json
    assert told == {"id": first.out.strip(), "type": "x", "queue": "default", "existed": True}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--json", '{"a": '], "expected JSON"),
        (["--json", '{"a": NaN}'], "expected JSON"),
        (["--json", '{"a": "\udcff"}'], "expected JSON"),
        (["--run-at", "tomorrow"], "2030-01-31T09:00:00Z"),
        (["--run-at", "2099-01-01T00:00:00"], "2099-01-01T00:00:00Z for UTC"),
        (["--delay", "soon"], "15m"),
        (["--delay", "1h", "--run-at", "2099-01-01T00:00:00Z"], "expected only one of them"),
        (["--queue", "{mail}"], "braces"),
        (["--job", "taskharbor.join"], "belong to the core"),
        (["--max-attempts", "0"], "--max-attempts"),
        (["--max-attempts", "9999999999"], "max_attempts"),
        (["--idempotency-key", ""], "idempotency_key"),
        (["{}"], "no further arguments"),
        (["--jsn", "{}"], "--jsn"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_2(dsn: str, arguments: list[str], expected: str):
    answer = enqueue(dsn, "--job", "x", *arguments)
    assert expected in answer.line
    assert answer.code == 2
    assert not Path(dsn.removeprefix("sqlite:///")).exists(), "nothing is stored, and no store is made"


def test_without_a_job(dsn: str):
    answer = enqueue(dsn)
    assert (answer.code, "--job" in answer.line) == (2, True)


def test_with_an_app_the_tasks_options_hold(app: str, dsn: str):
    told = taskharbor("enqueue", "--app", app, "--job", "mail", "--json", '{"to": "ada"}', "--output", "json").json
    job = inspect(dsn, told["id"]).job
    assert (told["queue"], job.queue, job.max_attempts) == ("mail", "mail", 7)
    assert json.loads(job.payload) == {"to": "ada"}
    told = taskharbor("enqueue", "--app", app, "--job", "plain", "--output", "json").json
    assert (told["queue"], inspect(dsn, told["id"]).job.queue) == ("post", "post")
    job = inspect(
        dsn, taskharbor("enqueue", "--app", app, "--job", "mail", "--json", '"ada"', "--queue", "other").out.strip()
    ).job
    assert (job.queue, json.loads(job.payload)) == ("other", {"to": "ada"})


@pytest.mark.parametrize(
    ("payload", "expected"),
    [('{"too": "x"}', "'too'"), ("{}", "'to'"), ('{"to": 5}', "'to'"), ('{"to": "a", "copies": "b"}', "'copies'")],
)
def test_with_an_app_the_arguments_are_checked(app: str, payload: str, expected: str):
    answer = taskharbor("enqueue", "--app", app, "--job", "mail", "--json", payload)
    assert expected in answer.line
    assert answer.code == 2


def test_arguments_that_are_typed_as_json_have_the_form_of_json(app: str, dsn: str):
    """Bytes are base64 there, and all keys are text: in every command that reads arguments, and on the dashboard."""
    task, first, second = ("--app", app), '{"data":"aGk=","names":{"1":"a"}}', '{"data":"aGlo","names":{"2":"b"}}'
    answer = taskharbor("enqueue", *task, "--job", "load", "--json", first)
    assert answer.code == 0, answer.err
    id = answer.out.strip()
    assert inspect(dsn, id).job.payload == first.encode()
    answer = taskharbor("job", "amend", id, *task, "--payload-json", second, "--yes")
    assert answer.code == 0, answer.err
    info = inspect(dsn, id)
    assert info.job.payload == second.encode()
    harbor = sys.modules[app.partition(":")[0]].harbor
    typed = {"payload": first, "deliveries": "0", "edits": "1"}
    assert edit_of(harbor, info, typed).payload == first.encode()
    answer = taskharbor("schedule", "add", "often", *task, "--job", "load", "--json", first, "--every", "5m")
    assert answer.code == 0, answer.err
    bury(dsn, Dead("d1", type="load", payload=json.loads(first)))
    answer = taskharbor("dlq", "edit", "d1", *task, "--json", second)
    assert answer.code == 0, answer.err
    assert inspect(dsn, "d1").job.payload == second.encode()


def test_an_unknown_task_is_reported_with_the_tasks_of_the_app(app: str):
    answer = taskharbor("enqueue", "--app", app, "--job", "nope")
    assert "mail, plain" in answer.line
    assert answer.code == 2


def test_a_given_store_wins_over_the_apps_own(app: str, dsn: str, tmp_path: Path):
    other = f"sqlite:///{tmp_path}/other.db"
    id = taskharbor("enqueue", "--app", app, "--dsn", other, "--job", "plain").out.strip()
    assert inspect(other, id).job.type == "plain"
    told = taskharbor("enqueue", "--app", app, "--job", "plain", environment={"TASKHARBOR_DSN": other})
    assert inspect(other, told.out.strip()).job.type == "plain"
    assert not Path(dsn.removeprefix("sqlite:///")).exists()


def test_an_app_is_sent_through_its_own_middleware_and_seen_by_its_observers(
    app: str, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    module = tmp_path / f"{app.partition(':')[0]}.py"
    module.write_text(
        module.read_text()
        + """
from contextlib import contextmanager
from taskharbor.model.job import replace

heard = []

@contextmanager
def stamped():
    yield lambda records: [replace(each, metadata={**each.metadata, "tenant": "north"}) for each in records]

harbor._store.enqueuer.middleware = (stamped,)
harbor.observe(heard.append)
"""
    )
    for elsewhere in (dsn, f"sqlite:///{tmp_path}/other.db"):
        answer = enqueue(elsewhere, "--app", app, "--job", "plain")
        assert answer.code == 0, answer.err
        assert inspect(elsewhere, answer.out.strip()).job.metadata == {"tenant": "north"}
    assert [type(event).__name__ for event in sys.modules[app.partition(":")[0]].heard] == ["JobEnqueued"] * 2
