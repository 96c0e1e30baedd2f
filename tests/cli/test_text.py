"""What a terminal shows: stored text cannot command it, tables fit it, and a pipe gets neither colour nor cuts."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.cli.output import Column, fit, plain_lines, write_json
from taskharbor.drivers import JobRecord
from taskharbor.store.text import clean, first_line, format_duration, one_line, relative
from tests.cli.shell import PATIENCE, at_terminal, environment, kill, program, store, taskharbor

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
NASTY = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1bP1;2q\x1b\\\x9b2J\x1bc bell\x07 back\x08 \u202eright\u2028line \x00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://evil\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("a\x9b31mb\x9cc", "abc"),
        ("cut \x1b[", "cut "),
        ("cut \x1b", "cut "),
        ("a\rb\x7f\x08\u202e\u2066c", "abc"),
        ("one\r\n\ttwo", "one\n    two"),
        ("Grüße 🚢", "Grüße 🚢"),
    ],
)
def test_clean(text: str, expected: str):
    assert clean(text) == expected


def test_lines():
    assert one_line("a\n  b\tc") == "a b c"
    assert first_line("\n\x1b[0m\n  said\nmore") == "said"
    assert first_line("") == ""


@pytest.fixture
def nasty(dsn: str) -> str:
    """A store with names and errors that try to command a terminal (the contract keeps them out of ids and types)."""
    store(
        dsn,
        JobRecord(id="j1", type="bold \u202e name", metadata={"tenant": NASTY}, idempotency_key=NASTY),
        JobRecord(id="x" * 255, type="y" * 255, queue="z" * 255),
    )
    kill(dsn, "j1", reason=NASTY, error=NASTY + "\nline 2")
    return dsn


COMMANDS = ("list", "dlq list", "inspect j1", "explain j1", "queue list", "stats", "doctor")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_gets_no_escape_sequences(nasty: str, command: str):
    for extra in ([], ["--output", "json"]):
        answer = taskharbor(*command.split(), "--dsn", nasty, *extra)
        assert answer.code == 0
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", answer.out)


def test_json_keeps_what_is_stored(nasty: str):
    answer = taskharbor("inspect", "j1", "--dsn", nasty, "--output", "json")
    assert answer.json["idempotency_key"] == NASTY


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("command", ["list", "dlq list", "explain j1", "stats"])
def test_a_terminal_gets_colours_and_no_line_that_is_too_long(nasty: str, command: str, columns: int):
    store(nasty, *(JobRecord(id=f"01M7GVYTYH11VHCATNVJHA4SH{n}", type="demo.newsletter", queue="mail") for n in "AB"))
    code, seen = at_terminal(*command.split(), "--dsn", nasty, columns=columns)
    assert code == 0, seen
    assert ESCAPE.search(seen)
    left = ESCAPE.sub("", seen)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", left)
    if command == "list":
        assert left.count("01M7GVYTYH11VHCATNVJHA4SHA") == 1, "an id will be copied, so it is whole"
    for line in left.splitlines():
        assert len(line) <= columns or "x" * 100 in line, line


def test_no_color_is_honoured_and_rich_is_not_loaded_for_a_pipe(nasty: str):
    _, seen = at_terminal("list", "--dsn", nasty, columns=100, NO_COLOR="1")
    assert "\x1b[3" not in seen
    answer = program("list", "--dsn", nasty, PYTHONPROFILEIMPORTTIME="1")
    assert answer.code == 0
    loaded = set(re.findall(r"\| +([\w.]+)$", answer.err, re.MULTILINE))
    assert "taskharbor.cli.output" in loaded
    heavy = {"rich", "pytest", "psycopg", "redis", "taskharbor.worker", "taskharbor.conformance", "multiprocessing"}
    assert heavy.isdisjoint(loaded)


def test_a_terminal_that_cannot_show_a_character_gets_its_number(nasty: str):
    answer = program("list", "--help", PYTHONIOENCODING="ascii")
    assert answer.code == 0
    assert not answer.err
    store(nasty, JobRecord(id="j9", type="Grüße"))
    answer = program("list", "--type", "Grüße", "--dsn", nasty, PYTHONIOENCODING="ascii")
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize("command", ["list", "inspect j1 --output json", "--help"])
def test_a_reader_that_has_gone_away(dsn: str, command: str):
    store(dsn, JobRecord(id="j1", type="x"))
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "taskharbor", *command.split()],
            stdout=write,
            stderr=subprocess.PIPE,
            env=environment(TASKHARBOR_DSN=dsn),
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("command", ["inspect \udcff", "explain \udcff", "enqueue --job \udcff", "list --queue \udcff"])
def test_arguments_that_are_not_utf_8(dsn: str, command: str):
    store(dsn, JobRecord(id="j1", type="x"))
    answer = taskharbor(*command.split(), "--dsn", dsn)
    assert answer.code in (0, 1, 2)
    assert "bug in taskharbor" not in answer.err


def test_plain_columns_are_as_wide_as_they_have_to_be():
    columns = (Column("id"), Column("n", right=True), Column("note"))
    assert plain_lines(columns, [["a", "1", "x"], ["bbb", "200", ""]]) == ["ID     N  NOTE", "a      1  x", "bbb  200"]


def test_the_widest_column_is_cut_first_and_whole_ones_never():
    columns = (Column("id", whole=True), Column("type"), Column("n", right=True), Column("queue"))
    assert fit(columns, [26, 10, 3, 8], 80) == [26, 10, 3, 8]
    assert fit(columns, [26, 60, 3, 30], 81) == [26, 23, 3, 23]
    assert fit(columns, [100, 60, 3, 30], 80) == [100, 6, 3, 6]


def test_json_escapes_what_a_terminal_might_obey(capsys: pytest.CaptureFixture[str]):
    write_json({"text": "a\x9b2J\u202eb\u2028"}, one=True)
    out = capsys.readouterr().out
    assert out == '{"text":"a\\u009b2J\\u202eb\\u2028"}\n'
    assert json.loads(out) == {"text": "a\x9b2J\u202eb\u2028"}


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (0, "0s"),
        (0.04, "40ms"),
        (0.3, "0.3s"),
        (1.26, "1.3s"),
        (59, "59s"),
        (60, "1m"),
        (3600, "1h"),
        (3660, "1h 1m"),
        (90061, "1d 1h"),
    ],
)
def test_durations(span: float, text: str):
    assert format_duration(timedelta(seconds=span)) == text


def test_moments():
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert relative(now + timedelta(minutes=5), now) == "in 5m"
    assert relative(now - timedelta(hours=2), now) == "2h ago"
    assert relative(None, now) == ""


def test_a_name_that_does_not_fit_shows_its_end(dsn: str):
    store(dsn, JobRecord(id="j" * 26, type="shop.checkout.tasks.receipts.send_receipt", queue="mail"))
    code, seen = at_terminal("list", "--dsn", dsn, columns=80, NO_COLOR="1")
    assert code == 0
    assert re.search(r"…[a-z.]*\.send_receipt ", seen)
    assert "shop." not in seen


def test_a_mistake_is_broken_between_words_on_a_terminal_and_never_in_a_pipe(dsn: str):
    command = ("list", "--dsn", dsn, "--state", "bogus")
    code, seen = at_terminal(*command, columns=60)
    assert code == 2
    whole = program(*command).err
    assert len(whole.splitlines()) == 1
    assert seen.split() == whole.split()
    assert all(len(line) <= 60 for line in seen.splitlines())
    assert len(seen.splitlines()) > 1
