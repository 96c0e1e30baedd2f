"""What `worker run` prints when its first process is ready: the store, app, queues and tasks that it serves.

On a terminal it prints a few lines, elsewhere it logs an event. It also warns about a worker that starts normally but
can do nothing useful: one without tasks, one that serves unused queues, one on a store private to its process.
"""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from taskharbor.cli.target import Target
from taskharbor.model.events import Observers
from taskharbor.model.job import DEFAULT_QUEUE
from taskharbor.model.process_events import SupervisorServing
from taskharbor.store.text import one_line, plural
from taskharbor.tasks.builtin_types import BUILTIN_TYPES
from taskharbor.worker.supervisor import messages

logger = logging.getLogger("taskharbor.worker")

MAX_NAMED_TASKS = 50


def abilities_of(target: Target, queues: tuple[str, ...] | None) -> messages.Abilities:
    """What a worker process serves. It reports this to its supervisor, which does not import the application."""
    harbor, app = target.harbor, str(target.app)
    served, used = queues or (DEFAULT_QUEUE,), tuple[str, ...]()
    types: tuple[str, ...] = BUILTIN_TYPES
    if harbor is not None:
        default = harbor._store.default_queue
        used = tuple(sorted({task.queue or default for task in harbor.tasks.values()}))
        served, types = queues or harbor.declared_queues, harbor.handlers.types()
    timeouts = None if harbor is None else harbor.handlers.note_timeouts()
    note, other = target.note_unused(), target.unused().get(app)
    notes = [each for each in (note, timeouts) if each is not None]
    if other is not None:
        notes.append(
            f"{app} names another store, which is not used: what a program enqueues with it goes to {other}, which "
            "this worker does not serve"
        )
    return messages.Abilities(target.place, served, types, used, target.in_memory, tuple(notes))


@dataclass(frozen=True)
class Greeting:
    """Prints or logs what a worker process serves."""

    app: str | None
    queues: tuple[str, ...] | None  # of --queues
    processes: int
    concurrency: int
    observers: Observers

    def __call__(self, abilities: messages.Abilities) -> None:
        if sys.stderr.isatty():
            if logger.isEnabledFor(logging.INFO):
                click.echo("\n".join(self.lines(abilities, shutil.get_terminal_size().columns)), err=True)
        else:
            tasks = abilities.tasks[:MAX_NAMED_TASKS]
            self.observers.emit(
                SupervisorServing(
                    abilities.store, self.app or "", abilities.queues, tasks, self.processes, self.concurrency
                )
            )
        for text in self.warnings(abilities):
            logger.warning("%s", text)

    def lines(self, abilities: messages.Abilities, width: int) -> list[str]:
        """The banner."""
        import taskharbor

        names = [one_line(name) for name in abilities.tasks[:MAX_NAMED_TASKS]]
        more = f", and {len(abilities.tasks) - MAX_NAMED_TASKS} more" if abilities.tasks[MAX_NAMED_TASKS:] else ""
        jobs = f"{plural(self.concurrency, 'job')} at once"
        each = f"{self.processes}, each with {jobs}" if self.processes > 1 else f"1, with {jobs}"
        facts = {
            "store": abilities.store,
            "app": self.app or "none",
            "queues": ", ".join(map(one_line, abilities.queues)),
            "processes": each,
            "tasks": f"{len(abilities.tasks)}{': ' if names else ''}{', '.join(names)}{more}",
        }
        lines = [f"taskharbor {taskharbor.__version__}: worker run"]
        for name, text in facts.items():
            first, *rest = textwrap.wrap(text, max(width - 13, 20), break_long_words=False, break_on_hyphens=False)
            lines += [f"  {name:<9}  {first}", *(f"{'':13}{line}" for line in rest)]
        return lines

    def warnings(self, abilities: messages.Abilities) -> Iterator[str]:
        """Why this worker can do nothing useful, if so."""
        yield from abilities.notes
        if self.app is None:
            names = f"{', '.join(BUILTIN_TYPES[:-1])} and {BUILTIN_TYPES[-1]}"
            yield f"without --app this worker runs only {names}; pass your Harbor with --app module:name"
        elif not abilities.tasks:
            yield (
                f"{self.app} declares no tasks, so this worker can run nothing: is the module that declares them "
                "imported? --import MODULE imports it"
            )
        elif unused := [queue for queue in self.queues or () if queue not in abilities.used]:
            yield (
                f"no task of {self.app} uses {_queues(unused)}: it gets only jobs that are enqueued with "
                f".options(queue=…); the tasks use {_queues(abilities.used)}"
            )
        if abilities.private:
            yield (
                "memory:// lives inside this process: no other process can enqueue jobs or see them; use a store "
                "that processes share, such as --dsn sqlite:///jobs.db"
            )


def _queues(names: Sequence[str]) -> str:
    return f"the queue{'s' if len(names) > 1 else ''} {', '.join(map(one_line, names))}"
