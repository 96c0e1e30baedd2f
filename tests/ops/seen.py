"""A filled store, every way to ask it, and how an answer is compared with the records."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpx

from taskharbor import Harbor
from taskharbor.dashboard.app import build
from taskharbor.dashboard.routes import PAGES
from taskharbor.drivers import Driver
from taskharbor.model.job import FlowStatus, JobInfo, JobRecord, State, flow_status
from taskharbor.ops.access import Access
from taskharbor.testing import ManualClock
from tests.cli.shell import leaves, taskharbor
from tests.ops.unarranged import Truth, Unarranged

T = TypeVar("T")

BASE = "http://localhost:8420"
COMMANDS = frozenset(leaves())
ROUTES = [(page.path, re.compile(re.sub(r"{\w+:path}", "(.+)", page.path))) for page in PAGES]


@dataclass
class Seen:
    """A filled store, and how to ask it. `asked`: how often each reader was; `unknown`: what it did not know."""

    truth: Truth
    filled: Unarranged
    driver: Driver
    dsn: str
    patience: float = 5.0  # seconds for a scrape; as it is shipped: 5
    asked: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.clock = ManualClock(self.truth.now)
        self.harbor = Harbor(self.driver, clock=self.clock)
        self.app = build(self.harbor, access=lambda request: Access.admin("ada"))

    async def ask(self, reader: str, answer: Awaitable[T]) -> T:
        """What a reader says."""
        self.asked[reader] += 1
        return await answer

    async def page(self, path: str, **query: str) -> Any:
        """A page of the dashboard as JSON."""
        return (await self._page("application/json", path, **query)).json()

    async def drawn(self, path: str, **query: str) -> str:
        """A page of the dashboard as people see it."""
        return (await self._page("text/html", path, **query)).text

    async def _page(self, kind: str, path: str, **query: str) -> httpx.Response:
        address = f"{path}?{urlencode(query)}" if query else path
        route = next(route for route, pattern in ROUTES if pattern.fullmatch(path))
        about = f"?{'&'.join(name for name in query if name != 'limit')}" if {*query} - {"limit"} else ""

        async def get() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=BASE) as client:
                return await client.get(address, headers={"accept": kind})

        reply = await self.ask(f"page {route}{about}{' as HTML' if kind == 'text/html' else ''}", get())
        assert reply.status_code == 200, (address, reply.text[-300:])
        return reply

    async def pages(self, path: str, key: str, **query: str) -> list[Any]:
        """All pages, one after the other."""
        found: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self.page(path, **query, **({"cursor": cursor} if cursor else {}))
            found += page[key]
            cursor = page["cursor"]
        return found

    async def command(self, *words: str) -> Any:
        """A command's JSON; of an export, all lines."""
        name = max((each for each in COMMANDS if " ".join(words).startswith(each)), key=len)
        at = len(name.split())
        typed = words[at : words.index("--") if "--" in words else None]
        options = [word.partition("=")[0] for word in typed if word.startswith("--") and word not in DULL]
        arguments = (*words[:at], "--dsn", self.dsn, "--output", "json", *words[at:])
        if name == "dlq export":
            arguments = (*words[:at], "--dsn", self.dsn, *words[at:])
        run = " ".join(["taskharbor", name, *options])
        answer = await self.ask(run, asyncio.to_thread(taskharbor, *arguments))
        assert answer.code == 0, (words, answer.err)
        return [json.loads(line) for line in answer.out.splitlines()] if name == "dlq export" else answer.json

    async def all_of(self, key: str, *words: str) -> list[Any]:
        """The rows of all pages of a command."""
        found: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self.command(*words, *(["--cursor", cursor] if cursor else []))
            found += page[key]
            cursor = page.get("cursor")
        return found

    def status_of(self, flow: str) -> FlowStatus:
        """How a flow stands, by the records."""
        return flow_status([info.state for info in self.truth.flows[flow]])

    def some(self, state: State) -> JobInfo:
        """A job in this state."""
        return next(info for info in self.truth.infos.values() if info.state is state)

    # Comparing -------------------------------------------------------------------------------------------------------

    def counted(self, what: str, found: dict[str, dict[str, int]], cap: int | None = None) -> list[str]:
        """Counts by queue and state. A number at its cap means "or more"."""
        wanted, wrong = self.truth.counts, []
        for queue in {**found, **wanted}:
            for state in State:
                here, there = found.get(queue, {}).get(state.value, 0), wanted.get(queue, {}).get(state.value, 0)
                if cap is not None and here == cap < there:
                    self.unknown[f"{what}: how many beyond {cap}"] += 1
                elif here != there:
                    wrong.append(f"{what}: {queue!r:.40} {state.value}: {here}, not {there}")
        return wrong

    def waiting(self, what: str, found: Iterable[tuple[str, str | datetime | None, bool]]) -> list[str]:
        """Since when the oldest ready job of each queue waits, if it is known."""
        wrong = []
        for queue, at, known in found:
            moment, wanted = datetime.fromisoformat(at) if isinstance(at, str) else at, self.truth.oldest.get(queue)
            if not known:
                self.unknown[f"{what}: since when the oldest waits"] += 1
            elif moment != wanted:
                wrong.append(f"{what}: the oldest of {queue!r:.40} since {moment}, not {wanted}")
        return wrong

    def queue_rows(self, what: str, rows: list[Any], cap: int, *, whole: bool = False) -> list[str]:
        """Rows of `taskharbor queue list`; `whole`: of all queues."""
        truth, asked = self.truth, {row["queue"] for row in rows}
        found = {row["queue"]: row["jobs"] for row in rows}
        unasked = {} if whole else {queue: states for queue, states in truth.counts.items() if queue not in asked}
        return [
            *self.counted(what, {**found, **unasked}, cap),
            *self.waiting(what, [(row["queue"], row["oldest_ready_at"], row["oldest_known"]) for row in rows]),
            *differs(f"{what}: paused", {row["queue"] for row in rows if row["paused"]}, self.filled.paused & asked),
        ]

    def dead_rows(self, what: str, found: dict[str, int], by: str, complete: bool, most: int = 10**9) -> list[str]:
        """The rows of a summary. One that did not read all jobs has none too large."""
        wanted = Counter(VALUES[by](info.job) for info in self.truth.infos.values() if info.state is State.DLQ)
        if complete and len(wanted) <= most:
            return differs(what, found, dict(wanted))
        if complete:
            return differs(what, sorted(found.values(), reverse=True), [n for _, n in wanted.most_common(most)])
        self.unknown[f"{what}: jobs beyond the newest"] += 1
        return [f"{what}: {name!r:.40}: {n}, of {wanted[name]}" for name, n in found.items() if n > wanted[name]]


VALUES: dict[str, Callable[[JobRecord], str]] = {
    "fingerprint": lambda job: job.fingerprint,
    "error": lambda job: job.error_class,
    "type": lambda job: job.type,
    "queue": lambda job: job.queue,
    "reason": lambda job: job.reason,
}
DULL = ("--limit", "--cursor")


def in_state(state: State) -> Callable[[JobInfo], bool]:
    """A filter."""
    return lambda info: info.state is state


def differs(what: str, found: object, wanted: object) -> list[str]:
    """Nothing if they are alike."""
    if found == wanted:
        return []
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
        return [f"{what}[{key!r:.60}]: {found.get(key)!r:.80}, not {wanted.get(key)!r:.80}" for key in keys[:5]]
    if isinstance(found, list) and isinstance(wanted, list) and sorted(found) != sorted(wanted):
        extra, missing = sorted({*found} - {*wanted}), sorted({*wanted} - {*found})
        return [f"{what}: {len(found)} of {len(wanted)}; not expected {extra[:3]!r:.120}, missing {missing[:3]!r:.120}"]
    return [f"{what}: {found!r:.200}, not {wanted!r:.200}"]
