"""`python manage.py harbor …`: the whole command line of TaskHarbor, with this project as its application."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from taskharbor.__main__ import hold_back_signals

OF_DJANGO = ("--settings", "--pythonpath")  # read by manage.py before any command, and of no use to us


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Passes its arguments on as they are; `--backend` names another alias of TASKS than "default"."""

    help = "The command line of TaskHarbor for this project, for example: manage.py harbor worker run"
    requires_system_checks: Sequence[str] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """What manage.py calls. Django's own parser would refuse the options of our commands."""
        os.environ.setdefault("DJANGO_COLORS", "auto")
        hold_back_signals(argv[2:])
        self._run(argv[2:], f"{os.path.basename(argv[0])} {argv[1]}")

    def add_arguments(self, parser: Any) -> None:
        """For `call_command("harbor", "stats")`."""
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        """What `call_command` calls: it returns if the command succeeds, and raises CommandError if it does not."""
        arguments = [str(each) for each in (*args, *options.get("arguments", ()))]
        with ExitStack() as stack:
            for stream, redirected in (("stdout", redirect_stdout), ("stderr", redirect_stderr)):
                if options.get(stream) is not None:
                    stack.enter_context(redirected(options[stream]))
            try:
                self._run(arguments, "manage.py harbor")
            except SystemExit as ended:
                if ended.code:
                    failed = f"manage.py harbor {' '.join(arguments[:1])}: exit code {ended.code}; its output says why"
                    raise CommandError(failed, returncode=ended.code) from None

    def _run(self, arguments: list[str], name: str) -> None:
        from taskharbor.cli.main import main
        from taskharbor.django.harbors import check_alias

        alias, arguments = taken(arguments)
        check_alias(alias)
        share_module_path()
        main(["--app", f"taskharbor.django.app:{alias}", *arguments], prog_name=name)


def taken(arguments: list[str]) -> tuple[str, list[str]]:
    """The alias that `--backend` names, and the arguments without it and without those of Django."""
    alias, rest, given = "default", list[str](), iter(arguments)
    for each in given:
        option, equals, value = each.partition("=")
        if option == "--backend":
            alias = value if equals else next(given, "")
        elif option in OF_DJANGO:
            if not equals:
                next(given, None)
        else:
            rest.append(each)
    return alias, rest


def share_module_path() -> None:
    """Let worker processes import what this process can: they begin in this folder, not in that of manage.py."""
    folder = os.path.dirname(os.path.abspath(sys.argv[0])) if sys.argv and sys.argv[0] else ""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder and os.path.basename(sys.argv[0]) != "django-admin" and folder not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *(each for each in known if each)])
