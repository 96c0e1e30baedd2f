"""`worker run` says what it works on, and warns of a worker that looks alive and can run nothing."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from taskharbor.cli.banner import Greeting
from taskharbor.drivers import JobRecord
from taskharbor.model.events import Observers
from taskharbor.worker.supervisor.messages import Abilities
from tests import lanes
from tests.cli.shell import PATIENCE, Process, environment, program, store, taskharbor

ABILITIES = Abilities(
    "sqlite:////srv/shop/jobs.db", ("default", "mail"), ("shop.mail", "shop.report"), ("default", "mail")
)
APP = """
from taskharbor import Harbor
harbor = Harbor({dsn!r})
empty = Harbor({dsn!r})
private = Harbor("memory://")

@harbor.task(queue="mail")
def known() -> None: ...

@private.task
def alone() -> None: ...
"""
MORE = """
from {app} import harbor

@harbor.task
def never_imported() -> None: ...
"""


@pytest.fixture
def app(tmp_path: Path, dsn: str) -> str:
    """An application of two modules, the second of which the first does not import."""
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP.format(dsn=dsn))
    (tmp_path / f"{name}_more.py").write_text(MORE.format(app=name))
    return name


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_banner_names_everything_and_fits(width: int):
    tasks = tuple(f"shop.jobs.number_{number:03}" for number in range(120))
    abilities = Abilities(ABILITIES.store, ABILITIES.queues, tasks, ABILITIES.used)
    lines = Greeting("shop.queue:harbor", None, 4, 16, Observers()).lines(abilities, width)
    text = " ".join(" ".join(lines).split())
    assert "store sqlite:////srv/shop/jobs.db app shop.queue:harbor queues default, mail processes 4, each with" in text
    assert "tasks 120: shop.jobs.number_000, shop.jobs.number_001," in text
    assert text.endswith("shop.jobs.number_049, and 70 more")
    if width >= 40:
        assert max(map(len, lines)) <= width


def warnings(app: str | None, queues: tuple[str, ...] | None = None, abilities: Abilities = ABILITIES) -> list[str]:
    return list(Greeting(app, queues, 1, 16, Observers()).warnings(abilities))


def test_a_worker_that_does_what_it_should_is_not_warned_of():
    assert warnings("shop:harbor") == []
    assert warnings("shop:harbor", ("mail",)) == []


def test_what_can_be_of_no_use_is_warned_of():
    assert "only echo, fail and sleep" in warnings(None)[0]
    (text,) = warnings("shop:harbor", None, Abilities(ABILITIES.store, ("default",), (), ()))
    assert "shop:harbor declares no tasks, so this worker can run nothing" in text
    assert "--import MODULE" in text
    (text,) = warnings("shop:harbor", ("mail", "nosuch"))
    assert "no task of shop:harbor uses the queue nosuch" in text
    assert "the tasks use the queues default, mail" in text
    (text,) = warnings("shop:harbor", None, Abilities("memory://", ("default",), ("a",), ("default",), private=True))
    assert "no other process can enqueue jobs" in text


@pytest.mark.left_to("full", except_for=lanes.Chosen("without --app this worker runs only echo, fail and sleep"))
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--dsn", "{dsn}"], "without --app this worker runs only echo, fail and sleep"),
        (["--app", "{app}:empty"], "declares no tasks, so this worker can run nothing"),
        (["--app", "{app}:private"], "no other process can enqueue jobs"),
        (["--app", "{app}:harbor", "--queues", "nosuch"], "uses the queue nosuch"),
    ],
)
def test_a_real_worker_says_so_once(app: str, dsn: str, tmp_path: Path, arguments: list[str], expected: str):
    words = [word.format(dsn=dsn, app=app) for word in arguments]
    more = [] if "private" in words[1] else ["--processes", "2"]
    with Process("worker", "run", "--no-spare", *words, *more, cwd=str(tmp_path)) as process:
        process.wait_for(expected)
        process.wait_for("event=SupervisorServing")
        process.wait_for("slot=1" if more else "slot=0")
    assert process.seen.count(expected) == 1
    assert process.seen.count("SupervisorServing") == 1


def test_an_unknown_type_is_reported_with_the_types_that_the_worker_knows(app: str, dsn: str, tmp_path: Path):
    store(dsn, JobRecord(id="j1", type=f"{app}_more.never_imported"))
    command = ["worker", "run", "--no-spare", "--app", f"{app}:harbor"]
    with Process(*command, cwd=str(tmp_path)) as process:
        process.wait_for("event=JobUnknown")
        process.wait_for(f'known={app}.known advice="is the module that declares it imported?')
    hint = taskharbor("explain", "j1", "--dsn", dsn).out
    assert f"no handler for '{app}_more.never_imported'" in hint
    assert "try: taskharbor worker run --app MODULE:NAME --queues default" in hint
    assert taskharbor("job", "retry", "j1", "--dsn", dsn).code == 0
    with Process(*command, "--import", f"{app}_more", cwd=str(tmp_path)) as process:
        process.wait_for("event=JobSucceeded")
    assert f"tasks={app}.known,{app}_more.never_imported" in process.seen


def test_on_a_terminal_it_is_a_banner(app: str, dsn: str, tmp_path: Path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "taskharbor", "worker", "run", "--no-spare", "--app", f"{app}:harbor"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=environment(COLUMNS="80", LINES="50")
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while b"process started" not in seen:
                seen += os.read(ours, 65536)
        finally:
            process.terminate()
            process.wait(PATIENCE)
            os.close(ours)
    lines = seen.decode().replace("\r\n", "\n").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.endswith(": worker run"))
    assert lines[begin + 1].split() == ["store", dsn]
    assert lines[begin + 2 : begin + 6] == [
        f"  app        {app}:harbor",
        "  queues     default, mail",
        "  processes  1, with 16 jobs at once",
        f"  tasks      1: {app}.known",
    ]


@pytest.mark.parametrize("command", ["enqueue --job x", "explain j1", "doctor", "worker run"])
@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("nosuch.jobs", "--import nosuch.jobs: there is no module 'nosuch' here"),
        (".jobs", "--import .jobs: expected the name of a module"),
        ("", "--import : expected the name of a module"),
        ("{app}_broken", "importing {app}_broken failed at {app}_broken.py:1: ZeroDivisionError"),
    ],
)
def test_an_import_that_is_wrong(
    app: str, dsn: str, tmp_path: Path, command: str, module: str, told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{app}_broken.py").write_text("1 / 0\n")
    store(dsn, JobRecord(id="j1", type="x"))
    options = ["--app", f"{app}:harbor", "--import", module.format(app=app)]
    # A worker configures logging and takes signals: not in the process of the tests.
    answer = program(*command.split(), *options) if command == "worker run" else taskharbor(*command.split(), *options)
    assert told.format(app=app) in answer.out + answer.err
    assert answer.code == (1 if command == "doctor" else 2)


def test_an_import_without_an_app():
    answer = taskharbor("enqueue", "--job", "x", "--import", "json")
    assert (answer.code, "--import needs --app" in answer.line) == (2, True)
