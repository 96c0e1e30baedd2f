"""The files to deploy with: each is checked by its own rules, and every command in them is run as a plain process."""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from taskharbor.model import events, process_events
from taskharbor.worker import heart
from taskharbor.worker.supervisor import probes, process, process_end, roles, supervisor
from tests.servers import postgres
from tests.supervisor.worker_run import PATIENCE, ROOT, Yard, eventually

INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
RUNTIME = "/run/taskharbor"
STOPS_WITHIN = 30 + supervisor.STOP_PROMISE_S  # the default grace period, hurry, kill, give back


class Step(NamedTuple):
    """One instruction of the Dockerfile."""

    name: str
    value: str


def dockerfile() -> list[Step]:
    text = (ROOT / "Dockerfile").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [Step(*line.split(maxsplit=1)) for line in lines.splitlines() if line.strip()]


def last(name: str) -> str:
    return next(step.value for step in reversed(dockerfile()) if step.name == name)


def compose() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(ROOT / "compose.yaml")
    return found


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # replaced for the test
    parser.read(ROOT / "deploy" / "taskharbor-worker.service")
    return parser


# The files by their own rules


def test_the_dockerfile_is_well_made() -> None:
    steps = dockerfile()
    assert {step.name for step in steps} <= INSTRUCTIONS  # ADD, MAINTAINER, a typing mistake
    images = [step.value.split()[0] for step in steps if step.name == "FROM"]
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", image) for image in images), "an image without its version"
    stage = steps[max(at for at, step in enumerate(steps) if step.name == "FROM") :]
    (user,) = [step.value for step in stage if step.name == "USER"]
    assert any(f"--uid {user} " in step.value for step in stage if step.name == "RUN"), "a user that the image makes"
    last_run = max(at for at, step in enumerate(stage) if step.name == "RUN")
    assert last_run < next(at for at, step in enumerate(stage) if step.name == "USER"), "something is run after USER"
    for step in steps:
        if step.name in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(step.value), list), "a shell in between would swallow signals"
        if step.name == "WORKDIR":
            assert step.value.startswith("/")
        if step.name == "RUN" and re.search(r"\bpip (install|wheel)\b", step.value):
            assert "--no-cache-dir" in step.value
    assert last("STOPSIGNAL") == "SIGTERM"
    assert not re.search(r"(?i)password|secret|token|://", "".join(step.value for step in steps))


def test_the_linter_of_dockerfiles_finds_nothing(tmp_path: Path) -> None:
    def lint(path: Path) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("hadolint")), "--no-color", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = lint(ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
    wrong = tmp_path / "Dockerfile"
    wrong.write_text((ROOT / "Dockerfile").read_text().replace("python:3.13-slim", "python"))
    assert "DL3006" in lint(wrong).stdout  # an image without its version


def test_what_the_dockerfile_copies_is_there_and_nothing_else_is_sent() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    for step in dockerfile():
        if step.name == "COPY":
            *sources, _ = step.value.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored
    assert ignored[1] == "*"


def test_the_compose_file_keeps_the_schema_of_the_specification(tmp_path: Path) -> None:
    def check(path: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = check(ROOT / "compose.yaml")
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((ROOT / "compose.yaml").read_text().replace("stop_grace_period:", "stop_graceful:"))
    assert check(wrong).returncode == 1


def test_stop_timeouts_are_long_enough_and_names_exist() -> None:
    service = compose()["services"]["worker"]
    assert int(service["stop_grace_period"].removesuffix("s")) > STOPS_WITHIN
    assert int(unit()["Service"]["TimeoutStopSec"]) > STOPS_WITHIN
    for name, each in compose()["services"].items():
        for needed in each.get("depends_on", {}):
            assert needed in compose()["services"], f"{name} depends on {needed}"
        for volume in each.get("volumes", []):
            assert volume.partition(":")[0] in compose()["volumes"]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "taskharbor-worker.service").read_text()
    assert {*unit().sections()} == {"Unit", "Service", "Install"}
    program = unit()["Service"]["ExecStart"].split()[0]
    assert Path(program).is_absolute()
    if shutil.which("systemd-analyze"):
        copy = tmp_path / "taskharbor-worker.service"
        copy.write_text(text.replace(program, "/bin/true"))
        done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
        assert done.stdout + done.stderr == ""


# Their commands, run


class Deployed:
    """Runs the commands of the files as plain processes, on a real store."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.address = yard.dsn
        (yard.folder / "tasks.py").write_text("from tests.supervisor.app import harbor\n")

    def command(self, arguments: list[str]) -> list[str]:
        """The same command, with our program and our folder in the place of the container's."""
        program, *rest = arguments
        assert Path(program).name == "taskharbor", program
        return [sys.executable, "-m", "taskharbor", *(each.replace(RUNTIME, str(self.yard.folder)) for each in rest)]

    def start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        with open(self.yard.folder / "log", "ab") as log:
            program = subprocess.Popen(
                self.command(arguments),
                cwd=self.yard.folder,
                env={
                    **os.environ,
                    "TASKHARBOR_DSN": self.address,
                    "FOLDER": str(self.yard.folder),
                    "PYTHONPATH": str(ROOT),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.yard.programs.append(program)
        return program

    def run(self, arguments: list[str]) -> int:
        return self.start(arguments).wait(PATIENCE)


@pytest.fixture
def deployed(tmp_path: Path) -> Any:
    from tests.supervisor.worker_run import yard

    server = postgres.shared()
    with yard(server.address(server.store()), tmp_path) as made:
        yield Deployed(made)


def healthcheck() -> list[str]:
    words: list[str] = json.loads(last("HEALTHCHECK").partition(" CMD ")[2])
    return words


def serve_and_end(deployed: Deployed, arguments: list[str], type: str) -> None:
    """A worker starts, is healthy by the image's own check, runs a job, and ends with 0."""
    yard = deployed.yard
    assert deployed.run(healthcheck()) == 1  # nothing runs yet
    program = deployed.start(arguments)
    [job] = yard.enqueue(type)
    yard.done(job)
    eventually(lambda: deployed.run(healthcheck()) == 0, "it is healthy")
    program.terminate()
    assert yard.ended(program) == 0


@pytest.mark.left_to("full")
def test_the_commands_of_the_image_work(deployed: Deployed) -> None:
    entry = json.loads(last("ENTRYPOINT"))
    serve_and_end(deployed, [*entry, *json.loads(last("CMD"))], "echo")


@pytest.mark.left_to("full")
def test_the_commands_of_the_compose_file_work(deployed: Deployed) -> None:
    services = compose()["services"]
    entry = json.loads(last("ENTRYPOINT"))
    ready = services["postgres"]["healthcheck"]["test"]
    assert ready[0] == "CMD"
    where = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.shared().port)}
    found = [postgres.binary(ready[1]), *ready[2:]]
    assert subprocess.run(found, env={**os.environ, **where}, capture_output=True, check=False).returncode == 0
    assert deployed.run([*entry, *services["migrate"]["command"]]) == 0
    serve_and_end(deployed, [*entry, *services["worker"]["command"]], "echo")


def test_the_command_of_the_unit_works(deployed: Deployed) -> None:
    serve_and_end(deployed, shlex.split(unit()["Service"]["ExecStart"]), "note")


# The page about it


def test_times_and_responses_on_the_page_are_right() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    shown = json.loads(page.partition("The JSON is the same for all:\n\n```text\n")[2].partition("```")[0])
    assert shown.keys() == set(probes.HealthReport.__struct_fields__)
    assert shown["processes"][0].keys() == set(probes.ProcessReport.__struct_fields__)
    steps = supervisor.SETTLE_S + supervisor.HURRY_S + supervisor.RETURN_S + supervisor.CLOSE_S
    assert steps + 1 <= supervisor.STOP_PROMISE_S < 15  # exiting takes a moment, too
    assert "at most `--shutdown-timeout` and 15 s more" in page
    assert f"or {supervisor.HURRY_S:g} s after the hurry" in page
    assert f"kills itself {process_end.SETTLE_S:g} s later" in page
    assert f"has {process.EXIT_S:g} s to exit" in page
    assert f"{signal.SIGRTMIN.value} to {signal.SIGRTMAX.value} s after the supervisor" in page
    assert f"for {supervisor.SILENT_AFTER_S:g} s, the log says so" in page
    assert f"that is {heart.OVERDUE_S:g} s past its timeout" in page
    assert f"before the next start: {roles.FIRST_PAUSE_S:g}, 1, 2 … {roles.MAX_PAUSE_S:g} s." in page
    assert f"A process that has served for {roles.STEADY_S:g} s begins anew with" in page
    for event in re.findall(r"event=(\w+)", page):
        assert hasattr(events, event) or hasattr(process_events, event), event
