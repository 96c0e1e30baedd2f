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

Every command that works on a store takes the options below, before or after its name. The store is that of `--dsn`,
else of `$TASKHARBOR_DSN`, else that of the app of `--app`, else `sqlite:///taskharbor.db` in this folder.
If `$TASKHARBOR_DSN` is set but empty, as a missing secret leaves it, that is an error.
`--app` can import modules of the current folder. Commands that only read change nothing: they create no file and no
schema, and name `taskharbor migrate` if the schema is missing. `enqueue` reports on stderr if it had to create a store.
`memory://` lives inside one process, so commands that would need the memory of another process refuse it.

{shared}

## Ids

An id that TaskHarbor generated may be shortened to a unique prefix of at least 4 characters, in capitals or not:
`taskharbor inspect 01m7hg69pc`. If several jobs begin with it, the error names up to five of them. An id that the
application chose is typed in full: `order-17` may be an id as well as the beginning of `order-170`.

## Output

On a terminal: tables that fit its width, with colours unless `NO_COLOR` is set. Where it is too narrow, times and ids
are shortened first, ids to prefixes that commands accept. In a pipe: plain columns, no colours,
no truncated cells, one row per line. With `--output json`: one JSON document, whose keys are listed with each command.
Keys may be added; [Stability](stability.md) says when one may be renamed or removed. Moments are ISO 8601 in UTC,
durations are in seconds. Notes for people go to stderr.

Payloads, results and the metadata that the library writes for workflows are hidden unless you pass
`--show-payload`, which is then in the audit. Payload values in error texts are masked with dots. Passwords in a DSN are
never shown. Escape sequences in stored text are removed.

Commands whose effect cannot be undone, and those that change all jobs of a filter, ask for confirmation; `--yes`
confirms. Without a terminal they require `--yes`. `--dry-run` shows which jobs would be changed. Every change is in the
audit, under `$TASKHARBOR_BY` or else the user and the machine: [Working with dead letters](dead-letters.md#the-audit).

## Exit codes

| code | meaning |
| --- | --- |
| 0 | success; also a worker that was stopped by TERM or INT |
| 1 | not found, refused, or a case or check failed; the output cannot be written |
| 2 | usage error: an option, the DSN, the app or the JSON is invalid |
| 3 | the store cannot be used: it does not exist, is unreachable, or has another schema |
| 70 | a bug in taskharbor; `TASKHARBOR_TRACEBACK=1` shows where |
| 130 | interrupted by Ctrl-C |

An error is one line on stderr; stdout stays empty.

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
        yield "It uses no store."


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
