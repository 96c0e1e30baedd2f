"""Every command over jobs that tell all they know, on a store whose address holds a password: nothing of it is shown.

The jobs are `tests.secrecy.app`'s: payloads, results bound into steps, failure steps carried as marks, sealed payloads,
each quoted by the error that its handler raised. The commands are those that the program has: one that is added without
a line here is noticed.
"""

import base64
import json
import re
import traceback
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest

from taskharbor import Client, JobCancelled, JobDead
from taskharbor.flow import chain
from tests import lanes
from tests.cli.shell import Answer, Process, leaves, reserve, taskharbor
from tests.secrecy import app
from tests.servers.ports import free_port
from tests.servers.postgres import shared

PASSWORD = "canaryPassword9137"

LOOKING = {
    "list": ["--limit 1000", "--state dlq"],
    "inspect": ["{job}"],
    "explain": ["{job}"],
    "job show": ["{job}"],
    "job attempts": ["{job}"],
    "flow list": ["--newest"],
    "task list": ["--app tests.secrecy.app:harbor"],
    "dlq list": ["--limit 1000"],
    "dlq summary": ["", "--by reason", "--by error"],
    "dlq show": ["{job}"],
    "dlq export": [""],
    "dlq operations list": [""],
    "dlq operations show": ["01JQZ5X7T0A8"],
    "audit": [""],
    "queue list": [""],
    "flow show": ["{flow}", "{flow} --mermaid"],
    "stats": ["", "--watch --count 1"],
    "doctor": ["", "--app tests.secrecy.app:harbor"],
    "schedule list": ["", "--app tests.secrecy.app:harbor"],
    "schedule show": ["canaries"],
    "schedule preview": ["canaries"],
}
CHANGING = {
    "enqueue": [
        '--job echo --json {"to":"canary"}',
        '--job {"to":"canary"}',
        "--job quote --json {json}",
        "--app tests.secrecy.app:harbor --job quote --json {json}",
        "--app tests.secrecy.app:harbor --job charge --json {json}",
    ],
    "schedule add": [
        "canaries --job quote --every 5m --json {json}",
        "other --app tests.secrecy.app:harbor --job quote --every 5m --json {json}",
        "third --app tests.secrecy.app:harbor --job charge --every 5m --json {json}",
        '{"to":"canary"} --job echo --every 5m',
    ],
    "schedule edit": ["canaries --every 9m"],
    "schedule run": ["canaries"],
    "schedule pause": ["canaries"],
    "schedule resume": ["canaries"],
    "schedule reset": ["canaries"],
    "schedule delete": ["canaries --yes"],
    "queue pause": ["mail"],
    "queue resume": ["mail"],
    "job cancel": ["{job} --yes"],
    "job retry": ["{job}"],
    "dlq requeue": ["{job}", "--all --dry-run", "--all --yes"],
    "dlq edit": ["{job} --json {json}", "{job} --json {"],
    "dlq delete": ["{job} --yes", "--type quote --dry-run", "--type quote --yes"],
    "dlq operations stop": ["01JQZ5X7T0A8"],
    "dlq operations resume": ["01JQZ5X7T0A8"],
    "job amend": ["{job} --yes --priority 3 --payload-json {json}", "{job} --yes --payload-json {"],
    "flow requeue": ["{flow}"],
    "flow cancel": ["{flow} --yes"],
    "job delete": ["{job} --yes"],
    "migrate": ["", "--sql"],
    "bench": ["--jobs 1"],
}
APART = {
    "worker run": "watched below",
    "worker health": "takes no address, and shows what the worker's port shows",
    "conformance": "runs on a store of its own; a wrong address is in tests/cli/test_secrets.py",
    "dashboard": "tests/dashboard",
    "demo": "takes no address and no payload",
    "completion": "takes no address and no payload",
    "outbox sql": "connects to nothing; a wrong address is in tests/outbox/test_sql.py",
    "from celery": "uses no store; tests/moving looks for secrets of the settings",
    "from rq": "uses no store; reads source code only",
}


def test_every_command_is_covered():
    assert {*LOOKING, *CHANGING, *APART} == set(leaves())


@dataclass
class World:
    dsn: str
    jobs: list[str]  # one of each type in each state; lists show them all
    flow: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return _filled(f"sqlite:///{tmp_path_factory.mktemp('secrets')}/jobs.db")


@pytest.fixture(scope="module")
def behind_a_password() -> World:
    """On a real server that asks for no password, so that the one in the address does no harm."""
    server = shared()
    address = server.address(server.database()).replace("@", f":{PASSWORD}@")
    assert PASSWORD in address
    return _filled(address)


def _filled(dsn: str) -> World:
    app.fill(dsn)
    found = taskharbor("list", "--limit", "1000", "--output", "json", "--dsn", dsn).json["jobs"]
    each = {(job["type"], job["state"]): job["id"] for job in found}
    return World(dsn, list(each.values()), next(job["flow_id"] for job in found if job["type"] == "charge"))


_OWN_WORDS = re.compile(r'--canary\b|"canary":')  # the option, and where the audit keeps it


def clean(answer: Answer, command: str) -> None:
    for stream in (_OWN_WORDS.sub("", answer.out), _OWN_WORDS.sub("", answer.err)):
        at = stream.lower().find(app.CANARY)
        assert at < 0, f"{command}: {stream[max(0, at - 200) : at + 50]}"
        assert not enciphered(stream), f"{command}: a canary in base64"
        assert "Traceback" not in stream, command


def enciphered(text: str) -> bool:
    """Whether something that looks like base64 holds a canary, wherever in it that begins."""
    for word in re.findall(r"[A-Za-z0-9+/]{16,}", text):
        for start in range(4):
            whole = word[start : start + (len(word) - start) // 4 * 4]
            if app.CANARY.encode() in base64.b64decode(whole).lower():
                return True
    return False


def ask(world: World, command: str, arguments: str, job: str) -> None:
    filled = arguments.replace("{job}", job).replace("{flow}", world.flow)
    words = [word.replace("{json}", json.dumps({"argument": app.ARGUMENT})) for word in filled.split()]
    outputs: tuple[list[str], ...] = ([], ["--output", "json"])
    for output in outputs:
        answer = taskharbor(*command.split(), *words, "--dsn", world.dsn, *output)
        assert answer.code in (0, 1, 2), (command, answer.err)
        clean(answer, f"{command} {arguments}")


def test_no_reading_command_shows_a_payload(world: World):
    for command, ways in LOOKING.items():
        for arguments in ways:
            for job in lanes.few(world.jobs, world.jobs[::3]) if "{job}" in arguments else world.jobs[:1]:
                ask(world, command, arguments, job)
    errors = taskharbor("dlq", "list", "--limit", "1000", "--output", "json", "--dsn", world.dsn).json["jobs"]
    assert len(errors) > 25
    assert all("•••" in job["last_error"] for job in errors if job["type"] not in ("unwritable",)), "nothing was hidden"


def test_no_command_shows_the_token_of_a_lease(world: World):
    """Who knows it may settle the job in its worker's place."""
    (held,) = reserve(world.dsn, "nobody")
    for command, ways in LOOKING.items():
        for arguments in ways:
            words = arguments.replace("{job}", held.job.id).replace("{flow}", world.flow).split()
            for output in ("table", "json"):
                answer = taskharbor(*command.split(), *words, "--dsn", world.dsn, "--output", output)
                assert held.lease.token not in answer.out + answer.err, command


def test_no_error_of_a_handle_shows_the_arguments(world: World):
    """A dead job's error is raised where its result is asked for, and ends up in the log of the caller."""
    told = []
    with Client(world.dsn) as client:
        for job in world.jobs:
            try:
                client.handle(job).result(timeout=0.1)
            except JobDead as error:
                texts = (str(error), repr(error), repr(vars(error)), *traceback.format_exception(error))
                told.append("".join(texts).lower())
            except (TimeoutError, JobCancelled):
                pass
    assert len(told) > 4
    assert not [text for text in told if app.CANARY in text]


def test_values_are_shown_on_request(world: World):
    """Else the test above would be green because nothing is there."""
    seen = "".join(taskharbor("inspect", job, "--show-payload", "--dsn", world.dsn).out for job in world.jobs)
    for word in ("canary-ada", "canary-card", "canary-8642", "taskharbor.on_failure"):
        assert word in seen
    assert enciphered(seen)  # the payload of a failure step is written so


def test_no_changing_command_shows_a_payload(behind_a_password: World):
    world = behind_a_password
    looking = {} if lanes.run() == "test" else LOOKING  # on SQLite all of them, above
    for command, ways in {**looking, **CHANGING}.items():
        for arguments in ways:
            ask(world, command, arguments, world.jobs[-1])


def answer(port: int, path: str) -> str:
    """What a port of the worker answers, whether or not it is well."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("format", ["text", "json"])
def test_no_log_line_of_a_worker_shows_a_payload(tmp_path: Path, format: str):
    """All that a supervisor and its worker processes write or answer, at the lowest level, while every task fails."""
    server = shared()
    dsn = server.address(server.database()).replace("@", f":{PASSWORD}@")
    app.harbor._store.use(dsn)
    with app.harbor:
        for how in app.HOWS:
            app.quote.enqueue(app.ARGUMENT, how)
        app.charge.enqueue(app.RESULT, "fail")
        chain(app.fetch.s(), app.charge_all.s(how="fail")).enqueue()  # an object where a list is expected
    command = ["worker", "run", "--app", "tests.secrecy.app:harbor", "--dsn", dsn, "--log-level", "debug"]
    health, metrics = free_port(), free_port()
    ports = ["--health-port", str(health), "--metrics-port", str(metrics), "--health-file", f"{tmp_path}/health"]
    with Process(*command, "--log-format", format, "--no-spare", *ports) as process:
        for word in ("JobDeadLettered", "JobCancelled", "JobSucceeded", "JobReserved", "SupervisorServing"):
            process.wait_for(word)
        answers = [answer(health, "/ready"), answer(health, "/live"), answer(metrics, "/metrics")]
        answers.append((tmp_path / "health").read_text())
    assert "taskharbor_jobs_dead_lettered_total" in answers[2]
    assert app.CANARY not in "".join((process.seen, *answers)).lower()
