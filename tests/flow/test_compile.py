"""Compiling: the records and edges that a flow becomes. No store is needed for that."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import Fixed, Harbor
from taskharbor.drivers import JobRecord
from taskharbor.flow import Flow, chain, chord, group
from taskharbor.flow import compile as compiling
from taskharbor.flow.compile import Compiled, compile_flow, compile_spawn
from taskharbor.tasks.flow_metadata import BIND_KEY, DEPTH_KEY, JOIN_TYPE, SHAPE_KEY
from tests.flow.tasks import Tasks

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def tasks() -> Tasks:
    return Tasks(Harbor("memory://"))


def compiled(flow: Flow[Any]) -> Compiled:
    return compile_flow(flow, NOW, "home")


def edges(flow: Flow[Any]) -> list[tuple[str, list[int]]]:
    """Each job's type and the numbers of those it waits for."""
    jobs = compiled(flow).jobs
    number = {job.id: index for index, job in enumerate(jobs)}
    return [(job.type, [number[id] for id in job.depends_on]) for job in jobs]


def test_a_chain(tasks: Tasks) -> None:
    flow = chain(tasks.number.s(1), tasks.add.s(), tasks.nothing.s(), tasks.collect.s())
    assert edges(flow) == [("number", []), ("add", [0]), ("nothing", [1]), ("collect", [2])]
    jobs = compiled(flow).jobs
    assert [job.metadata.get(BIND_KEY) for job in jobs] == [None, '["x",null]', None, '["value",null]']
    assert [job.payload for job in jobs] == [b'{"n":1}', b"{}", b"{}", b"{}"]


def test_a_chord_and_a_chain_with_a_group_are_the_same(tasks: Tasks) -> None:
    members = [tasks.number.s(1), tasks.number.s(2)]
    expected = [("number", []), ("number", []), ("total", [0, 1])]
    assert edges(chord(members, tasks.total.s())) == edges(chain(group(members), tasks.total.s())) == expected
    assert compiled(chord(members, tasks.total.s())).jobs[2].metadata == {BIND_KEY: '["numbers",2]'}


def test_a_part_that_ends_in_several_jobs_is_closed_with_a_join(tasks: Tasks) -> None:
    flow = chain(tasks.number.s(1), group(tasks.add.s(), chain(tasks.add.s(), tasks.add.s())))
    assert edges(flow)[-1] == (JOIN_TYPE, [1, 3])
    made = compiled(flow)
    join = made.jobs[-1]
    assert (join.metadata[SHAPE_KEY], join.payload, join.id) == ("2", b"{}", made.end)
    assert edges(group([tasks.number.s(1)])) == [("number", []), (JOIN_TYPE, [0])]


def test_nested_groups_are_nested_shapes(tasks: Tasks) -> None:
    one = tasks.number.s(1)
    flow = chain(group(one, group(one, one), group([]), chain(one, group([]))), tasks.collect.s())
    job = compiled(flow).jobs[-1]
    assert job.metadata[BIND_KEY] == '["value",[null,2,0,0]]'
    assert edges(flow)[-1] == ("collect", [0, 1, 2, 3])  # the last one is waited for, and gives nothing


def test_an_empty_group_is_an_empty_list_argument(tasks: Tasks) -> None:
    (job,) = compiled(chord([], tasks.total.s())).jobs
    assert (job.payload, job.metadata, job.depends_on) == (b'{"numbers":[]}', {}, ())
    with pytest.raises(TypeError, match="add: parameter 'x': expected int, got array"):
        compiled(chord([], tasks.add.s()))
    assert edges(chain(tasks.number.s(1), group([]), tasks.total.s())) == [("number", []), ("total", [0])]


def test_one_flow_id_and_ids_in_the_order_of_the_edges(tasks: Tasks) -> None:
    made = compiled(chain(tasks.number.s(1), group(tasks.add.s() for _ in range(5)), tasks.total.s()))
    assert {job.flow_id for job in made.jobs} == {made.flow_id}
    ids = [job.id for job in made.jobs]
    assert ids == sorted(ids)
    assert made.end == ids[-1]


def test_options_of_steps_are_honoured(tasks: Tasks) -> None:
    step = tasks.add.s(y=2).options(
        queue="fast",
        priority=3,
        max_attempts=2,
        timeout=5,
        group="g",
        group_limit=4,
        delay=60,
        idempotency_key="k",
        metadata={"tenant": "north"},
        retry=Fixed(1),
    )
    job = compiled(chain(tasks.number.s(1), step)).jobs[1]
    assert (job.queue, job.priority, job.max_attempts, job.timeout) == ("fast", 3, 2, timedelta(seconds=5))
    assert (job.group, job.group_limit, job.idempotency_key) == ("g", 4, "k")
    assert job.run_at == NOW + timedelta(seconds=60)
    assert job.metadata["tenant"] == "north"
    assert {BIND_KEY, "taskharbor.retry"} < set(job.metadata)
    assert compiled(chain(tasks.number.s(1))).jobs[0].queue == "home"


def test_a_join_waits_in_the_queue_of_its_first_member_with_the_highest_priority(tasks: Tasks) -> None:
    first, second = tasks.number.s(1).options(queue="q1"), tasks.number.s(2).options(queue="q2", priority=7)
    join = compiled(group(first, second)).jobs[-1]
    assert (join.queue, join.priority) == ("q1", 7)


def test_a_join_between_two_large_groups_saves_edges(tasks: Tasks) -> None:
    def between(size: int) -> Flow[Any]:
        step = tasks.collect.s
        return chain(group(tasks.number.s(1) for _ in range(size)), group(step() for _ in range(size)))

    assert sum(type == JOIN_TYPE for type, _ in edges(between(16))) == 1  # the one at the end
    large = edges(between(17))
    assert sum(type == JOIN_TYPE for type, _ in large) == 2
    assert sum(len(deps) for _, deps in large) == 17 * 3


def test_a_shape_that_is_too_long_is_split_by_joins(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MAX_SHAPE_BYTES", 8)
    pairs = [group(tasks.number.s(1), tasks.number.s(2)) for _ in range(5)]
    flow = chain(group(*pairs, tasks.number.s(3)), group(tasks.collect.s(), tasks.collect.s()))
    kinds = [type for type, _ in edges(flow)]
    assert kinds.count(JOIN_TYPE) == 6  # five pairs, and the end
    assert [deps for type, deps in edges(flow) if type == "collect"] == [[11, 12, 13, 14, 15, 10]] * 2


def test_more_dependencies_than_a_job_may_have(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MAX_DEPENDENCIES", 4)
    ones = [tasks.number.s(1) for _ in range(3)]
    assert [deps for type, deps in edges(chain(group(group(ones), group(ones)), tasks.collect.s()))][-1] == [6, 7]
    with pytest.raises(ValueError, match="collect waits for 5 jobs, expected at most 4; make groups of groups"):
        compiled(chain(group(ones + ones[:2]), tasks.collect.s()))


def test_a_spawn_belongs_to_its_parents_flow_or_makes_its_own(tasks: Tasks) -> None:
    flow = group(tasks.number.s(1), tasks.number.s(2))
    inside = compile_spawn(flow, JobRecord(id="p", type="t", flow_id="f"), NOW, "home")
    assert {job.flow_id for job in inside.jobs} == {"f"}
    assert {job.metadata[DEPTH_KEY] for job in inside.jobs} == {"1"}
    alone = compile_spawn(flow, JobRecord(id="p", type="t"), NOW, "home")
    assert len({job.flow_id for job in alone.jobs}) == 1
    assert alone.flow_id not in {job.id for job in alone.jobs}


def test_a_spawn_has_bounds(tasks: Tasks) -> None:
    deep = JobRecord(id="p", type="t", metadata={DEPTH_KEY: "100"})
    with pytest.raises(ValueError, match="t returned a workflow 101 deep, expected at most 100"):
        compile_spawn(chain(tasks.number.s(1)), deep, NOW, "home")
    with pytest.raises(ValueError, match="workflow of 10001 jobs, expected at most 10000"):
        compile_spawn(group(tasks.number.s(1) for _ in range(10_000)), JobRecord(id="p", type="t"), NOW, "home")


def test_an_empty_group_that_a_handler_returns_is_a_join_with_nothing_behind_it(tasks: Tasks) -> None:
    (join,) = compile_spawn(group([]), JobRecord(id="p", type="t", queue="own"), NOW, "home").jobs
    assert (join.type, join.queue, join.depends_on, join.metadata[SHAPE_KEY]) == (JOIN_TYPE, "own", (), "0")


def test_the_types_of_results(tasks: Tasks) -> None:
    assert compiled(chain(tasks.number.s(1), tasks.add.s())).returns is int
    assert compiled(group(tasks.number.s(1), tasks.add.s(1))).returns == list[int]
    assert compiled(group(group(tasks.number.s(1)), group(tasks.add.s(1)))).returns == list[list[int]]
    assert compiled(group(tasks.number.s(1), tasks.collect.s(1))).returns == list[Any]
