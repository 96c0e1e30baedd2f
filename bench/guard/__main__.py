"""`python -m bench.guard [STORE …] [--write COMMIT]`: count the instructions of a job; status 1 if they became more.

The figures are kept in `figures.json` beside this file. They hold for one version of Python and one kind of machine:
elsewhere nothing is compared, and the status is 2.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.guard.callgrind import STORES, Failed, instructions
from bench.guard.program import WAYS

KEPT = Path(__file__).with_name("figures.json")
MAX_RISE = 0.03
MAX_RISE_OF = {("sqlite", "work"): 0.25, ("postgres", "work"): 0.1, ("redis", "work"): 0.25}
"""Where the time that a store takes decides how many jobs share a call, and so what each of them costs. The worker's
own services are guarded on memory, and the calls that it makes by the way `driver`, both to 3 %."""

Figures = dict[str, dict[str, int]]
"""Store → way → instructions of a job."""


class Kept(msgspec.Struct):
    """The figures of a commit, and where they were counted."""

    commit: str
    where: str
    instructions: Figures


def where() -> str:
    """What the figures depend on."""
    version = platform.python_version()
    return f"{platform.python_implementation()} {version}, {platform.system()} {platform.machine()}"


def compare(kept: Figures, found: Mapping[str, Mapping[str, int]]) -> list[tuple[str, bool]]:
    """A line for each figure, and whether it is above what is allowed."""
    lines = []
    for store, ways in found.items():
        for way, number in ways.items():
            name, before = f"{store:<9} {way:<14}", kept.get(store, {}).get(way)
            if before is None:
                lines.append((f"{name} {number:>9,}  nothing kept", False))
                continue
            allowed = MAX_RISE_OF.get((store, way), MAX_RISE)
            above = number > before * (1 + allowed)
            line = f"{name} {number:>9,}  kept {before:>9,}  {number / before - 1:+7.1%}  allowed {allowed:+.0%}"
            lines.append((f"{line}  ABOVE" if above else line, above))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _parser().parse_args(arguments)
    kept = msgspec.json.decode(KEPT.read_bytes(), type=Kept) if KEPT.exists() else Kept("", where(), {})
    comparable = kept.where == where()
    if not comparable and not options.write:
        print(f"guard: the figures kept are of {kept.where}, this is {where()}: nothing is compared", file=sys.stderr)
    print(f"guard: instructions of a job, {where()}; kept figures are of {kept.commit or 'no commit'}", flush=True)
    found: Figures = {}
    above = False
    for store in options.stores or STORES:
        try:
            found[store] = instructions(store)
        except Failed as error:
            print(f"guard: {store}: {error}", file=sys.stderr)
            return 2
        for line, is_above in compare(kept.instructions if comparable else {}, {store: found[store]}):
            print(f"  {line}", flush=True)
            above |= is_above
    if options.write:
        others = kept.instructions if comparable else {}
        _write(Kept(options.write, where(), {**others, **found}))
        return 0
    return 2 if not comparable else int(above)


def _parser() -> argparse.ArgumentParser:
    ways = ", ".join(WAYS)
    parser = argparse.ArgumentParser("python -m bench.guard", description=f"Instructions of a job, each way: {ways}.")
    parser.add_argument(
        "stores", nargs="*", metavar="STORE", choices=[*STORES, []], help=f"some of {', '.join(STORES)}"
    )
    parser.add_argument("--write", metavar="COMMIT", help="keep the figures, as those of this commit")
    return parser


def _write(kept: Kept) -> None:
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    print(f"guard: kept in {KEPT}")


if __name__ == "__main__":
    sys.exit(main())
