"""Asking the person: to confirm what cannot be undone, or to edit a text."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import Self

import click

from taskharbor.cli.errors import EXIT_USAGE, CommandError, usage_error
from taskharbor.store.text import one_line

_USUAL = ("sensible-editor", "editor", "nano", "vim", "vi")


def confirm(question: str, yes: bool) -> None:
    """Return if the user agrees or passed `--yes`; raise CommandError otherwise, or if stdin is not a terminal."""
    if yes:
        return
    expect_person(yes)
    if not click.confirm(one_line(question), err=True):
        raise CommandError("nothing was changed")


def expect_person(yes: bool) -> None:
    """CommandError if a question would have to be asked, and stdin is not a terminal."""
    if not yes and not sys.stdin.isatty():
        raise CommandError("confirmation required, but stdin is not a terminal; pass --yes", EXIT_USAGE)


class Draft:
    """A text that a person edits, in a file that only they can read. It is removed afterwards unless it is kept.

    The file is in a folder of its own: what an editor leaves beside it is removed, too.
    """

    def __init__(self, text: str) -> None:
        import tempfile  # a command that only asks does not pay for it

        self._folder = tempfile.mkdtemp(prefix="taskharbor-")
        self.path = os.path.join(self._folder, "payload.json")
        self._kept = False
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            shutil.rmtree(self._folder, ignore_errors=True)

    def keep(self) -> str:
        """Do not remove the file; returns its path."""
        self._kept = True
        return self.path

    def edit(self) -> bytes:
        """Open the file in the user's editor and return what was saved; CommandError if the editor failed."""
        command = [*_editor(), self.path]
        try:
            code = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise usage_error(f"$EDITOR: cannot start {command[0]!r}: {error.strerror}") from error
        if code:
            raise CommandError(f"the editor {command[0]!r} ended with code {code}; nothing was changed")
        os.chmod(self.path, 0o600)  # some editors write a new file
        with open(self.path, "rb") as file:
            return file.read()


def _editor() -> list[str]:
    """The words of the user's editor: $VISUAL, $EDITOR, or one that is usually there if a person sits at a terminal."""
    for name in ("VISUAL", "EDITOR"):
        words = os.environ.get(name, "").strip()
        if words:
            try:
                return shlex.split(words)
            except ValueError as error:
                raise usage_error(
                    f"${name}: expected a command such as vim, got an unreadable one ({error})"
                ) from error
    found = next((path for path in map(shutil.which, _USUAL) if path), None)
    if found is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise usage_error("dlq edit: expected $EDITOR, or the new payload with --json '{…}' (--json - reads stdin)")
    return [found]
