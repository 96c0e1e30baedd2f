"""Flows on a Redis Cluster whose steps are in queues of different primaries: what releases one goes there by message.

Real workers are killed, at random and at every command of the last member; the next worker delivers what they left.
"""

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor, JobCancelled
from taskharbor.drivers import Ack
from taskharbor.flow.run import FlowRun
from taskharbor.model.errors import JobNotInflight
from taskharbor.testing import ManualClock, drain
from tests import lanes
from tests.flow.cluster_worker import ANSWER, GROWN, NORTH, QUEUES, Work
from tests.flow.fork_server import STOPPED, forks
from tests.flow.stores import MakeHarbor
from tests.flow.worker_processes import WORKERS, Crew, crew, store
from tests.servers import redis as servers

pytestmark = pytest.mark.left_to(
    "full", except_for=lanes.Chosen("test_a_flow_across_hash_slots_is_cancelled_as_a_whole")
)

FLOWS = lanes.figure(10, 60)
KILLS = lanes.figure(3, 12)
STRIDE = lanes.figure(4, 1)  # in `make test` every fourth command
STOPS = lanes.figure(9, 60)  # the first commands settle the last member and deliver what comes of it
LEASE = timedelta(seconds=30)


@pytest.fixture
def cluster() -> str:
    """A Cluster of three primaries, emptied; each of the queues is on another one."""
    shared = servers.shared_cluster()
    shared.empty()
    assert len({shared.primary_of(f"{{{queue}}}").port for queue in QUEUES}) == 3
    return f"{shared.url}?checks=0"


@contextmanager
def harbor_later(dsn: str, journal: Path, seconds: float) -> Iterator[tuple[Harbor, Work]]:
    """A harbor whose clock is `seconds` ahead: leases of the dead are over."""
    with Harbor(dsn, queues=QUEUES, clock=ManualClock(datetime.now(UTC) + timedelta(seconds=seconds))) as harbor:
        yield harbor, Work(harbor, str(journal))


def began(journal: Path) -> dict[str, list[int]]:
    """The processes in which each job began, and the jobs in the order in which they did first."""
    found: dict[str, list[int]] = defaultdict(list)
    for line in journal.read_text().splitlines():
        id, pid = line.split()
        found[id].append(int(pid))
    return found


def look_at(flow: Any, lines: dict[str, list[int]], killed: set[int]) -> None:
    """Every job began after what it depends on, and again only if the process that ran it was killed."""
    order = list(lines)
    for id in flow.states:
        pids = lines.get(id, [])
        assert killed.issuperset(pids[:-1]), f"{id} was executed again without a kill: {pids}"
        assert pids or flow.states[id] == "cancelled", f"{id} is {flow.states[id]} and never ran"
    for dependency, dependent in flow.edges:
        if dependent in lines:
            assert order.index(dependency) < order.index(dependent), f"{dependent} ran before {dependency}"


def all_but_the_last_member(dsn: str, journal: Path) -> str:
    """A nested chord of which one member is left to run, in south; answers its id."""
    journal.write_text("")
    with harbor_later(dsn, journal, 0) as (harbor, work):
        flow: str = work.nested().enqueue().id
        harbor.worker(queues=[NORTH], heart="loop").run(until_empty=True)
    assert len(began(journal)) == 2
    return flow


def finished(dsn: str, journal: Path, id: str) -> FlowRun:
    """The flow after others have done what is left, when leases of the dead are over."""
    with harbor_later(dsn, journal, 60) as (harbor, _):
        for _ in range(10):  # what crosses hash slots may need another reserve, on a busy machine
            drain(harbor)
            flow = harbor.flow(id)
            if flow.status == "succeeded":
                break
        assert (flow.status, flow.result(1)) == ("succeeded", ANSWER)
    return flow


@pytest.mark.timeout(600)
def test_a_worker_killed_at_any_command_after_the_last_member_releases_each_finalizer_once(
    cluster: str, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    with forks("tests.flow.cluster_worker", cluster, journal) as worker:
        for point in range(1, 200, STRIDE):
            id = all_but_the_last_member(cluster, journal)
            code = worker(point)
            flow = finished(cluster, journal, id)
            runs = list(began(journal).values())
            assert len(runs) == 5
            assert sum(map(len, runs)) - 5 <= (code != 0), f"killed once, at {point}, and ran again: {runs}"
            look_at(flow, began(journal), {runs[2][0]} if code else set())
            if code == 0:
                break
            assert code == -signal.SIGKILL
    assert point > 12, "there were hardly any commands to die at"


@pytest.mark.timeout(600)
def test_a_worker_stopped_at_a_command_after_the_last_member_changes_nothing_when_it_comes_back(
    cluster: str, tmp_path: Path
) -> None:
    """What it has read from an outbox was delivered by others meanwhile, and the finalizers ran: it says it again."""
    journal = tmp_path / "journal"
    with forks("tests.flow.cluster_worker", cluster, journal) as worker:
        for point in range(1, STOPS):
            id = all_but_the_last_member(cluster, journal)
            code = worker(-point)
            before = finished(cluster, journal, id)
            if code == 0:
                break
            assert code == STOPPED
            lines = journal.read_text().splitlines()
            stopped = list(began(journal).values())[2][0]
            assert worker(0) == 0  # it goes on
            after = finished(cluster, journal, id)
            assert (after.nodes, after.edges) == (before.nodes, before.edges), point
            again = journal.read_text().splitlines()[len(lines) :]
            assert len(again) <= 1, again  # what it had reserved it may still run; what it says of it is refused
            assert all(line.endswith(f" {stopped}") for line in again), point


@pytest.mark.timeout(1800)
def test_flows_across_hash_slots_under_random_kills_and_cancels(
    cluster: str, tmp_path: Path, harbor_on: MakeHarbor
) -> None:
    chances, journal = random.Random(lanes.seed()), tmp_path / "journal"
    harbor = harbor_on(cluster, queues=QUEUES)
    work = Work(harbor, str(journal))
    handles = [work.grown().enqueue() for _ in range(FLOWS)]
    to_cancel = handles[::5]
    jobs = FLOWS * len(harbor.flow(handles[0].id).nodes)  # before any of them grows
    cancelled: dict[str, int] = {}
    with crew("tests.flow.cluster_worker", cluster, journal) as workers:
        for turn in range(KILLS):
            wanted = jobs * (turn + chances.random()) / (KILLS + 1)
            wait(harbor, workers, lambda counts, wanted=wanted: counts["done"] + counts["cancelled"] >= wanted)
            workers.kill(workers.busy() if chances.random() < 0.7 else chances.randrange(WORKERS))
            for handle in to_cancel[turn::KILLS]:
                cancelled[handle.id] = handle.cancel()
        wait(harbor, workers, lambda counts: set(counts) <= {"done", "cancelled"})
    lines = began(journal)
    assert set(lines) <= {id for handle in handles for id in harbor.flow(handle.id).states}, "something ran twice over"
    for handle in handles:
        flow = harbor.flow(handle.id)
        look_at(flow, lines, set(workers.killed))
        if cancelled.get(handle.id):
            assert flow.status == "cancelled"
        else:
            assert (flow.status, flow.result(60)) == ("succeeded", GROWN)


def wait(harbor: Harbor, workers: Crew, condition: Any) -> None:
    """Until the counts of all queues together fulfil the condition; meanwhile the leases of the dead are given back."""
    before: dict[str, int] = {}
    while True:
        counts: dict[str, int] = defaultdict(int)
        for states in store(harbor, lambda d, now: d.counts(now)).values():
            for state, number in states.items():
                counts[state] += number
        if condition(counts):
            return
        if counts != before:
            before, end = dict(counts), time.monotonic() + 60
        assert time.monotonic() < end, f"nothing has moved for a minute: {before}"
        workers.give_back(harbor)
        time.sleep(0.05)


def test_a_flow_across_hash_slots_is_cancelled_as_a_whole(cluster: str, tmp_path: Path, harbor_on: MakeHarbor) -> None:
    journal = tmp_path / "journal"
    harbor = harbor_on(cluster, clock=ManualClock(), queues=QUEUES)
    work = Work(harbor, str(journal))
    handle, other = work.nested().enqueue(), work.nested().enqueue()

    def take(queue: str) -> Any:
        (taken,) = store(harbor, lambda d, now: d.reserve([queue], now, LEASE, 1))
        assert taken.job.flow_id == handle.id
        return taken

    def ack(taken: Any) -> Any:
        return store(harbor, lambda d, now: d.settle([Ack(taken.lease, b"1")], now))[0]

    assert ack(take("north")) is None
    runs = take("south")
    assert handle.cancel() == 4
    assert isinstance(ack(runs), JobNotInflight)
    assert sorted(harbor.flow(handle.id).states.values()) == ["cancelled"] * 4 + ["done"]
    drain(harbor)
    assert handle.status() == "cancelled"
    assert handle.cancel() == 0
    with pytest.raises(JobCancelled):
        handle.result(1)
    assert other.result(1) == ANSWER
    assert set(began(journal)) == set(harbor.flow(other.id).states)
