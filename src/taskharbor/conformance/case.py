"""What a case is: a small asynchronous function with the sentences of the contract that it guards.

Cases register themselves in the order in which they are written; their theme is the name of their module.
`all_cases` imports them on first use, so that `import taskharbor.conformance` stays cheap.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from taskharbor.conformance.environment import Environment

CaseFunction: TypeAlias = "Callable[[Environment], Awaitable[None]]"

THEMES = (
    "enqueue",
    "idempotency",
    "reserve",
    "order",
    "turns",
    "run_at",
    "lease",
    "fence",
    "settle",
    "repeat",
    "lost",
    "release",
    "groups",
    "group_capacity",
    "pause",
    "flows",
    "spawn",
    "flow_status",
    "cascade",
    "admin",
    "listing",
    "heads",
    "retention",
    "attempts",
    "notes",
    "keep_for",
    "steps",
    "filters",
    "upcoming",
    "amend",
    "amend_texts",
    "flow_listing",
    "figures",
    "seen",
    "audit",
    "schedules",
    "schedule_jobs",
    "schedule_pages",
    "field_bounds",
    "argument_bounds",
    "extremes",
    "text",
    "damaged",
    "damaged_fields",
    "concurrency",
    "races",
    "wait",
    "server_time",
    "shutdown",
)
"""The themes in the order in which they are run: each is a module of `taskharbor.conformance.cases`."""


@dataclass(frozen=True)
class Case:
    """One case: where it belongs, which sentences it guards, and the function that runs it."""

    theme: str
    name: str
    sentences: tuple[str, ...]
    function: CaseFunction
    needs: tuple[str, ...] = ()
    """The optional parts of the contract that it is about: see `taskharbor.conformance.parts`."""

    @property
    def title(self) -> str:
        """The theme and the name: `lease.equality_is_expired`."""
        return f"{self.theme}.{self.name}"

    def missing(self, lacks: Collection[str]) -> str:
        """The part for want of which a driver that lacks these cannot be asked; empty if it can."""
        return next((part for part in self.needs if part in lacks), "")


class Skipped(Exception):
    """Raised by `Environment.skip`: the case cannot run here; the text says why."""


_REGISTERED: dict[str, Case] = {}


def case(*sentences: str, needs: str | tuple[str, ...] = ()) -> Callable[[CaseFunction], CaseFunction]:
    """Register a case for the sentences of docs/driver-contract.md that it guards, given word by word.

    `needs`: the optional part, or parts, of the contract without which it is not run.
    """
    needed = (needs,) if isinstance(needs, str) else needs

    def register(function: CaseFunction) -> CaseFunction:
        theme, name = function.__module__.rsplit(".", 1)[1], function.__name__
        found = Case(theme, name, sentences, function, needed)
        if found.title in _REGISTERED:
            raise ValueError(f"two cases are called {found.title}")
        _REGISTERED[found.title] = found
        return function

    return register


def all_cases(themes: Sequence[str] | None = None) -> list[Case]:
    """The cases of some themes, or of all, in the order of `THEMES`.

    >>> {found.theme for found in all_cases(["pause"])}
    {'pause'}
    """
    wanted = tuple(THEMES) if themes is None else tuple(themes)
    for theme in wanted:
        if theme not in THEMES:
            raise ValueError(f"no theme is called {theme!r}; there are: {', '.join(THEMES)}")
        importlib.import_module(f"taskharbor.conformance.cases.{theme}")
    return [found for theme in THEMES if theme in wanted for found in _REGISTERED.values() if found.theme == theme]
