"""The cases of the contract that depend on which server it is.

`make test` runs some of them on every kind (`brief`); `make matrix` runs all cases on every kind.

A driver sends the same statements to every version of its server, so whatever its own logic decides is decided alike on
each, and is tested in full on one: PostgreSQL 15, Redis 7. What another version, or pgbouncer before it,
can do differently is what the server itself does with a statement. Those are the cases

- of the themes whose subject is the server (`THEMES`), and
- of a few others, so that together they make the server do everything that it is ever asked for (`CASES`): a command or
  function that a version lacks, or that answers in another shape there, is met by one of them.

The second half is held in `make matrix`: `everything_is_met` runs all cases and then these, and compares what the
server counted.
"""

import functools
from collections.abc import Callable, Iterable

from taskharbor.conformance import DriverCases, all_cases

THEMES = {
    "concurrency": "locks, isolation, and what is served first",
    "races": "two calls at the same moment",
    "wait": "notifications: LISTEN, SUBSCRIBE, and which connections receive them",
    "shutdown": "connections that end in the middle of a call",
    "server_time": "the server's clock",
    "text": "encodings and collations",
    "listing": "order, cursors, pages",
    "filters": "the same downwards, and by time",
    "field_bounds": "sizes",
    "argument_bounds": "numbers at their ends",
    "damaged": "values of the wrong type",
}
CASES = {
    "enqueue.record_comes_back": "a script that the server has not seen (EVAL)",
    "spawn.handover": "SISMEMBER, HLEN",
    "admin.beat": "HVALS",
    "retention.done_and_cancelled": "prune, HSCAN",
    "keep_for.needed_by_a_flow": "prune of what is kept",
    "amend.a_new_priority": "amend",
    "upcoming.whichever_comes_first": "upcoming",
    "heads.due_but_not_in_line_yet": "heads of queues",
    "flow_listing.every_status": "flows",
    "figures.added_up": "figures",
    "seen.a_mix": "requeue, cancel and delete on condition",
    "audit.page_by_page": "audit",
    "schedules.to_another_queue": "changes of schedules",
    "schedule_pages.names_and_queues": "schedules by name",
    "schedule_pages.what_comes_next_on_every_page": "due schedules",
}


def _tests(titles: Iterable[str]) -> set[str]:
    return {f"test_{title.replace('.', '_', 1)}" for title in titles}


@functools.cache
def chosen() -> frozenset[str]:
    """The names of the tests."""
    cases = {case.title: case for case in all_cases()}
    if unknown := CASES.keys() - cases.keys():
        raise LookupError(f"no case is called {', '.join(sorted(unknown))}: correct CASES")
    found = [*all_cases(list(THEMES)), *(cases[title] for title in CASES)]
    return frozenset(f"test_{case.theme}_{case.name}" for case in found)


def every_call(name: str) -> bool:
    """Whether this test is one of `CASES`: together they ask the server for everything once."""
    return name in _tests(CASES)


def brief(name: str) -> bool:
    """Whether this test runs on every kind of server in `make test`: every call once, locks, clocks, texts, endings."""
    return every_call(name) or name.startswith(
        ("test_concurrency_", "test_server_time_", "test_text_", "test_shutdown_")
    )


def everything_is_met(suite: DriverCases, counted: Callable[[Callable[[], None]], set[str]]) -> None:
    """`counted` runs a function and returns what the server was asked for meanwhile."""
    names = [f"test_{case.theme}_{case.name}" for case in all_cases() if not case.missing(suite.lacks)]

    def run(of: list[str]) -> None:
        for name in of:
            getattr(suite, name)()

    missed = counted(lambda: run(names)) - counted(lambda: run(sorted(chosen().intersection(names))))
    assert not missed, f"only other cases ask the server for {', '.join(sorted(missed))}: add one to CASES"
