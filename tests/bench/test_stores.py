"""The benchmark of the stores still runs: each subject once, with a handful of jobs, and no timing asserted."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bench.handwritten import postgres as limit
from bench.meter import Order
from bench.stores import environments, harbor, places, plan, rounds
from bench.stores.plan import LATENCY, MEMBERS, Row, Sizes
from tests import lanes
from tests.servers import postgres

pytestmark = pytest.mark.lane("bench")

TINY = Sizes(rounds=1, jobs=60, seconds=0.01, picks=2, small=40, backlog=80, few=5, members=20)
OURS = [(store, row) for store in plan.STORES for row in plan.rows(store) if not row.subject.peer]
PEERS = [
    (store, row)
    for store in plan.STORES
    for row in plan.rows(store)
    if row.subject.peer and row.section == plan.PROCESS
]

Open = Callable[[str], places.Places]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def open_places(store: str) -> places.Places:
        if store == "sqlite":
            return places.Files(tmp_path)
        return places.Databases(postgres.shared()) if store == "postgres" else places.Servers()

    return open_places


@pytest.fixture
def place(opened: Open, request: pytest.FixtureRequest) -> Iterator[places.Place]:
    made = opened(request.getfixturevalue("store")).new()
    yield made
    made.close()


def measured(row: Row, mode: str, place: places.Place, jobs: int) -> dict[str, Any]:
    """A sample in this process."""
    group = getattr(TINY, row.group) if row.group else 0
    order = Order(row.subject.address.format(place.address), jobs, group, place.server, row.relaxed, row.width)
    answer = import_module(row.subject.module).MODES[mode](order)

    async def awaited() -> Any:
        return await answer

    found = asyncio.run(awaited()) if inspect.isawaitable(answer) else answer
    assert isinstance(found, dict)
    return found


@pytest.mark.left_to("full", except_for=lanes.Chosen("process-ours", "enqueue-many-ours", "members-ours"))
@pytest.mark.parametrize(
    ("store", "row"),
    [case for case in OURS if case[1].section != LATENCY],
    ids=lambda case: getattr(case, "name", case),
)
def test_a_subject_does_every_job(store: str, row: Row, place: places.Place) -> None:
    jobs = TINY.of(row)
    if row.waiting:
        waiting = getattr(TINY, row.waiting)
        assert measured(row, "enqueue-many", place, waiting)["jobs"] == waiting
    sample = measured(row, row.mode, place, jobs)
    assert sample["wall"] > 0
    # A worker that its handler stops runs a few more jobs before it stops; a loop claims a hundred at a time.
    # (One more waits than was asked for: the call that opens the store brings it.)
    assert jobs <= sample["jobs"] <= jobs + (getattr(TINY, row.waiting) + 1 if row.waiting else 0)


@pytest.mark.parametrize("store", plan.STORES)
def test_an_idle_worker_in_another_process_takes_part(store: str, opened: Open) -> None:
    row = next(row for row in plan.rows(store) if row.name == "latency-ours")
    run = rounds.run([row], TINY, opened(store), lambda _: None)
    (sample,) = run.samples["latency-ours"]
    assert len(sample.latencies) == TINY.picks
    assert all(latency > 0 for latency in sample.latencies)


@pytest.mark.may_skip("the others are installed by `make bench` only")
@pytest.mark.parametrize(("store", "row"), PEERS, ids=lambda case: getattr(case, "name", case))
def test_a_peer_does_every_job(store: str, row: Row, opened: Open) -> None:
    if not environments.ready(row.subject.peer):
        pytest.skip(f"{row.subject.peer} is not installed")
    run = rounds.run([row], TINY, opened(store), lambda _: None)
    assert run.left_out == {}
    assert run.samples[row.name][0].jobs == TINY.of(row) - 1  # from the first to the last


# What is planned


@pytest.mark.parametrize(("store", "option"), [("sqlite", "synchronous=normal"), ("postgres", "reserve=unflushed")])
def test_a_relaxed_row_is_opened_with_the_weaker_setting(store: str, option: str) -> None:
    row = next(row for row in plan.rows(store) if row.name == "relaxed-ours")
    assert [each.relaxed for each in plan.rows(store) if each.section == row.section].count(False) == 0
    address = row.subject.address.format("/file" if store == "sqlite" else "postgresql://host/db")
    assert harbor._dsn(Order(address, 1, relaxed=True)) == f"{address}?{option}"
    assert harbor._dsn(Order(address, 1)) == address


def test_the_loop_of_postgres_flushes_its_acknowledgements_always_and_its_claims_unless_relaxed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Any, Any]] = []

    def work(order: Order, acks: limit.Connection, claims: limit.Connection) -> int:
        ack, claim = (each.execute("show synchronous_commit").fetchone() for each in (acks, claims))
        seen.append((ack, claim))
        return 0

    monkeypatch.setattr(limit, "_work", work)
    address = postgres.shared().address(postgres.shared().database())
    for relaxed in (False, True):
        limit.process(Order(address, 1, relaxed=relaxed))
    assert seen == [(("on",), ("on",)), (("on",), ("off",))]


@pytest.mark.parametrize("store", plan.STORES)
def test_every_row_has_its_program_and_what_it_is_compared_with(store: str) -> None:
    rows = {row.name: row for row in plan.rows(store)}
    assert len(rows) == len(plan.rows(store))
    for row in rows.values():
        assert not row.base or rows[row.base].section == row.section
        program = environments.command(row.subject.module, row.subject.peer)[-1]
        assert any(Path(environments.ROOT, name).exists() for name in (program, f"{program.replace('.', '/')}.py"))
        assert not row.subject.peer or row.subject.peer in environments.PEERS
        assert "{" not in TINY.title(row)
    sections = [row.section for row in rows.values()]
    assert sections == sorted(sections, key=plan.SECTIONS.index)
    assert sections.count(MEMBERS) == 2


# What goes wrong


def subject(module: str, peer: str = "") -> Row:
    made = plan.Subject(peer or "ours", "title", module, 1, 1, 1, peer=peer)
    return Row("row", plan.PROCESS, "title", made, "process")


def test_a_peer_that_is_not_there_or_fails_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = places.Files(tmp_path)
    run = rounds.run([subject("bench.nothing", "nobody")], TINY, files, lambda _: None)
    assert run.left_out == {"nobody": "it is not installed; `make bench` does that"}
    monkeypatch.setattr(environments, "ready", lambda peer: True)
    monkeypatch.setattr(environments, "python", lambda peer: environments.ROOT / ".venv/bin/python")
    monkeypatch.setattr("sys.executable", "python3")
    run = rounds.run([subject("bench.nothing", "nobody")], TINY, files, lambda _: None)
    assert run.samples == {}
    assert "No module named bench.nothing" in run.left_out["nobody"]


def test_our_own_sample_must_not_fail(tmp_path: Path) -> None:
    with pytest.raises(rounds.Failed, match=r"No module named bench\.nothing"):
        rounds.run([subject("bench.nothing")], TINY, places.Files(tmp_path), lambda _: None)


@pytest.mark.left_to("full")
def test_a_sample_that_does_not_answer_is_ended_with_what_it_started(tmp_path: Path) -> None:
    with closing_place(places.Files(tmp_path)) as place, pytest.raises(rounds.Failed, match="no answer within") as told:
        rounds.sample(subject("tests.bench.sleeper"), "process", place, 1, limit=3)
    worker = int(str(told.value).partition("worker ")[2].split()[0])
    assert not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2]


def closing_place(files: places.Places) -> closing[Any]:
    return closing(files.new())
