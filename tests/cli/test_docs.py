"""The help texts and docs/cli.md: neither can lie, and both can be read."""

import click
import pytest

from taskharbor.cli import main
from taskharbor.cli.main import COMMANDS
from tests.cli.shell import taskharbor
from tests.docs import cli_page

ALL = {" ".join(path[1:]): command for path, command in cli_page.commands(main, ("taskharbor",))}
NAMED = (
    "worker run", "enqueue", "inspect", "list", "explain", "dlq list", "dlq requeue", "job retry", "job cancel",
    "queue list", "queue pause", "queue resume", "flow show", "stats", "migrate", "doctor", "conformance", "bench",
    "demo", "job show", "job attempts", "job amend", "job delete", "flow list", "flow cancel", "flow requeue",
    "task list", "dlq summary", "dlq show", "dlq edit", "dlq delete", "dlq export", "dlq operations list",
    "dlq operations show", "dlq operations stop", "dlq operations resume", "audit", "from celery", "from rq",
    "outbox sql",
)  # fmt: skip


def test_docs_cli_md_is_what_the_commands_say():
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.page(), "run `make docs`"


def test_every_command_that_the_design_names_is_there():
    assert set(NAMED) <= set(ALL)


def test_the_list_of_commands_says_what_the_commands_say():
    context = click.Context(main)
    for name, text in COMMANDS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert (command.help or "").partition("\n")[0].startswith(text.rstrip(".").partition(",")[0]), name


@pytest.mark.parametrize("name", ALL)
def test_help_has_examples_and_fits_80_columns(name: str):
    answer = taskharbor(*name.split(), "--help", environment={"COLUMNS": "80"})
    assert answer.code == 0
    assert "Example" in answer.out
    assert f"  taskharbor {name}" in answer.out or name == "completion"
    too_long = [line for line in answer.out.splitlines() if len(line) > 80]
    assert not too_long, too_long


@pytest.mark.parametrize("group", ["", "worker", "dlq", "job", "queue", "flow", "task"])
def test_a_group_without_a_command_shows_its_help(group: str):
    answer = taskharbor(*group.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == taskharbor(*group.split(), "--help").out


@pytest.mark.parametrize(
    "name",
    sorted(set(ALL) - {"completion", "demo", "worker run", "worker health", "from celery", "from rq", "outbox sql"}),
)
def test_every_command_takes_the_shared_options_and_tells_its_json(name: str):
    command = ALL[name]
    assert {"dsn", "driver", "app", "output"} <= {parameter.name for parameter in command.params}
    assert "JSON: " in (command.help or ""), name
