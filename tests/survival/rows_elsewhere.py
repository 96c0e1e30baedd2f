"""Rows whose tests are in other lanes: run here at the size of the table, and counted."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests import lanes
from tests.survival.field import ROOT
from tests.survival.figures import Figures
from tests.survival.registry import ALL, row

MACHINES = {
    "memory": "test_machine_memory.py::TestMachine",
    "sqlite": "test_machine_sqlite.py::TestMachine",
    "postgres": "test_machine_postgres.py::TestMachine",
    "redis": "test_machine_redis.py::TestRedis",
    "cluster": "test_machine_redis.py::TestCluster",
}
CASES = {
    "memory": "test_conformance_memory.py::TestMemory",
    "sqlite": "test_conformance_sqlite.py::TestSqlite",
    "postgres": "test_conformance_postgres.py::TestPostgres",
    "redis": "test_conformance_redis.py::TestRedis",
    "cluster": "test_conformance_cluster.py::TestCluster",
}
STEPS = 50  # of each walk


def passed(folder: Path, *nodes: str, **environment: str) -> int:
    """Run tests in a process of their own; how many passed. What failed is printed."""
    report = folder / "report.xml"
    program = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command = [*program, "--timeout=3600", f"--junitxml={report}", *nodes]
    seed = [f"--hypothesis-seed={lanes.seed()}"]
    done = subprocess.run(
        [*command, *seed], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
    [suite] = ElementTree.parse(report).getroot().iter("testsuite")
    count = {name: int(suite.get(name, "0")) for name in ("tests", "skipped")}
    return count["tests"] - count["skipped"]


@row("model", stores=ALL, seconds=260, elsewhere=True)
def model(store: str, folder: Path) -> Figures:
    """Random walks of calls: the driver, a model of the contract and an oracle agree at each step."""
    walks = lanes.figure(test=2, chaos=100)
    passed(folder, f"tests/drivers/{MACHINES[store]}", TASKHARBOR_MACHINE_RUNS=str(walks))
    return Figures(jobs=0, faults=0, what="none", note=f"{walks} walks × {STEPS} calls, no difference")


def _played(seeds: range) -> tuple[int, int, int, list[str], Counter[str]]:
    from tests.simulation.plan import make_plan
    from tests.simulation.run import play

    jobs = faults = 0
    wrong: list[str] = []
    happened: Counter[str] = Counter()
    for seed in seeds:
        plan = make_plan(seed)
        journal = play(plan)
        jobs += sum(map(len, plan.batches))
        faults += len(plan.faults)
        happened.update(journal.happened)
        if journal.problems:
            wrong.append(f"seed {seed}: {journal.problems[0]}")
    return len(seeds), jobs, faults, wrong, happened


@row("simulation", stores=("memory",), seconds=400, elsewhere=True)
def simulation(store: str, folder: Path) -> Figures:
    """The real client and worker on virtual time, with faults that a seed decides."""
    seeds, pieces = lanes.figure(test=40, chaos=3000), 40
    begin = lanes.seed()
    parts = [range(begin + piece, begin + seeds, pieces) for piece in range(pieces)]
    total, jobs, faults, happened = 0, 0, 0, Counter[str]()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for count, some_jobs, some_faults, wrong, met in pool.map(_played, parts):
            assert not wrong, f"{wrong[0]}\nagain: python -m tests.simulation {wrong[0].split()[1].rstrip(':')}"
            total, jobs, faults = total + count, jobs + some_jobs, faults + some_faults
            happened += met
    return Figures(jobs=jobs, faults=faults, what=f"faults of {len(happened)} kinds on virtual time",
                   note=f"{total:,} seeds, no violation")  # fmt: skip


@row("damaged", stores=ALL, seconds=200, elsewhere=True)
def damaged(store: str, folder: Path) -> Figures:
    """Wrong types, missing fields, unknown states, bad UTF-8, huge values in stored records."""
    # On a Cluster each sample takes several times as long: the larger figure is for `make full`.
    small = store == "cluster"
    cases = passed(
        folder, f"tests/drivers/{CASES[store]}", "-k", "damaged", **({"TASKHARBOR_LANE": "test"} if small else {})
    )
    samples = 8 if small else lanes.figure(test=8, chaos=1000)
    return Figures(jobs=samples, faults=samples, what="damaged fields of stored records",
                   note=f"{cases} cases; workers go on, the record is set aside")  # fmt: skip


@row("pgbouncer", stores=("postgres",), seconds=200, elsewhere=True)
def pgbouncer(store: str, folder: Path) -> Figures:
    cases = passed(folder, "tests/drivers/test_conformance_pgbouncer.py", TASKHARBOR_LANE="matrix")
    return Figures(jobs=0, faults=0, what="none", note=f"{cases} cases of the contract through pgbouncer, green")


@row("many-processes", stores=("sqlite",), seconds=90, elsewhere=True)
def many_processes(store: str, folder: Path) -> Figures:
    node = "test_sqlite_processes.py::test_many_processes_never_see_a_locked_database"
    passed(folder, f"tests/drivers/{node}")
    many, rounds = lanes.figure(test=8, chaos=16), lanes.figure(test=25, chaos=400)
    return Figures(jobs=many * rounds * 3, faults=many, what=f"{many} processes write at once",
                   note='"database is locked" never surfaced')  # fmt: skip
