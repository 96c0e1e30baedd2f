"""docs/cli.md, made from the commands themselves: `python -m tests.docs.cli_page` writes it, a test compares.

After changing a command, run `make docs`, which writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from taskharbor.cli import main
from taskharbor.cli.target import options as shared_options

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

OPENING = """# The command line

<!-- Made from the commands by `make docs`. Change their help texts, not this page. -->

`taskharbor` and `python -m taskharbor` are the same program. `taskharbor COMMAND --help` shows what this page shows.

## The store

Every command that works on a store takes the options below, before or after its name. Which store it is: `--dsn`,
else `$TASKHARBOR_DSN`, else the one that the app of `--app` was made with, else `sqlite:///taskharbor.db` here.
A `$TASKHARBOR_DSN` that is set and empty, as a missing secret leaves it, is an error.
The current folder is importable for `--app`. Commands that only look change nothing: they create no file and no schema,
and say `taskharbor migrate` where there is none. `enqueue` tells on stderr when it had to make a store.
`memory://` lives inside one process: a command that would need to look into another one refuses it.

{shared}

## Output

On a terminal: tables that fit its width, with colours unless `NO_COLOR` is set. In a pipe: plain columns, no colour,
nothing cut, one row a line. With `--output json`: one JSON document, whose keys are listed with each command. Keys may
be added, none is renamed or removed within a major version. Moments are ISO 8601 in UTC, durations seconds. Notes for a
person go to stderr.

Payloads, results and the marks that a workflow leaves in metadata are not shown unless `inspect --show-payload` asks
for them. Where an error quotes a value that the job was given, dots stand in its place. Passwords in a DSN are never
shown. Escape sequences in stored text are taken out.

Commands that cannot be taken back ask first; `--yes` answers. Without a terminal and without `--yes` they refuse.

## Exit codes

| code | meaning |
| --- | --- |
| 0 | done; also a worker that was ended by TERM or INT |
| 1 | refused or not found: no such job, a job was refused, a case or a check failed; the output cannot be written |
| 2 | the command line is wrong: an option, the DSN, the app, or invalid JSON |
| 3 | the store cannot be used: not there, not reachable, its schema does not fit |
| 70 | a mistake in taskharbor itself; `TASKHARBOR_TRACEBACK=1` shows where |
| 130 | interrupted by Ctrl-C |

An error is one line on stderr, and nothing on stdout.

## Completion

`taskharbor completion bash`, `zsh` or `fish` prints the script; `taskharbor completion --help` says where it goes.

## Commands
"""


def page() -> str:
    """The text of docs/cli.md."""
    parts = [OPENING.format(shared="\n".join(option_rows(shared_parameters(), with_shared=True)))]
    table = ["| command | |", "| --- | --- |"]
    sections: list[str] = []
    for path, command in commands(main, ("taskharbor",)):
        name = " ".join(path)
        anchor = name.replace(" ", "-")
        table.append(f"| [`{name}`](#{anchor}) | {first_sentence(command)} |")
        sections += ["", *section(name, command)]
    return "\n".join([*parts, *table, *sections]) + "\n"


def commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands below a group, in the order of its help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def section(name: str, command: click.Command) -> Iterator[str]:
    """One command: what it does, how it is called, its examples, its options."""
    yield f"### {name}"
    yield ""
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    for paragraph in (command.help or "").strip().split("\n\n"):
        lines = [line.rstrip() for line in paragraph.strip("\n").splitlines()]
        if lines and lines[0].strip() == "\b":
            lines = lines[1:]
        if lines and re.match(r"Examples?:$", lines[0].strip()):
            yield from ("```sh", *(line.strip() for line in lines[1:]), "```", "")
        else:
            yield from (*(escape(line.strip()) for line in lines if line.strip()), "")
    yield f"`{name} {usage}`"
    yield ""
    rows = list(option_rows(command.params, with_shared=False))
    yield from (*rows, "") if rows else ()
    if shared_parameters()[0].name in {parameter.name for parameter in command.params}:
        yield "And the options of [the store](#the-store)."
    else:
        yield "It works on no store."


def option_rows(parameters: list[click.Parameter], *, with_shared: bool) -> Iterator[str]:
    """A table of options."""
    common = {parameter.name for parameter in shared_parameters()}
    found = [
        parameter
        for parameter in parameters
        if isinstance(parameter, click.Option)
        and parameter.name != "help"
        and (with_shared or parameter.name not in common or len(parameters) < len(common))
    ]
    if found:
        yield "| option | |"
        yield "| --- | --- |"
    for option in found:
        record = option.get_help_record(click.Context(click.Command("x")))
        assert record is not None
        yield f"| `{record[0].replace('|', chr(92) + '|')}` | {escape(record[1])} |"


def shared_parameters() -> list[click.Parameter]:
    """The options that all commands share."""
    return click.command()(shared_options(lambda **_: None)).params


def first_sentence(command: click.Command) -> str:
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return escape(re.split(r"(?<=[.:]) ", text)[0].rstrip(":."))


def escape(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
