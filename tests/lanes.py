"""Lanes: the parts of the test suite that must not silently stop running.

A test belongs to the lane of its directory, or to the lanes its `@pytest.mark.lane("name", …)` names (markers add up
and replace the directory's). `tests/conftest.py` writes down what ran and how long it took, one file for each process;
`python -m tests.lanes check` compares that with `tests/lanes.txt`. This module knows nothing of pytest.
It also holds the knobs of the other runs:

    TASKHARBOR_LANE  unset in `make test`; quick, full, matrix, soak or chaos in the target of that name
                                                                                   → `run()`, `figure()`, `few()`
    TASKHARBOR_SEED  where seeded tests begin (default 0)                          → `seed()`
    SECONDS          how long a soak lasts                                         → `seconds()`

What `make test` runs, and each value that its tests draw, is the same for every commit and on every machine.
"""

import argparse
import json
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "lanes.txt"
RUNS = ("test", "quick", "full", "matrix", "chaos", "soak")
SERVERS = ("postgres", "pgbouncer", "redis", "chromium", "django", "faketime")  # what tests/servers/provision installs
OUTCOMES = ("passed", "failed", "skipped", "xfailed")
UNLISTED = "add it there, or correct the marker"

# The longest matching prefix decides; a marker overrides.
DIRECTORIES = {
    "tests/unit": "unit",
    "tests/slots": "slots",
    "tests/typing": "typing",
    "tests/docs": "docs",
    "tests/architecture": "architecture",
    "tests/architecture/test_mutants.py": "mutants",
    "tests/worker": "worker",
    "tests/odd_endings": "odd-endings",
    "tests/client": "client",
    "tests/resources": "resources",
    "tests/bulk": "bulk",
    "tests/ops": "bulk",
    "tests/schedules": "schedules",
    "tests/cli": "cli",
    "tests/moving": "moving",
    "tests/outbox": "outbox",
    "tests/dashboard": "dashboard",
    "tests/browser": "browser",
    "tests/simulation": "simulation",
    "tests/flow": "flow",
    "tests/omniq": "omniq",
    "tests/on_uvloop": "uvloop",
    "tests/supervisor": "supervisor",
    "tests/processes": "processes",
    "tests/django_admin": "django-admin",
    "tests/observe": "observe",
    "tests/everyday": "everyday",
    "tests/stall": "stall",
    "tests/survival": "survival",
    "tests/cost": "cost-redis",
    "tests/release": "release",
    "tests/secrecy": "secrets",
    "tests/in_django": "django",
    "tests/security": "security",
    "tests/cli/test_secrets.py": "secrets",
    "tests/observe/test_secrets.py": "secrets",
}


class Lane(NamedTuple):
    """One line of tests/lanes.txt."""

    name: str
    ceiling: int
    """Seconds that its tests may take in `make test`, added up, on two quiet cores; more is reported, not a failure."""
    runs: frozenset[str]
    servers: tuple[str, ...] = ()


Tally = Counter[str]  # outcome → number of tests


@dataclass
class Record:
    """What happened in one lane."""

    tally: Tally = field(default_factory=Counter)
    seconds: float = 0.0
    """How long its tests took, added up; a server is on the account of the first test that asked for it."""
    left: Counter[str] = field(default_factory=Counter)
    """Larger run → the tests that this run leaves to it."""

    def add(self, other: "Record") -> None:
        self.tally += other.tally
        self.seconds += other.seconds
        self.left |= other.left  # each process leaves out the same tests


def lane_of(path: str) -> str | None:
    """The lane of a test file by its place in the tree (a path relative to the root, with slashes)."""
    fits = [prefix for prefix in DIRECTORIES if path == prefix or path.startswith(f"{prefix}/")]
    return DIRECTORIES[max(fits, key=len)] if fits else None


def read_list(text: str) -> list[Lane]:
    """The lanes of a list; every one is in `test` and `full`, some are in other runs too."""
    lanes: list[Lane] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, ceiling, *others = *words, *([""] if len(words) == 1 else [])
        runs = [word for word in others if not word.startswith("+")]
        servers = [word[1:] for word in others if word.startswith("+")]
        if not ceiling.isdigit():
            raise ValueError(f"lanes, line {number}: expected a ceiling in seconds after {name}, got {ceiling!r}")
        if unknown := set(runs) - set(RUNS):
            raise ValueError(f"lanes, line {number}: expected {', '.join(RUNS)}, got {', '.join(sorted(unknown))}")
        if unknown := set(servers) - set(SERVERS):
            raise ValueError(f"lanes, line {number}: expected {', '.join(SERVERS)}, got {', '.join(sorted(unknown))}")
        if any(lane.name == name for lane in lanes):
            raise ValueError(f"lanes, line {number}: {name} is listed twice")
        lanes.append(Lane(name, int(ceiling), frozenset({"test", "full", *runs}), tuple(servers)))
    return lanes


def listed() -> list[Lane]:
    """The lanes of tests/lanes.txt."""
    return read_list(LIST.read_text(encoding="utf-8"))


# What a run leaves behind


def write_records(folder: Path, process: str, records: Mapping[str, Record]) -> None:
    """Write down what one process ran. Processes never share a file."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = {name: vars(record) for name, record in records.items()}
    (folder / f"{process}.json").write_text(json.dumps(plain, indent=1, sort_keys=True), encoding="utf-8")


def read_records(folder: Path) -> dict[str, Record]:
    """What all processes of a run wrote, added up."""
    total: dict[str, Record] = {}
    for file in sorted(folder.glob("*.json")):
        for name, found in json.loads(file.read_text(encoding="utf-8")).items():
            record = Record(Counter(found["tally"]), found["seconds"], Counter(found["left"]))
            total.setdefault(name, Record()).add(record)
    return total


# The comparison


def how_to_run(name: str, run: str) -> str:
    prefix = "" if run == "test" else f"TASKHARBOR_LANE={run} "
    return f"{prefix}make lane LANE={name}"


def compare(lanes: Iterable[Lane], ran: Mapping[str, Record], run: str = "test") -> list[str]:
    """Everything that is wrong with what ran; empty when every expected lane ran and no other."""
    expected = {lane.name: lane for lane in lanes}
    wrong = []
    for name, lane in expected.items():
        record = ran.get(name, Record())
        wrong += [
            f"lane {name} leaves {record.left[larger]} test(s) to {larger}, where it is not listed to run"
            for larger in sorted(record.left.keys() - lane.runs)
        ]
        if run not in lane.runs:
            continue
        if name not in ran:
            wrong.append(f"lane {name} did not run: no test belongs to it. Run it with: {how_to_run(name, run)}")
        elif not record.tally["passed"]:
            met = ", ".join(f"{record.tally[kind]} {kind}" for kind in OUTCOMES if record.tally[kind]) or "no test ran"
            wrong.append(f"lane {name} is empty: none passed ({met}). Run it with: {how_to_run(name, run)}")
    unlisted = sorted(ran.keys() - expected.keys())
    return wrong + [f"lane {name} ran, but tests/lanes.txt does not list it: {UNLISTED}" for name in unlisted]


def slow(lanes: Iterable[Lane], ran: Mapping[str, Record], run: str = "test") -> list[str]:
    """The lanes above their ceiling. They are reported only: a slow test is not a failure."""
    if run not in ("test", "quick"):
        return []
    above = [(lane, ran[lane.name].seconds) for lane in lanes if lane.name in ran]
    return [
        f"lane {lane.name} took {seconds:.0f} s, its ceiling is {lane.ceiling} s"
        for lane, seconds in above
        if seconds > lane.ceiling
    ]


def table(lanes: Iterable[Lane], ran: Mapping[str, Record], run: str = "test") -> str:
    """Lane → tests passed and seconds, in the order of the list, with unlisted ones at the end."""
    ceilings = {lane.name: lane.ceiling for lane in lanes if run in lane.runs or lane.name in ran}
    names = [*ceilings, *sorted(ran.keys() - ceilings.keys())]
    width = max((len(name) for name in names), default=0)
    lines = []
    for name in names:
        record = ran.get(name, Record())
        of = f" of {ceilings[name]:>3}" if name in ceilings and run in ("test", "quick") else ""
        others = [f"{record.tally[kind]} {kind}" for kind in OUTCOMES[1:] if record.tally[kind]]
        others += [f"{number} more in {larger}" for larger, number in sorted(record.left.items())]
        more = f"  ({', '.join(others)})" if others else ""
        lines.append(f"  {name:<{width}}  {record.tally['passed']:>5} passed  {record.seconds:>5.0f}{of} s{more}")
    return "\n".join(lines)


# The knobs of the other runs


def run() -> str:
    """Which run this is: test, quick, full, matrix, chaos or soak."""
    value = os.environ.get("TASKHARBOR_LANE") or "test"
    if value not in RUNS:
        raise ValueError(f"TASKHARBOR_LANE: expected {', '.join(RUNS)}, got {value!r}")
    return value


def figure(test: int, full: int | None = None, chaos: int | None = None) -> int:
    """How many (seeds, walks, jobs, kills) in this run: `full` in `make full`, `chaos` in the rows of `make chaos`.

    Where `chaos` is not given it is `full`, and where `full` is not given it is `test`.
    """
    larger = test if full is None else full
    return {"full": larger, "chaos": larger if chaos is None else chaos}.get(run(), test)


def few(every: Iterable[T], chosen: Iterable[T]) -> list[T]:
    """What one test goes through: the chosen ones in `make test`, all of them in `make full` and `make chaos`."""
    whole, some = list(every), list(chosen)
    if unknown := [item for item in some if item not in whole]:
        raise ValueError(f"few: expected some of {whole}, got {unknown}")
    return whole if run() in ("full", "chaos") else some


class Chosen:
    """For `left_to(…, except_for=)`: tests by name, with or without parameters, or by the id of one parameter.

    >>> chosen = Chosen("test_it_stops", "sqlite")
    >>> chosen("test_it_stops[3]"), chosen("test_kills[sqlite-3]"), chosen("test_kills[redis-3]")
    (True, True, False)
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def __call__(self, test: str) -> bool:
        return any(self.fits(test, name) for name in self.names)

    @staticmethod
    def fits(test: str, name: str) -> bool:
        function, _, parameters = test.removesuffix("]").partition("[")
        return name in (test, function) or f"-{name}-" in f"-{parameters}-"


def shrinks() -> bool:
    """Whether a state machine looks for the shortest walk that fails: `make test` prints the one it found, at once."""
    return run() in ("full", "chaos", "soak")


def seed() -> int:
    """Where seeded tests begin; `make full` and each round of a soak choose another one, and print it."""
    return int(os.environ.get("TASKHARBOR_SEED") or 0)


def seconds() -> float:
    """How long a soak lasts, for a test that can go on by itself."""
    return float(os.environ.get("SECONDS") or 600)


def seeded(name: str, command: Sequence[str], start: int, left: int) -> int:
    """Run a command once, as the run of this name, with this seed; how it ended. A failure says how to repeat it."""
    knobs = {"TASKHARBOR_LANE": name, "TASKHARBOR_SEED": str(start), "SECONDS": str(left), "PYTHONHASHSEED": str(start)}
    again = [*command, f"--hypothesis-seed={start}"]
    print(f"{name}: {left} s left, TASKHARBOR_SEED={start}" if left else f"{name}: SEED={start}", flush=True)
    code = subprocess.run(again, env={**os.environ, **knobs}).returncode
    if code:
        shown = " ".join(f"{knob}={value}" for knob, value in knobs.items())
        print(f"{name}: failed. Again: {shown} {shlex.join(again)}", file=sys.stderr)
    return code


def fresh_seed() -> int:
    """The seed that SEED gives, or another one each time."""
    return int(os.environ.get("SEED") or secrets.randbelow(2**31))


def soak(command: Sequence[str], budget: float) -> int:
    """Run `command` again and again with fresh seeds until the time is over or a round fails."""
    end = time.monotonic() + budget
    code, left = 0, budget
    while not code and left > 0:
        code = seeded("soak", command, fresh_seed(), max(1, round(left)))
        left = end - time.monotonic()
    return code


def check(folder: Path, name: str) -> int:
    lanes, ran = listed(), read_records(folder)
    print(table(lanes, ran, name))
    loud = slow(lanes, ran, name)
    for sentence in loud:
        print(f"lanes: WARNING: {sentence}")
    if loud:
        print(f"lanes: ceilings are for two quiet cores; {load()}. Make the lane smaller, or its ceiling larger.")
    wrong = compare(lanes, ran, name)
    for sentence in wrong:
        print(f"lanes: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


def load() -> str:
    one, five, fifteen = os.getloadavg()
    return f"here are {os.cpu_count()}, with a load of {one:.1f} ({five:.1f} over 5 minutes, {fifteen:.1f} over 15)"


def servers(name: str) -> int:
    """Print the servers that a lane needs, for tests/servers/provision."""
    lane = next((lane for lane in listed() if lane.name == name), None)
    if lane is None:
        names = ", ".join(lane.name for lane in listed())
        print(f"lane: expected one of the lanes of tests/lanes.txt, got {name!r}: {names}", file=sys.stderr)
        return 2
    print(" ".join(lane.servers) or "none")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description="Did every lane run?")
    verbs = parser.add_subparsers(dest="verb", required=True)
    checking = verbs.add_parser("check", help="compare what a run wrote down with tests/lanes.txt")
    checking.add_argument("folder", type=Path, nargs="?", default=ROOT / ".lanes")
    checking.add_argument("--run", choices=RUNS, default="test")
    serving = verbs.add_parser("servers", help="print the servers that a lane needs")
    serving.add_argument("lane")
    for verb, what in (("soak", "repeat a command with fresh seeds for SECONDS"), ("full", "run a command with SEED")):
        verbs.add_parser(verb, help=what).add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    if options.verb == "check":
        return check(options.folder, options.run)
    if options.verb == "servers":
        return servers(options.lane)
    if options.verb == "full":
        return seeded("full", options.command, fresh_seed(), 0)
    return soak(options.command, seconds())


if __name__ == "__main__":
    sys.exit(main())
