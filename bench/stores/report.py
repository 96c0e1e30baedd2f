"""The report of a store: the same rows as text for a terminal and as Markdown for docs/benchmarks.md."""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

from bench.layout import LATENCY_HEAD, Table, as_markdown, as_text, machine, ms, span, span_ms
from bench.stores import environments
from bench.stores.figures import Result, cost, percentile, rate, ratio, results, server_share
from bench.stores.plan import LATENCY, STORES, Row, Sizes, rows
from bench.stores.rounds import Run

HEAD = ("", "jobs/s", "lowest – highest", "processor µs a job", "of these the server's", "ratio")
LIBRARIES = {"sqlite": (), "postgres": ("psycopg",), "redis": ("redis", "hiredis")}


class Report(NamedTuple):
    """What was measured on a store; `server` names it with its version."""

    store: str
    run: Run
    sizes: Sizes
    server: str

    def text(self) -> str:
        """For a terminal."""
        return as_text(self.facts(), self.tables(), self.aims())

    def markdown(self) -> str:
        """For docs/benchmarks.md."""
        return as_markdown(self.facts(), self.tables(), self.aims())

    def results(self) -> list[Result]:
        """The aims."""
        return results(self.store, self.run)

    def aims(self) -> list[str]:
        """One line for each aim, and for each peer that was left out."""
        missing = [f"not measured: {peer}: {why}" for peer, why in sorted(self.run.left_out.items())]
        return [*map(_aim, self.results()), *missing]

    def facts(self) -> str:
        """What the figures depend on."""
        ours = [f"{name} {version(name)}" for name in ("taskharbor", "msgspec", *LIBRARIES[self.store])]
        peers = [each.peer for each in STORES[self.store] if each.peer and each.peer not in self.run.left_out]
        theirs = [f"{peer} {environments.version(peer)}" for peer in peers if f"process-{peer}" in self.run.samples]
        versions, sizes = ", ".join([*ours, *theirs]), self.sizes
        return (
            f"{machine()}; {self.server}; {versions}. {sizes.rounds} rounds, {sizes.jobs:,} jobs in a "
            f"sample (four times as many for a loop; slower ones: as many as they do in about {sizes.seconds:g} s), "
            f"{sizes.picks} picks."
        )

    def tables(self) -> list[Table]:
        """Section, head and rows of everything that was measured."""
        made: dict[str, Table] = {}
        for row in rows(self.store):
            if row.name in self.run.samples:
                head = LATENCY_HEAD if row.section == LATENCY else HEAD
                made.setdefault(row.section, (row.section, head, []))[2].append(self._cells(row))
        return list(made.values())

    def _cells(self, row: Row) -> tuple[str, ...]:
        title, samples = self.sizes.title(row), self.run.samples[row.name]
        if row.section == LATENCY:
            p50, p99 = percentile(samples, 50), percentile(samples, 99)
            return title, ms(p50.median), span_ms(p50), ms(p99.median), span_ms(p99)
        own, used, compared = rate(samples), cost(samples), ratio(self.run.samples, row.name, row.base)
        share = f"{1e6 * server_share(samples).median:.0f}" if samples[0].server else "–"
        against = "1" if compared is None else f"{compared.median:.2f}"
        return title, f"{own.median:,.0f}", span(own), f"{1e6 * used.median:.0f}", share, against


def _aim(result: Result) -> str:
    found = result.found
    if found is None:
        return f"not measured: {result.text}"
    word = "reached" if result.reached else "MISSED" if result.binding else "not reached, and no aim here"
    if result.unit == "s":
        return f"{word}: {result.text}: {ms(found.median)} ({span_ms(found)} over the rounds)"
    return f"{word}: {result.text}: {found.median:.3f} ({found.least:.2f} – {found.most:.2f} over the rounds)"
