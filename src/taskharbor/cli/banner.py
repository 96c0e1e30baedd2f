"""What `worker run` says when its first process serves: which store, app, queues and tasks, and what cannot work.

On a terminal a few lines for a person, elsewhere an event in the log. The warnings are for the mistakes that look like
a worker at work: one that knows no task, one that serves queues nobody uses, one on a store that nobody can reach.
"""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from taskharbor.cli.builtin_handlers import TYPES
from taskharbor.cli.target import Target
from taskharbor.cli.text import one_line
from taskharbor.model.job import DEFAULT_QUEUE
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.events import SupervisorServing, tell

logger = logging.getLogger("taskharbor.worker")

NAMED = 50  # tasks that are named one by one


def offer_of(target: Target, queues: tuple[str, ...] | None) -> messages.Offer:
    """What a worker process can do, as it tells its supervisor, which does not import the application."""
    harbor = target.harbor
    if harbor is None:
        return messages.Offer(target.place, queues or (DEFAULT_QUEUE,), TYPES, (), target.in_memory)
    default = harbor.client.default_queue
    used = tuple(sorted({task.queue or default for task in harbor.tasks.values()}))
    return messages.Offer(target.place, queues or harbor.queues, harbor.handlers.types(), used, target.in_memory)


@dataclass(frozen=True)
class Greeting:
    """Tells what a worker process offers, to the person or the log of whoever started it."""

    app: str | None
    queues: tuple[str, ...] | None  # as --queues names them
    processes: int
    concurrency: int

    def __call__(self, offer: messages.Offer) -> None:
        if sys.stderr.isatty():
            if logger.isEnabledFor(logging.INFO):
                click.echo("\n".join(self.lines(offer, shutil.get_terminal_size().columns)), err=True)
        else:
            tasks = offer.tasks[:NAMED]
            tell(SupervisorServing(offer.store, self.app or "", offer.queues, tasks, self.processes, self.concurrency))
        for text in self.warnings(offer):
            logger.warning("%s", text)

    def lines(self, offer: messages.Offer, width: int) -> list[str]:
        """The banner."""
        import taskharbor

        names = [one_line(name) for name in offer.tasks[:NAMED]]
        more = f", and {len(offer.tasks) - NAMED} more" if offer.tasks[NAMED:] else ""
        jobs = f"{self.concurrency} job{'' if self.concurrency == 1 else 's'} at once"
        each = f"{self.processes}, each with {jobs}" if self.processes > 1 else f"1, with {jobs}"
        facts = {
            "store": offer.store,
            "app": self.app or "none",
            "queues": ", ".join(map(one_line, offer.queues)),
            "processes": each,
            "tasks": f"{len(offer.tasks)}{': ' if names else ''}{', '.join(names)}{more}",
        }
        told = [f"taskharbor {taskharbor.__version__}: worker run"]
        for name, text in facts.items():
            first, *rest = textwrap.wrap(text, max(width - 13, 20), break_long_words=False, break_on_hyphens=False)
            told += [f"  {name:<9}  {first}", *(f"{'':13}{line}" for line in rest)]
        return told

    def warnings(self, offer: messages.Offer) -> Iterator[str]:
        """What keeps this worker from being of use to anybody."""
        if self.app is None:
            names = f"{', '.join(TYPES[:-1])} and {TYPES[-1]}"
            yield f"without --app this worker runs {names} only; name your Harbor with --app module:name"
        elif not offer.tasks:
            yield (
                f"{self.app} declares no task, so this worker can run nothing: is the module that declares them "
                "imported? --import MODULE does it"
            )
        elif unused := [queue for queue in self.queues or () if queue not in offer.used]:
            yield (
                f"no task of {self.app} is in {_queues(unused)}: only jobs that were sent there by .options(queue=…) "
                f"are run from it; its tasks are in {_queues(offer.used)}"
            )
        if offer.private:
            yield (
                "memory:// lives inside this process: no other program can enqueue here or see its jobs; use a store "
                "that processes share, such as --dsn sqlite:///jobs.db"
            )


def _queues(names: Sequence[str]) -> str:
    return f"the queue{'s' if len(names) > 1 else ''} {', '.join(map(one_line, names))}"
