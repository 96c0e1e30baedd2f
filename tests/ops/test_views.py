"""What operators see, as values: why a job waits, what happened lately, what needs them, the drawing of a flow."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.drivers import Fail, JobInfo, JobRecord, State
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import Figures, FlowInfo, WorkerInfo, flow_info
from taskharbor.ops import operator
from taskharbor.ops.access import Access, AccessDenied
from taskharbor.ops.attention import MAX_UNSERVED, read_attention
from taskharbor.ops.flow_view import MAX_BOXES, GraphDrawing, view_of
from taskharbor.ops.job_view import timeline_of
from taskharbor.ops.operator import OperatorSession, PageTooSlow, StoreReading
from taskharbor.store import queues as queue_rows
from taskharbor.store.diagnose import word_for
from taskharbor.store.figures import read_figures, series_of
from taskharbor.store.queues import CAP_JOBS, MAX_COUNTED_JOBS, cap_for, read_busiest_rows, read_queue_rows
from taskharbor.store.situation import ListSituation, read_list_situation

NOW = datetime(2030, 1, 15, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def on_memory(call: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        driver = MemoryDriver()
        await driver.open()
        await call(driver)
        await driver.close()

    asyncio.run(run())


def info(state: State = State.READY, **fields: Any) -> JobInfo:
    fields.setdefault("queue", "mail")
    waiting = fields.pop("waiting_for", ())
    return JobInfo(JobRecord(id="j", type="t", created_at=NOW, **fields), state, waiting_for=waiting)


def worker(running: int = 0, **fields: Any) -> WorkerInfo:
    return WorkerInfo("w", ("mail",), running, NOW, concurrency=2, seen_at=NOW, **fields)


@pytest.mark.parametrize(
    ("job", "facts", "code"),
    [
        (info(), ListSituation(NOW), "no_worker"),
        (info(), ListSituation(NOW, workers=(worker(),)), "next"),
        (info(), ListSituation(NOW, workers=(worker(2),)), "workers_busy"),
        (info(), ListSituation(NOW, frozenset({"mail"}), (worker(),)), "paused"),
        (
            info(group="g"),
            ListSituation(NOW, workers=(worker(),), full={("mail", "g"): (info(State.INFLIGHT),)}),
            "group_full",
        ),
        (info(), ListSituation(NOW, workers=(worker(),), declared=frozenset({"other"})), "unknown_type"),
        (info(), ListSituation(NOW, workers=(worker(),), declared=frozenset({"t"})), "next"),
        (info(State.SCHEDULED, run_at=NOW + MINUTE), ListSituation(NOW), "not_due"),
        (info(State.SCHEDULED, run_at=NOW + MINUTE, attempts=1), ListSituation(NOW), "retry_not_due"),
        (info(State.SCHEDULED, run_at=NOW + MINUTE, deliveries=1), ListSituation(NOW), "given_back"),
        (info(State.BLOCKED, waiting_for=("a", "b")), ListSituation(NOW), "blocked"),
        (info(State.DONE), ListSituation(NOW), None),
        (info(State.INFLIGHT), ListSituation(NOW), None),
    ],
)
def test_a_row_has_one_word_for_why_it_waits(job: JobInfo, facts: ListSituation, code: str | None):
    word = word_for(job, facts)
    assert (None if word is None else word.code) == code


def test_words_for_a_page_cost_no_more_with_more_rows():
    async def read(driver: Any) -> None:
        jobs = [info(queue=f"q{number}", group=f"g{number}") for number in range(500)]
        calls: list[str] = []
        for verb in ("is_paused", "list", "workers"):
            inner = getattr(driver, verb)

            async def counted(*args: Any, verb: str = verb, inner: Any = inner, **options: Any) -> Any:
                calls.append(verb)
                return await inner(*args, **options)

            setattr(driver, verb, counted)
        await read_list_situation(driver, NOW, jobs)
        assert len(calls) <= 34
        calls.clear()
        await read_list_situation(driver, NOW, [info(State.DONE)])
        assert calls == []

    on_memory(read)


def test_figures_are_points_of_whole_steps_and_a_total_of_all():
    rows = [
        Figures(NOW - 2 * MINUTE, "mail", {"done": 3, "failed": 1, "ran_02": 4}),
        Figures(NOW - 2 * MINUTE, "bulk", {"done": 1}),
        Figures(NOW, "mail", {"done": 5}),
    ]
    series = series_of(rows, "1h", NOW - timedelta(hours=1))
    assert len(series.points) == 60
    assert (series.points[-2].done, series.points[-2].failed, series.points[-1].done) == (4, 1, 0)
    assert (series.total.done, series.executions, series.failure_share) == (9, 10, 0.1)
    assert series.points[-2].ran_p50 is not None
    assert series.points[0].ran_p50 is None


def test_figures_of_an_unknown_span_are_refused():
    async def read(driver: Any) -> None:
        with pytest.raises(ValueError, match="expected one of 1h, 24h, 72h"):
            await read_figures(driver, NOW, "1y")

    on_memory(read)


def test_a_queue_says_how_long_its_oldest_job_waits_and_who_serves_it():
    async def read(driver: Any) -> None:
        await driver.enqueue([JobRecord(id="a", type="t", queue="mail", created_at=NOW - 3 * MINUTE)], NOW - 3 * MINUTE)
        await driver.beat(worker(1), NOW)
        found = await read_queue_rows(driver, NOW)
        (row,) = found.rows
        assert (row.lag, row.workers, row.slots, row.running, row.unserved) == (3 * MINUTE, 1, 2, 1, False)
        assert row.as_json()["capped"] is False
        assert found.lag == 3 * MINUTE
        only = await read_queue_rows(driver, NOW, only="nothing")
        assert (only.rows[0].counts, only.rows[0].lag) == ({}, None)

    on_memory(read)


def test_counts_stop_at_the_cap():
    async def read(driver: Any) -> None:
        for start in range(0, CAP_JOBS + 1_000, 1_000):
            jobs = [JobRecord(id=f"{start + number}", type="t", queue="mail") for number in range(1_000)]
            await driver.enqueue(jobs, NOW)
        found = await read_queue_rows(driver, NOW)
        assert found.rows[0].counts["ready"] == CAP_JOBS
        assert found.capped("ready")
        assert found.rows[0].as_json()["capped"] is True

    on_memory(read)


def test_beside_many_queues_each_is_counted_less_far_and_the_busiest_are_shown():
    async def read(driver: Any) -> None:
        number = 300
        assert cap_for(number) * number <= MAX_COUNTED_JOBS
        jobs = [JobRecord(id=f"{each}-{n}", type="t", queue=f"q{each:03}") for each in range(number) for n in range(2)]
        jobs += [JobRecord(id=f"more-{n}", type="t", queue="zz") for n in range(cap_for(number) + 5)]
        for start in range(0, len(jobs), 500):
            await driver.enqueue(jobs[start : start + 500], NOW)
        found = await read_busiest_rows(driver, NOW, 3)
        assert [row.name for row in found.rows] == ["q000", "q001", "zz"]
        assert (found.names[0], len(found.names), found.capped("ready")) == ("zz", number + 1, True)
        assert found.rows[-1].as_json()["capped"] is True
        assert found.totals["ready"] == 2 * number + cap_for(number + 1)
        points = [point.text for point in await read_attention(driver, NOW, found, None)]
        assert points[0].startswith(f"No worker serves queue zz: {cap_for(number + 1)}+ ready")
        assert points[-1] == f"No worker serves {number + 1 - MAX_UNSERVED} more queues with ready jobs"
        page = await read_queue_rows(driver, NOW, after="q000", limit=2)
        assert ([row.name for row in page.rows], page.cursor) == (["q001", "q002"], "q002")
        assert (await read_queue_rows(driver, NOW, after="q299", limit=2)).cursor is None

    on_memory(read)


def test_the_oldest_wait_is_that_of_all_queues_also_without_a_row(monkeypatch: pytest.MonkeyPatch):
    async def read(driver: Any) -> None:
        await driver.enqueue([JobRecord(id="old", type="t", queue="small")], NOW - 60 * MINUTE)
        await driver.enqueue([JobRecord(id=f"{n}", type="t", queue=f"q{n % 4}") for n in range(8)], NOW)
        found = await read_busiest_rows(driver, NOW, 3)
        assert "small" not in [row.name for row in found.rows]
        assert (found.lag, found.lag_known) == (60 * MINUTE, True)
        monkeypatch.setattr(queue_rows, "MAX_OTHERS", 1)
        found = await read_busiest_rows(driver, NOW, 3)
        assert (found.lag, found.lag_known) == (0 * MINUTE, False)

    on_memory(read)


def test_a_paused_queue_without_a_row_is_mentioned():
    async def read(driver: Any) -> None:
        await driver.enqueue([JobRecord(id=f"{n}", type="t", queue=f"q{n % 4}") for n in range(8)], NOW - MINUTE)
        await driver.enqueue([JobRecord(id="old", type="t", queue="small")], NOW - 60 * MINUTE)
        await driver.pause("small")
        points = await read_attention(driver, NOW, await read_busiest_rows(driver, NOW, 3), None)
        texts = {point.about: point.text for point in points if "small" in point.text}
        assert texts == {"small": "Queue small is paused; the oldest job waits for 1h"}

    on_memory(read)


def test_a_page_that_is_empty_and_not_the_last_does_not_say_that_nothing_died():
    """One looks at 10,000 of the dead from either end of their ids, and the one that died lately is in the middle."""

    async def read(driver: Any) -> None:
        dead = [JobRecord(id=f"{n:05}", type="t", queue="q") for n in range(20_010)]
        await driver.enqueue(dead, NOW - 300 * MINUTE)
        held = await driver.reserve(["q"], NOW - 300 * MINUTE, 600 * MINUTE, len(dead))
        old = NOW - 200 * MINUTE
        await driver.settle([Fail(each.lease, "no", 1, old) for each in held if each.job.id != "10005"], old)
        await driver.settle([Fail(each.lease, "no", 1, NOW) for each in held if each.job.id == "10005"], NOW)
        (point,) = await read_attention(driver, NOW, await read_queue_rows(driver, NOW), None)
        assert point.text == "10,000+ dead jobs: too many to tell whether any of them died in the last hour"
        assert point.level == "warning"

    on_memory(read)


def test_what_needs_an_operator_is_read_without_payloads(monkeypatch: pytest.MonkeyPatch):
    asked, list_jobs = [], MemoryDriver.list_jobs

    async def watched(self: Any, now: datetime, wanted: Any) -> Any:
        asked.append(wanted.payloads)
        return await list_jobs(self, now, wanted)

    async def read(driver: Any) -> None:
        await driver.enqueue([JobRecord(id="new", type="t", queue="q", payload=b"{}")], NOW)
        found = await read_queue_rows(driver, NOW)
        monkeypatch.setattr(MemoryDriver, "list_jobs", watched)
        points = await read_attention(driver, NOW, found, frozenset({"other"}))
        assert "unknown_type" in [point.code for point in points]
        assert set(asked) == {False}

    on_memory(read)


def test_the_largest_cause_comes_first_also_if_its_jobs_were_enqueued_long_before():
    """The smaller cause has all the highest ids, and more of them than one page holds."""

    async def read(driver: Any) -> None:
        for error, number in (("BankDown", 1_500), ("TypoError", 1_100)):
            jobs = [JobRecord(id=f"{error}-{at:05}", type=error, queue="q") for at in range(number)]
            await driver.enqueue(jobs, NOW - 20 * MINUTE)
            held = await driver.reserve(("q",), NOW, MINUTE, number, "w")
            ends = [Fail(each.lease, "no", 1, NOW, "no", error_class=error, fingerprint=error) for each in held]
            await driver.settle(ends, NOW)
        points = await read_attention(driver, NOW, await read_queue_rows(driver, NOW), None)
        kinds = [point.text for point in points if point.code == "dead_kind"]
        assert sorted(text.split(" in ")[0] for text in kinds) == ["1,000+ × BankDown", "1,000+ × TypoError"]
        assert any("More died in the last hour" in point.text for point in points)

    on_memory(read)


def test_the_figures_of_too_many_queues_are_those_of_the_busiest():
    async def read(driver: Any) -> None:
        rows = [Figures(NOW - MINUTE, f"q{each}", {"done": 1}) for each in range(20)]
        await driver.add_figures(rows, NOW)
        names = [f"q{each}" for each in range(20)]
        whole = await read_figures(driver, NOW, "1h", among=names)
        assert whole is not None
        assert (whole.total.done, whole.queues) == (20, None)
        some = await read_figures(driver, NOW, "72h", among=names)
        assert some is not None
        assert (some.total.done, some.queues) == (13, 13)

    on_memory(read)


def test_a_worker_that_fell_silent_and_a_stuck_slot_need_an_operator():
    async def read(driver: Any) -> None:
        await driver.beat(WorkerInfo("gone", ("mail",), 1, NOW, 2, seen_at=NOW - 3 * MINUTE), NOW - 3 * MINUTE)
        await driver.beat(worker(1, stuck=1), NOW)
        found = await read_queue_rows(driver, NOW)
        points = await read_attention(driver, NOW, found, None)
        assert [(point.code, point.level) for point in points] == [("silent", "warning"), ("slots_stuck", "warning")]
        assert "gone" in points[0].detail

    on_memory(read)


def flow(*edges: tuple[str, str], jobs: int = 0) -> Any:
    names = dict.fromkeys([name for edge in edges for name in edge] or [f"n{number:05}" for number in range(jobs)])
    before: dict[str, tuple[str, ...]] = {name: tuple(a for a, b in edges if b == name) for name in names}
    nodes = [
        JobInfo(JobRecord(id=name, type=f"type {name}", depends_on=before[name], flow_id="f"), State.READY)
        for name in names
    ]
    return flow_info("f", tuple(nodes))


def drawing_of(info: FlowInfo) -> GraphDrawing:
    return view_of(info, 0).graph


def test_a_flow_is_drawn_in_columns_from_left_to_right():
    graph = drawing_of(flow(("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")))
    place = {box.jobs[0].job.id: (box.column, box.row) for box in graph.boxes}
    assert (place["a"][0], place["b"][0], place["c"][0], place["d"][0]) == (0, 1, 1, 2)
    assert place["b"][1] != place["c"][1]
    assert (graph.columns, graph.rows, len(graph.lines)) == (3, 2, 4)


def test_a_large_flow_is_folded_to_a_small_drawing():
    graph = drawing_of(flow(jobs=3_000))
    assert len(graph.boxes) <= MAX_BOXES
    assert sum(len(box.jobs) for box in graph.boxes) == 3_000


def chain(states: list[State]) -> Any:
    nodes = [
        JobInfo(
            JobRecord(
                id=f"n{at:05}", type=f"load.step_{at:05}", flow_id="f", depends_on=(f"n{at - 1:05}",) if at else ()
            ),
            state,
        )
        for at, state in enumerate(states)
    ]
    return flow_info("f", tuple(nodes))


def test_a_long_chain_is_folded_to_runs_of_steps_in_one_state():
    graph = drawing_of(chain([State.DONE] * 4_000 + [State.INFLIGHT] + [State.BLOCKED] * 5_999))
    assert [(box.title, box.state) for box in graph.boxes] == [
        ("step_00000 … step_03999: 4,000 steps", State.DONE),
        ("step_04000", State.INFLIGHT),
        ("step_04001 … step_09999: 5,999 steps", State.BLOCKED),
    ]
    assert (graph.columns, graph.rows, graph.lines) == (3, 1, ((0, 1), (1, 2)))


def test_a_long_chain_of_changing_states_is_folded_as_well():
    graph = drawing_of(chain([State.DONE, State.CANCELLED] * 5_000))
    assert len(graph.boxes) <= MAX_BOXES
    assert graph.columns <= MAX_BOXES
    assert sum(len(box.jobs) for box in graph.boxes) == 10_000


def test_a_page_builds_only_the_rows_that_it_shows():
    found = view_of(chain([State.BLOCKED] * 10_000), 200)
    assert (len(found.rows), found.more) == (200, 9_800)


def test_a_box_of_several_types_does_not_bear_the_name_of_one():
    nodes = [JobInfo(JobRecord(id="root", type="dag.root", flow_id="f"), State.DONE)]
    nodes += [
        JobInfo(JobRecord(id=f"n{at}", type=f"dag.t{at % 80}", flow_id="f", depends_on=("root",)), State.READY)
        for at in range(160)
    ]
    graph = drawing_of(flow_info("f", tuple(nodes)))
    assert [box.title for box in graph.boxes] == ["root", "160 jobs, 80 types"]


def test_a_timeline_ends_with_how_the_job_stands():
    done = JobRecord(
        id="j", type="t", created_at=NOW, deliveries=1, began_at=NOW + MINUTE, ran_on="w", finished_at=NOW + 2 * MINUTE
    )
    steps = timeline_of(JobInfo(done, State.DONE), NOW + 3 * MINUTE)
    assert [(step.name, step.after, step.is_now) for step in steps] == [
        ("enqueued", None, False),
        ("started #1", MINUTE, False),
        ("done", MINUTE, True),
    ]
    later = JobRecord(id="j", type="t", created_at=NOW, run_at=NOW + MINUTE)
    assert [step.name for step in timeline_of(JobInfo(later, State.SCHEDULED), NOW)] == ["enqueued", "due"]


def test_nobody_reads_who_may_not_and_a_read_takes_two_seconds_at_most(monkeypatch: pytest.MonkeyPatch):
    async def run() -> None:
        harbor = Harbor("memory://")

        async def place(reading: StoreReading) -> str:
            return reading.place

        assert await OperatorSession(harbor, Access.view("vera")).read(place) == "memory://"
        with pytest.raises(AccessDenied, match="may not view"):
            await OperatorSession(harbor, Access.none()).read(place)

        async def hang(reading: StoreReading) -> None:
            await asyncio.Event().wait()

        with pytest.raises(PageTooSlow, match="this page took longer than"):
            await OperatorSession(harbor, Access.view("vera"), timeout=0.01).read(hang)

        async def never(self: Any) -> datetime:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

        monkeypatch.setattr(MemoryDriver, "server_time", never)
        monkeypatch.setattr(operator, "ALIVE_TIMEOUT_S", 0.01)
        with pytest.raises(BackendUnavailable, match="did not answer within"):
            await OperatorSession(harbor, Access.view("vera"), timeout=0.01).read(hang)
        await harbor.aclose()

    asyncio.run(run())
