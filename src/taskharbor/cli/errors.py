"""How a command reports failure: one clear line on stderr, and an exit code for scripts.

0 success · 1 not found, refused, or a check failed · 2 usage error · 3 the store cannot be used ·
70 a bug in taskharbor · 130 interrupted.
No line repeats a password: addresses in it are redacted first.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import click

from taskharbor.model.scarcity import REMEDY, missing
from taskharbor.store.text import safe_text

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_STORE = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

TRACEBACK = "TASKHARBOR_TRACEBACK"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_COMMAND = re.compile(r"No such command '([^']{1,40})'")
_EXTRA = re.compile(r"Got unexpected extra arguments? \(")


class CommandError(click.ClickException):
    """Ends a command, with one line for a person and an exit code for a script."""

    def __init__(self, text: str, code: int = EXIT_REFUSED) -> None:
        super().__init__(text)
        self.code = code


def usage_error(text: str) -> CommandError:
    """A CommandError for a mistake on the command line: exit code 2."""
    return CommandError(text, EXIT_USAGE)


@contextmanager
def as_usage_error(before: str = "", *kinds: type[Exception]) -> Iterator[None]:
    """A block over what was typed: its errors of these kinds, else TypeError and ValueError, become usage errors.

    `before`: how their texts begin.
    """
    caught = kinds or (TypeError, ValueError)
    try:
        yield
    except caught as error:
        raise usage_error(f"{before}{error}") from error


def explained(error: BaseException) -> tuple[str, int]:
    """One printable line about an error, and the exit code that goes with it."""
    text, code = _described(error)
    return safe_text(text), code


def report(error: BaseException) -> int:
    """Print one line about an error on stderr; return the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # a group without a command: print its help
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    text, code = explained(error)
    sys.stdout.flush()
    complain(text)
    if code > EXIT_USAGE and os.environ.get(TRACEBACK):
        click.echo(_frames(error), err=True)
    return code


def complain(text: str) -> None:
    """Print one line on stderr; wrapped on a terminal, never elsewhere."""
    line = f"taskharbor: {text}"
    if sys.stderr.isatty():
        import shutil
        import textwrap

        width = shutil.get_terminal_size().columns
        line = "\n".join(textwrap.wrap(line, max(width, 20), break_long_words=False, break_on_hyphens=False))
    click.echo(line, err=True)


def _frames(error: BaseException) -> str:
    """Where an error came from: files, lines and classes, but no messages, which may quote secrets."""
    parts: list[str] = []
    one: BaseException | None = error
    while one is not None and len(parts) < 10:
        parts.append("".join(traceback.format_tb(one.__traceback__)) + type(one).__qualname__)
        one = one.__cause__ or one.__context__
    return "\ncaused by\n".join(parts)


def _described(error: BaseException) -> tuple[str, int]:
    if isinstance(error, click.UsageError):
        return _usage(error), EXIT_USAGE
    if isinstance(error, CommandError):
        return error.format_message(), error.code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, click.Abort):
        return "interrupted", EXIT_INTERRUPTED
    return _of_the_store(error)


def _usage(error: click.UsageError) -> str:
    text = error.format_message()
    if _EXTRA.match(text):  # may be a payload or an address whose option was forgotten
        text = "expected no further arguments; name each with its option"
    if isinstance(error, click.NoSuchOption) and error.option_name == "-A":  # as Celery has it
        text = f"{text.rstrip('.')}; the application is --app MODULE:NAME"
    near = _suggestion(error)
    if near is not None:
        text = f"{text.partition('. Did you mean')[0].rstrip('.')}; did you mean {near}?"
    where = error.ctx.command_path if error.ctx is not None else "taskharbor"
    return f"{text.rstrip('.')} (see {where} --help)"


def _suggestion(error: click.UsageError) -> str | None:
    """The existing command that is closest to the one typed."""
    found = _NO_COMMAND.match(error.message)
    if found is None or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return None
    import difflib

    near = difflib.get_close_matches(found[1], error.ctx.command.list_commands(error.ctx), 1)
    return f"{error.ctx.command_path} {near[0]}" if near else None


def _of_the_store(error: BaseException) -> tuple[str, int]:
    from taskharbor.model.errors import (
        BackendUnavailable,
        DriverError,
        FeatureMissing,
        InvalidJob,
        JobNotFound,
        LifespanFailed,
        ScheduleNotFound,
        WrongState,
    )

    if isinstance(error, InvalidJob):
        return str(error), EXIT_USAGE
    if isinstance(error, JobNotFound | ScheduleNotFound | WrongState | FeatureMissing | LifespanFailed):
        return str(error), EXIT_REFUSED
    if isinstance(error, BackendUnavailable | DriverError):
        return str(error), EXIT_STORE
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return f"the output cannot be written: {error.strerror}", EXIT_REFUSED
    if isinstance(error, UnicodeEncodeError):
        return "expected text that UTF-8 can hold, got bytes that are not UTF-8 in an argument", EXIT_USAGE
    if lacking := missing(error):
        return f"the system does not have what it needs: {lacking}; {REMEDY}", EXIT_REFUSED
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    hint = f"; set {TRACEBACK}=1 to print a traceback"
    return f"this is a bug in taskharbor: {type(error).__name__}{where}{hint}", EXIT_BUG
