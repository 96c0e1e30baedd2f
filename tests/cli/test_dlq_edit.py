"""`taskharbor dlq edit`: the payload in an editor, checked, never over what another operator did, and never lost."""

import json
import os
import re
import stat
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import JobRecord, State
from taskharbor.model.amendment import Amend
from tests.cli.dead_jobs import Dead, audit_of, bury, die_again, look
from tests.cli.shell import Answer, at_terminal, store, taskharbor, within

SECRET = "secret4711"
JOB = Dead("d1", payload={"to": SECRET, "n": 1})


@pytest.fixture
def dead(dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A dead job, and a place for temporary files that the test can look into."""
    bury(dsn, JOB)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return dsn


def editor(tmp_path: Path, script: str) -> dict[str, str]:
    """An editor that does what a script says; $1 is the file."""
    path = tmp_path / "editor.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return {"EDITOR": f"{path} --wait", "VISUAL": ""}


def edit(dsn: str, *arguments: str, environment: dict[str, str] | None = None, stdin: str = "") -> Answer:
    none = {"EDITOR": "", "VISUAL": ""}
    return taskharbor(
        "dlq", "edit", "d1", *arguments, "--dsn", dsn, environment={**none, **(environment or {})}, stdin=stdin
    )


def left(tmp_path: Path) -> list[Path]:
    """The files that are left of what was edited."""
    return [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()]


def test_the_editor_gets_the_payload_in_a_private_file_that_is_removed(dead: str, tmp_path: Path):
    script = f'ls -l "$2" > {tmp_path}/seen; cat "$2" >> {tmp_path}/seen; sed -i s/{SECRET}/ada/ "$2"'
    answer = edit(dead, environment=editor(tmp_path, script))
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1] == "try: taskharbor dlq requeue d1"
    seen = (tmp_path / "seen").read_text()
    assert seen.startswith("-rw-------")
    assert f'{{\n  "to": "{SECRET}",\n  "n": 1\n}}\n' in seen
    assert left(tmp_path) == []
    assert os.listdir(tmp_path / "tmp") == []
    job = look(dead, "d1")
    assert (job.state, job.job.payload, job.job.edits) == (State.DLQ, b'{"to":"ada","n":1}', 1)
    assert SECRET not in answer.out + answer.err
    assert [entry.action for entry in audit_of(dead)] == ["amend", "reveal"]


def test_json_replaces_the_whole_payload_and_brings_the_job_back(dead: str):
    answer = edit(dead, "--json", '{"to": "ada"}', "--requeue", "--output", "json")
    assert answer.json == {"id": "d1", "requeued": True, "payload_bytes_before": 28, "payload_bytes": 12}
    job = look(dead, "d1")
    assert (job.state, job.job.payload, job.job.attempts) == (State.READY, b'{"to":"ada"}', 0)
    assert [(entry.action, entry.done) for entry in audit_of(dead)] == [("requeue", 1), ("amend", 1)]
    bury(dead, Dead("d2", queue="other"))
    assert taskharbor("dlq", "edit", "d2", "--json", "-", "--dsn", dead, stdin='{"to": "eve"}').code == 0
    assert look(dead, "d2").job.payload == b'{"to":"eve"}'


def faster(dsn: str) -> None:
    """Another operator amends the job."""

    async def change(driver: Any, now: datetime) -> None:
        info = await driver.inspect("d1", now)
        await driver.amend([Amend(id="d1", deliveries=info.job.deliveries, edits=info.job.edits, priority=9)], now)

    within(dsn, change)


def requeued(dsn: str) -> None:
    """Another operator brings the job back, and it waits."""
    within(dsn, lambda driver, now: driver.requeue(["d1"], now))


def died_again(dsn: str) -> None:
    requeued(dsn)
    die_again(dsn, JOB)


@pytest.mark.parametrize("other", [faster, requeued, died_again])
def test_a_job_that_changed_meanwhile_is_left_alone_and_the_text_is_kept(
    dead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: Any
):
    from taskharbor.cli.asking import Draft

    def change(draft: Draft) -> bytes:
        other(dead)
        Path(draft.path).write_text('{"to": "ada"}')
        return b'{"to": "ada"}'

    monkeypatch.setattr(Draft, "edit", change)
    answer = edit(dead, "--requeue")
    assert answer.code == 1
    assert "was changed since its payload was read" in answer.err
    assert look(dead, "d1").job.payload == JOB.record().payload
    (kept,) = left(tmp_path)
    assert f"your text is kept in {kept}" in answer.err
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == ('{"to": "ada"}', 0o600)
    found = re.search(r"try: taskharbor (.*) < (.*)", answer.err)
    assert found is not None
    assert (found[1], found[2]) == ("dlq edit d1 --json -", str(kept))


def test_a_text_that_is_not_json_is_kept_and_not_repeated(dead: str, tmp_path: Path):
    answer = edit(dead, environment=editor(tmp_path, f'echo "{{{SECRET}" > "$2"'))
    assert answer.code == 2
    assert "dlq edit: expected a JSON object, got invalid JSON" in answer.err
    assert SECRET not in answer.out + answer.err
    assert len(left(tmp_path)) == 1
    assert look(dead, "d1").job.edits == 0


def test_a_person_may_open_the_editor_again(dead: str, tmp_path: Path):
    script = f'if [ -e {tmp_path}/once ]; then echo "{{}}" > "$2"; else touch {tmp_path}/once; echo oops > "$2"; fi'
    code, seen = at_terminal("dlq", "edit", "d1", "--dsn", dead, columns=80, answer=b"y\n", **editor(tmp_path, script))
    assert code == 0, seen
    assert "Open the editor again?" in seen
    assert look(dead, "d1").job.payload == b"{}"
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("environment", "told", "code"),
    [
        ({"EDITOR": "true"}, "is as it was; nothing was changed", 1),
        ({"EDITOR": "false"}, "the editor 'false' ended with code 1", 1),
        ({"EDITOR": "no-such-editor"}, "$EDITOR: cannot start 'no-such-editor'", 2),
        ({"EDITOR": "'"}, "$EDITOR: expected a command such as vim", 2),
        ({}, "expected $EDITOR, or the new payload with --json", 2),
    ],
)
def test_nothing_is_edited(dead: str, tmp_path: Path, environment: dict[str, str], told: str, code: int):
    answer = edit(dead, "--requeue", environment=environment)
    assert (answer.code, told in answer.line) == (code, True), answer.err
    assert (look(dead, "d1").state, look(dead, "d1").job.edits) == (State.DLQ, 0)
    assert left(tmp_path) == []


def test_only_an_object_and_only_a_dead_job(dead: str):
    for wrong, told in (("[1]", "got a list"), ("3", "got a number"), ('"x"', "got a text"), ("null", "got null")):
        answer = edit(dead, "--json", wrong)
        assert (answer.code, told in answer.line) == (2, True), answer.err
    store(dead, JobRecord(id="r1", type="x"))
    answer = taskharbor("dlq", "edit", "r1", "--json", "{}", "--dsn", dead)
    assert (answer.code, "job r1 is ready, not dead" in answer.line) == (1, True)


def test_numbers_stay_as_they_are_written(dead: str, tmp_path: Path):
    async def write(driver: Any, now: datetime) -> None:
        info = await driver.inspect("d1", now)
        payload = b'{"to":"x","n":1.10,"big":12345678901234567890123}'
        await driver.amend([Amend(id="d1", deliveries=info.job.deliveries, edits=0, payload=payload)], now)

    within(dead, write)
    assert edit(dead, environment=editor(tmp_path, 'sed -i s/\\"x\\"/\\"ada\\"/ "$2"')).code == 0
    assert look(dead, "d1").job.payload == b'{"to":"ada","n":1.10,"big":12345678901234567890123}'


APP = """
import base64
from taskharbor import Harbor
from taskharbor.model.codec import JsonCodec

class Sealed:
    def encode(self, value): return base64.b85encode(JsonCodec().encode(value))
    def decode(self, data, type=object): return JsonCodec().decode(base64.b85decode(data))

harbor = Harbor({dsn!r})
sealed = Harbor({dsn!r}, codec=Sealed())

@harbor.task(name="mail.send")
def send(to: str, n: int = 1) -> None: ...

@sealed.task(name="sealed")
def sealed_mail(to: str) -> None: ...
"""


@pytest.fixture
def app(dead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"edited_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP.format(dsn=dead))
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_with_an_app_the_payload_must_fit_the_task(dead: str, app: str):
    for wrong, told in (
        ({"n": 2}, "parameter 'to' is missing"),
        ({"to": SECRET, "n": "x"}, "expected int"),
        ({"to": "a", "cc": SECRET}, "cc"),
    ):
        answer = edit(dead, "--json", json.dumps(wrong), "--app", f"{app}:harbor")
        assert (answer.code, told in answer.line) == (2, True), answer.err
        assert SECRET not in answer.line
    assert look(dead, "d1").job.edits == 0
    assert edit(dead, "--json", '{"to": "ada"}', "--app", f"{app}:harbor").code == 0
    assert look(dead, "d1").job.payload == b'{"to":"ada"}'
    assert "has no task 'mail.send'; omit --app" in edit(dead, "--json", "{}", "--app", f"{app}:sealed").line


def test_a_codec_of_the_application_reads_and_writes(dead: str, app: str, tmp_path: Path):
    import base64

    sealed = base64.b85encode(b'{"to":"eve"}')
    job = JobRecord(id="d1", type="sealed", queue="mail", payload=sealed)
    within(dead, lambda driver, now: driver.delete(["d1"]))
    store(dead, job)
    die_again(dead, Dead("d1", type="sealed"))
    assert "not a JSON object; pass --app" in edit(dead, environment=editor(tmp_path, "")).line
    answer = edit(dead, "--app", f"{app}:sealed", environment=editor(tmp_path, 'sed -i s/eve/ada/ "$2"'))
    assert answer.code == 0, answer.err
    assert base64.b85decode(look(dead, "d1").job.payload) == b'{"to":"ada"}'
