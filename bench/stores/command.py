"""`python -m bench sqlite` and its like: measure a store, report, and say which aims were missed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import layout
from bench.stores import places
from bench.stores.plan import FULL, QUICK, Row, rows
from bench.stores.report import Report
from bench.stores.rounds import run


def measure(store: str, *, quick: bool, rounds: int = 0, only: Sequence[str] = ()) -> Report:
    """Measure a store, with a server of its own."""
    sizes = QUICK if quick else FULL
    if rounds:
        sizes = msgspec.structs.replace(sizes, rounds=rounds)
    with places.OPEN[store]() as opened:
        return Report(store, run(chosen(store, only), sizes, opened, tell), sizes, opened.facts)


def chosen(store: str, only: Sequence[str]) -> list[Row]:
    """The rows of these names, or of these subjects; without any, all."""
    names = {name for row in rows(store) for name in (row.name, row.subject.name)}
    if unknown := [name for name in only if name not in names]:
        raise SystemExit(f"bench: {store}: expected some of {', '.join(sorted(names))}; got {', '.join(unknown)}")
    return [row for row in rows(store) if not only or row.name in only or row.subject.name in only]


def publish(report: Report, write: str = "", json: str = "") -> int:
    """Print a report, write it where it was asked for, and return the exit status."""
    tell("")
    print(f"{report.store}: {report.text()}")
    if json:
        content = {"store": report.store, "sizes": report.sizes, "aims": report.results(), "run": report.run}
        Path(json).write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    if write:
        layout.write(Path(write), report.store, report.markdown())
    missed = [result for result in report.results() if result.missed]
    for result in missed:
        print(f"bench: {report.store}: missed: {result.text}", file=sys.stderr)
    return 1 if missed else 0


def tell(what: str) -> None:
    """What is being done, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}")
        sys.stderr.flush()
