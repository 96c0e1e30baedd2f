"""`python -m bench [memory|sqlite|postgres|redis|all]`: measure, report, and end with status 1 if an aim is missed."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import layout, report, steps
from bench.figures import rate, results
from bench.peers import memory as peers
from bench.rounds import FULL, QUICK, Samples, Sizes, run
from bench.stores import command
from bench.stores.plan import STORES
from bench.subjects import SUBJECTS


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _parser().parse_args(arguments)
    if options.sample:
        return _sample(*options.sample)
    if options.profile:
        print(steps.report())
        return 0
    stores = ("memory", *STORES) if options.store == "all" else (options.store,)
    if options.write:
        try:  # now, not when everything was measured
            for store in stores:
                layout.place(Path(options.write), store)
        except ValueError as error:
            raise SystemExit(f"bench: --write: {error}") from None
    status = 0
    for store in stores:
        status |= _memory(options) if store == "memory" else _store(store, options)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description="Measure TaskHarbor on its stores beside others.")
    parser.add_argument("store", nargs="?", default="memory", choices=("memory", *STORES, "all"))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, jobs and a tenth of the backlog")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="number of rounds")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these subjects")
    parser.add_argument("--json", metavar="FILE", help="also write every sample and figure to a file")
    parser.add_argument("--write", metavar="FILE", help="also write the figures between the markers of a document")
    parser.add_argument("--profile", action="store_true", help="instead: what each step of a job's way costs in memory")
    parser.add_argument("--sample", nargs=3, metavar=("NAME", "JOBS", "BACKLOG"), help=argparse.SUPPRESS)
    return parser


def _store(store: str, options: argparse.Namespace) -> int:
    made = command.measure(store, quick=options.quick, rounds=options.rounds, only=options.only)
    return command.publish(made, options.write, _file(options, store))


def _memory(options: argparse.Namespace) -> int:
    sizes = QUICK if options.quick else FULL
    if options.rounds:
        sizes = msgspec.structs.replace(sizes, rounds=options.rounds)
    if unknown := [name for name in options.only if name not in SUBJECTS]:
        raise SystemExit(f"bench: memory: expected some of {', '.join(SUBJECTS)}; got {', '.join(unknown)}")
    names = [name for name, subject in SUBJECTS.items() if not subject.peer or peers.installed(subject.peer)]
    if options.only:
        names = [name for name in names if name in options.only]
    samples = run(names, sizes, command.tell)
    command.tell("")
    print(report.text(samples, sizes))
    if options.json:
        Path(_file(options, "memory")).write_bytes(_json(samples, sizes))
    if options.write:
        layout.write(Path(options.write), "memory", report.markdown(samples, sizes))
    missed = [result for result in results(samples) if result.missed]
    for result in missed:
        print(f"bench: missed: {result.aim.text}", file=sys.stderr)
    return 1 if missed else 0


def _file(options: argparse.Namespace, store: str) -> str:
    """The file of --json: with `all`, one for each store."""
    if not options.json or options.store != "all":
        return options.json or ""
    path = Path(options.json)
    return str(path.with_name(f"{path.stem}-{store}{path.suffix}"))


def _sample(name: str, jobs: str, backlog: str) -> int:
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    sample = SUBJECTS[name].run(int(jobs), int(backlog))
    print(msgspec.json.encode(sample).decode())
    return 0


def _json(samples: Samples, sizes: Sizes) -> bytes:
    rates = {name: rate(taken) for name, taken in samples.items() if taken and taken[0].cpu}
    content = {"sizes": sizes, "rates": rates, "aims": results(samples), "samples": samples}
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


if __name__ == "__main__":
    sys.exit(main())
