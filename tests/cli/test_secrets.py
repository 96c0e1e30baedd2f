"""A canary password in the DSN and canaries in a payload: no command repeats them, however it ends."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskharbor import Harbor, JobRequest
from taskharbor.cli.main import COMMANDS
from taskharbor.drivers import JobRecord
from taskharbor.model.bounds import clean_error
from tests import lanes
from tests.cli.shell import Answer, Process, kill, looking_again, program, reserve, store, taskharbor, within
from tests.servers import redis
from tests.servers.ports import free_port
from tests.servers.postgres import shared

PASSWORD = "canaryPassword9137"
SECRET = "canarySecret4711"
PAYLOAD = json.dumps({"to": SECRET, "deep": [{"card": f"{SECRET}-card"}]}).encode()

ALL = (
    "enqueue --job echo", "inspect dead", "inspect dead --output json", "list", "list --output json", "explain dead",
    "explain retried", "explain dead --output json", "job retry dead", "job cancel dead --yes", "dlq list",
    "dlq list --output json", "dlq requeue dead", "dlq requeue --all --yes", "queue list", "queue pause q",
    "queue resume q", "flow show flow", "flow show flow --output json", "flow show flow --mermaid", "stats",
    "stats --watch --count 1", "job show dead", "job attempts dead", "job attempts dead --output json",
    "flow requeue flow", "flow list", "job amend after --priority 2 --yes", "migrate", "migrate --sql",
    "doctor", "doctor --output json", "dlq summary", "dlq summary --by reason --output json", "dlq show dead",
    "dlq show dead --output json", "dlq export", "dlq requeue --all --dry-run", "dlq delete --queue default --dry-run",
    "dlq delete --older-than 30d --yes --output json", "dlq operations", "audit", "audit --output json",
    "job cancel --queue default --dry-run --output json", "schedule list", "schedule list --output json",
    "schedule show ping", "schedule show ping --output json", "schedule preview ping", "schedule edit ping --every 90s",
    "schedule run ping", "schedule pause ping", "schedule reset ping", "schedule delete ping --yes",
)  # fmt: skip
SLOW = ("conformance --theme pause", "bench --jobs 1")
"""Also asked where they end at once: with a store that is not there."""
EACH_TIME = lanes.Chosen("list", "doctor", "enqueue --job echo", "migrate", "dlq requeue dead", "schedule run ping")
"""Asked of stores that refuse: one command of each kind. All stores are opened in one place."""


def clean_of_canaries(answer: Answer) -> None:
    for stream in (answer.out, answer.err):
        assert "canary" not in stream.lower().replace("--canary", ""), stream
        assert "Traceback" not in stream


def test_every_command_is_asked():
    asked = {command.split()[0] for command in (*ALL, *SLOW)}
    apart = {"worker", "demo", "completion", "task", "from"}  # the first is watched below; the others use no store
    apart |= {"dashboard", "outbox"}  # tests/dashboard; tests/outbox
    assert asked | apart == set(COMMANDS)


# The payload


@pytest.fixture
def carrying(dsn: str) -> str:
    """A store whose jobs carry a canary, and whose errors quote it."""
    store(
        dsn,
        JobRecord(id="dead", type="mail", payload=PAYLOAD, flow_id="flow"),
        JobRecord(id="after", type="mail", payload=PAYLOAD, flow_id="flow", depends_on=("dead",)),
        JobRecord(id="retried", type="mail", payload=PAYLOAD, queue="retries"),
        JobRecord(id="done", type="mail", payload=PAYLOAD, queue="done"),
    )
    error = f"ValueError: no such address {SECRET!r}\n  File x.py\n  {SECRET}-card"
    kill(dsn, "dead", reason=f"ValueError: {SECRET}", error=error)
    (held,) = reserve(dsn, "retries")
    later = held.lease.expires_at + (held.lease.expires_at - held.job.created_at)
    within(dsn, lambda driver, now: driver.retry(held.lease, now, later, attempts=1, last_error=error))
    step = JobRequest(type="mail", payload=json.loads(PAYLOAD))
    within(dsn, lambda driver, now: Harbor(driver).schedules.aadd("ping", step, every=60))
    (held,) = reserve(dsn, "done")
    within(dsn, lambda driver, now: driver.ack(held.lease, now, PAYLOAD))
    return dsn


@pytest.mark.parametrize("command", ALL)
def test_no_command_shows_a_payload(carrying: str, command: str):
    answer = taskharbor(*command.split(), "--dsn", carrying)
    clean_of_canaries(answer)
    nothing = ("job cancel dead", "dlq operations", "audit")  # refused, because it is dead; nothing to list
    assert answer.out or command.startswith(nothing)


LONG = "\n".join((f"first\x00 {SECRET}", SECRET, "x" * 9000 + SECRET))


@pytest.mark.parametrize("value", [LONG, f"{SECRET} " * 1000, f"é\ud83d {SECRET}"], ids=["lines", "cut", "half"])
def test_no_piece_of_a_value_that_an_error_holds_changed_or_cut(dsn: str, value: str):
    store(dsn, JobRecord(id="dead", type="mail", payload=json.dumps({"text": value}).encode()))
    kill(dsn, "dead", reason="failed", error=clean_error(f"ValueError: {value}\n  File x.py\nValueError: {value!r}"))
    for command in ("dlq list", "dlq list --output json", "inspect dead", "explain dead", "inspect dead --output json"):
        answer = taskharbor(*command.split(), "--dsn", dsn)
        assert "ValueError" in answer.out
        clean_of_canaries(answer)


@pytest.mark.parametrize(
    "arguments",
    [
        ["enqueue", "--job", "x", "--json", f'{{"to": "{SECRET}"'],
        ["enqueue", "--job", "x", f'{{"to": "{SECRET}"}}'],
        ["enqueue", "--job", "{x}", "--json", f'{{"to": "{SECRET}"}}'],
        ["enqueue", "--job", "x", "--json", f'{{"to": "{SECRET}"}}', "--queue", "{q}"],
        ["enqueue", "--job", "x", "--json", json.dumps({"to": SECRET * 100_000})],
        ["enqueue", "--job", "x", "--json", f'"{SECRET}" trailing'],
        ["enqueue", "--job", "x", "--json", f'{{"to": "{SECRET}"}}', "--dsn", "sqlite:////nowhere/x.db"],
        ["list", f'{{"to": "{SECRET}"}}'],
    ],
)
def test_no_mistake_repeats_a_payload(dsn: str, arguments: list[str]):
    answer = taskharbor(arguments[0], "--dsn", dsn, *arguments[1:])
    assert answer.code in (2, 3)
    assert answer.line
    clean_of_canaries(answer)


def test_no_mistake_of_a_task_repeats_a_payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "secret_tasks.py").write_text(
        "from taskharbor import Harbor\nharbor = Harbor('sqlite:///x.db')\n"
        "@harbor.task(name='mail')\ndef mail(to: int, at: list[int] | None = None) -> None: ...\n"
    )
    for value in ({"to": SECRET}, {"to": 1, "at": [SECRET]}, [SECRET], SECRET, {"to": {"x": SECRET}}):
        answer = taskharbor("enqueue", "--app", "secret_tasks:harbor", "--job", "mail", "--json", json.dumps(value))
        assert answer.code == 2
        clean_of_canaries(answer)


# The password


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """The address of a real server, with a password that is not the right one."""
    import psycopg

    server = shared()
    rules = Path(server.data, "pg_hba.conf")
    before = rules.read_text()
    rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{before}")
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute("create role locked login password 'another'")
        connection.execute("select pg_reload_conf()")
    address = f"postgresql://locked:{PASSWORD}@127.0.0.1:{server.port}/postgres"

    def refused() -> bool | None:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            return True
        return None

    looking_again(refused, "the server reads the file in its own time, and then refuses")
    yield address
    rules.write_text(before)
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute("drop role locked")
        connection.execute("select pg_reload_conf()")


@pytest.mark.left_to("full", except_for=EACH_TIME)
@pytest.mark.parametrize("command", ALL)
def test_a_wrong_password(locked: str, command: str):
    answer = taskharbor(*command.split(), "--dsn", locked)
    clean_of_canaries(answer)
    if "--sql" not in command:
        assert "password authentication failed" in answer.out + answer.err
        assert answer.code == (1 if "doctor" in command else 3)


@pytest.mark.left_to("full", except_for=EACH_TIME)
@pytest.mark.parametrize("address", ["postgresql://ada:{0}@127.0.0.1:{1}/jobs", "redis://ada:{0}@127.0.0.1:{1}/0"])
@pytest.mark.parametrize("command", [*ALL, *SLOW])
def test_a_server_that_is_not_there(command: str, address: str):
    answer = taskharbor(*command.split(), "--dsn", address.format(PASSWORD, free_port()))
    clean_of_canaries(answer)
    if "--sql" not in command and not (command == "migrate" and "redis" in address):  # which needs no schema
        assert "did not answer" in answer.out + answer.err
        assert answer.code == (1 if "doctor" in command else 3)


@pytest.mark.left_to("full", except_for=EACH_TIME)
@pytest.mark.parametrize("command", ALL)
def test_a_password_that_redis_does_not_know(command: str):
    dsn = redis.shared().url.replace("redis://", f"redis://:{PASSWORD}@")
    answer = taskharbor(*command.split(), "--dsn", dsn)
    clean_of_canaries(answer)
    if not command.startswith("migrate"):
        assert "AuthenticationError" in answer.out + answer.err
        assert answer.code == (1 if "doctor" in command else 3)


MISTYPED = (
    f"postgresql://ada:{PASSWORD}@127.0.0.1:none/jobs",
    f"postgresql://ada:{PASSWORD}@/jobs?colour=blue",
    f"postgresql://ada:{PASSWORD}#1@127.0.0.1/jobs",
    f"postgresql://ada:{PASSWORD}?x@127.0.0.1/jobs",
    f"postgresql://ada:{PASSWORD} x@127.0.0.1/jobs",
    f"postgresql://ada:{PASSWORD}%zz@127.0.0.1/jobs",
    f"postgresql://ada:{PASSWORD}%00@127.0.0.1/jobs",
    f"postgresql://ada:{PASSWORD}@[::1]x/jobs",
    f"postgresql://ada:{PASSWORD}@127.0.0.1/jobs?retention={PASSWORD}",
    f"postgresql:/ada:{PASSWORD}@127.0.0.1/jobs",
    f"gopher://ada:{PASSWORD}@127.0.0.1/jobs",
    f"redis://:{PASSWORD}@127.0.0.1:none/0",
    f"sqlite://ada:{PASSWORD}@x/jobs.db",
    f"ada:{PASSWORD}@127.0.0.1",
)


@pytest.mark.parametrize("dsn", MISTYPED)
def test_an_address_that_is_mistyped(dsn: str):
    for arguments in (
        ["list", "--dsn", dsn],
        ["list", dsn],
        ["list", f"--dns={dsn}"],
        ["--dsn", dsn, "enqueue", "--job", "x"],
        ["worker", "run", "--dsn", dsn, "--driver", "another"],
        ["doctor", "--dsn", dsn],
        ["conformance", "--dsn", dsn],
        ["migrate", "--dsn", dsn],
        ["bench", "--dsn", dsn, "--jobs", "1"],
    ):
        answer = taskharbor(*arguments)
        clean_of_canaries(answer)
        assert answer.code in (1, 2, 3), arguments


def test_an_app_that_shows_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    address = f"postgresql://ada:{PASSWORD}@127.0.0.1:1/jobs"
    (tmp_path / "telling.py").write_text(f"raise RuntimeError('cannot use {address} today')\n")
    answer = taskharbor("list", "--app", "telling:harbor")
    assert "RuntimeError: cannot use postgresql://…@127.0.0.1:1/jobs today" in answer.line
    clean_of_canaries(answer)


@pytest.mark.parametrize("trace", ["", "1"])
def test_in_a_real_process_on_every_stream(locked: str, trace: str):
    answer = program("list", "--dsn", locked, TASKHARBOR_TRACEBACK=trace, PYTHONASYNCIODEBUG="1", PYTHONDEVMODE="1")
    assert answer.code == 3
    assert "canary" not in (answer.out + answer.err).lower()
    assert ("OperationalError" in answer.err) == bool(trace)


def test_a_worker_says_nothing_of_either(locked: str, dsn: str):
    """A worker that its store refuses, and one whose handler quotes its payload, with every line of their logs."""
    answer = program("worker", "run", "--dsn", locked, "--log-level", "debug")
    assert answer.code == 3  # waiting would not help
    assert "password authentication failed" in answer.err
    assert "canary" not in (answer.out + answer.err).lower()
    store(dsn, JobRecord(id="j1", type="fail", payload=json.dumps({"reason": SECRET}).encode(), max_attempts=1))
    with Process("worker", "run", "--dsn", dsn, "--log-level", "debug", "--log-format", "json") as process:
        process.wait_for("JobDeadLettered")
    assert "canary" not in process.seen.lower()
    clean_of_canaries(taskharbor("inspect", "j1", "--dsn", dsn))
