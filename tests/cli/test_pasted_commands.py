"""Every command that we print can be pasted into a shell: a name from the store stays a name, whatever is in it."""

import os
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from taskharbor.drivers import Driver, JobRecord
from taskharbor.store.text import command
from tests.cli.shell import kill, store, taskharbor, within

HOSTILE = (
    "mail; touch PWNED; #", "$(touch PWNED)", "`touch PWNED`", "-x", "--all", "it's \"quoted\"", "a  b",
    "a&&b|c>PWNED", "back\\slash", "*", "~root", "!!", "Grüße 🚢",
)  # fmt: skip
RAW = ("\x1b]0;OWNED\x07", "one\r\n0 dead jobs", "tab\there", "\x9b2J", "it's\x1b[31m'; touch PWNED; '", "\u202egnp")


class Shell:
    """A folder in which `taskharbor` writes down the words that it was given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "taskharbor"
        program.parent.mkdir()
        program.write_text('#!/bin/sh\nprintf "%s\\0" "$@" > words\n')
        program.chmod(0o755)

    def words(self, line: str) -> list[str]:
        """What `taskharbor` receives from a line that a person pastes."""
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, (line, done.stderr)
        made = {each.name for each in self.folder.iterdir() if not each.name.startswith("jobs.db")}
        assert made == {"bin", "words"}, line
        return (self.folder / "words").read_bytes().decode().split("\0")[:-1]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    assert shutil.which("bash"), "a shell to paste into"
    return Shell(tmp_path)


def printed(text: str) -> list[str]:
    """The commands in what was printed."""
    assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text) is None, repr(text)
    found = re.findall(r"(?:try|run|help|more jobs|made it[^:]*|for .*): (taskharbor .+)", text)
    return [each for each in found if "MODULE" not in each or "--queues" in each]


@pytest.mark.parametrize("name", [*HOSTILE, *RAW])
def test_a_shell_reads_a_command_as_we_mean_it(shell: Shell, name: str):
    line = command("dlq edit", name, options=["--json", name])
    assert printed(f"try: {line}") == [line]
    said = shell.words(line)
    assert said[:2] == ["dlq", "edit"]
    assert said[2:] in ([name, "--json", name], ["--json", name, "--", name])


def test_what_is_said_of_a_job_with_hostile_names(shell: Shell, dsn: str):
    """Each id, queue and type, in every state that suggests a command."""
    for number, name in enumerate(HOSTILE):
        store(
            dsn,
            JobRecord(id=name, type=name, queue=name, max_attempts=1),
            JobRecord(id=f"after-{number}", type=name, queue=name, depends_on=(name,), flow_id=f"{name}-flow"),
        )

    async def pause(driver: Driver, now: datetime) -> None:
        for name in HOSTILE:
            await driver.pause(name)

    within(dsn, pause)
    seen = set()
    for name in HOSTILE:
        for asked in (
            ["explain", "--dsn", dsn, "--", name],
            ["explain", "--dsn", dsn, "--", f"after-{HOSTILE.index(name)}"],
        ):
            for line in printed(taskharbor(*asked).out):
                words = shell.words(line)
                assert name in words, line
                assert taskharbor(*words[:2], "--help", *words[2:]).code == 0
                seen.add(" ".join(words[:2]))
    within(dsn, resume)
    for name in HOSTILE:
        kill(dsn, name, queue=name)
        for asked in (["explain"], ["dlq", "show"]):
            for line in printed(taskharbor(*asked, "--dsn", dsn, "--", name).out):
                words = shell.words(line)
                assert name in words or "--fingerprint" in words, line
                assert taskharbor(*words[:2], "--help", *words[2:]).code == 0
                seen.add(" ".join(words[:2]))
        assert taskharbor("dlq", "edit", "--dsn", dsn, "--json", '{"a": 1}', "--", name).out.splitlines()[-1] == (
            f"try: {command('dlq requeue', name)}"
        )
    for line in printed(taskharbor("flow", "show", "--dsn", dsn, "--", "-x-flow").out):
        assert {"-x-flow", "-x"} & set(shell.words(line)), line
    for by in ("fingerprint", "type", "queue"):
        for line in printed(taskharbor("dlq", "summary", "--dsn", dsn, "--by", by).err):
            assert set(HOSTILE) & set(shell.words(line)) or "--fingerprint" in line, line
    assert seen >= {"queue resume", "worker run", "dlq requeue", "dlq edit"}
    for asked in (["stats"], ["doctor"], ["list"], ["dlq", "list"], ["queue", "list"]):
        answer = taskharbor(*asked, "--dsn", dsn)
        for line in printed(answer.out + answer.err):
            shell.words(line)


async def resume(driver: Driver, now: datetime) -> None:
    for name in HOSTILE:
        await driver.resume(name)


@pytest.mark.parametrize("id", RAW)
def test_ids_that_another_program_wrote_do_not_reach_the_terminal(shell: Shell, dsn: str, id: str):
    """The contract keeps control characters out of ids; a foreign program may write them."""
    store(dsn, JobRecord(id="plain", type="t", max_attempts=1), JobRecord(id="behind", type="t", depends_on=("plain",)))
    kill(dsn, "plain")
    with closing(sqlite3.connect(dsn.removeprefix("sqlite:///"))) as database:
        for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            for column in [row[1] for row in database.execute(f"pragma table_info({table})") if row[2] == "TEXT"]:
                database.execute(f"update {table} set {column} = ? where {column} = 'plain'", (id,))
        database.commit()
    for asked in (
        ["dlq", "summary"],
        ["explain", id],
        ["explain", "behind"],
        ["dlq", "show", id],
        ["job", "attempts", id],
    ):
        answer = taskharbor(*asked, "--dsn", dsn)
        for line in printed(answer.out + answer.err):
            assert {id, "--queues", "--fingerprint"} & set(shell.words(line)), line
