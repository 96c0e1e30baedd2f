"""How results reach the step that waits for them: in one call, within bounds, and with any codec."""

import json
from typing import Any

import pytest

from taskharbor import Harbor, JobDead
from taskharbor.drivers import JobRecord, replace
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.flow import chain, chord, group
from taskharbor.model.codec import JsonCodec
from taskharbor.tasks import results as results_module
from taskharbor.tasks.flow_metadata import BIND_KEY, SHAPE_KEY, read_bind, shape_of, taken, write_bind
from taskharbor.tasks.results import complete, compose
from taskharbor.testing import Faults, ManualClock, drain
from taskharbor.worker import result_binder as binder_module
from tests.flow.stores import MakeHarbor, call_store
from tests.flow.tasks import Tasks


class Asked(MemoryDriver):
    """A memory driver that notes which results were asked for, and what was listed or looked at."""

    def __init__(self, dsn: str = "memory://") -> None:
        super().__init__(dsn)
        self.asked: list[tuple[str, int]] = []

    def sibling(self) -> "Asked":
        other = Asked()
        other.store, other.asked = self.store, self.asked
        return other

    async def results(self, ids: Any) -> Any:
        self.asked.append(("results", len(ids)))
        return await super().results(ids)

    async def inspect(self, id: str, now: Any) -> Any:
        self.asked.append(("inspect", 1))
        return await super().inspect(id, now)


def worked_off(harbor: Harbor) -> None:
    harbor.worker(concurrency=16, heart="loop").run(until_empty=True)


def test_jobs_without_a_binding_cost_no_call() -> None:
    driver = Asked()
    harbor = Harbor(driver)
    tasks = Tasks(harbor)
    for n in range(5):
        tasks.number.options(metadata={"tenant": "north"}).enqueue(n)
    group(tasks.number.s(n) for n in range(5)).enqueue()
    worked_off(harbor)
    assert len(tasks.ran) == 10
    assert driver.asked == []
    harbor.close()


def test_a_batch_asks_once_for_all_its_steps() -> None:
    driver = Asked()
    harbor = Harbor(driver)
    tasks = Tasks(harbor)
    first = [tasks.number.s(n).options(queue="first") for n in range(8)]
    chain(group(first), group(tasks.total.s(), tasks.collect.s())).enqueue()
    for n in range(4):
        chain(first[n], tasks.add.s()).enqueue()
    harbor.worker(queues=["first"], heart="loop").run(until_empty=True)
    worked_off(harbor)
    assert driver.asked == [("results", 12)]
    harbor.close()


def test_joins_are_read_one_by_one_or_by_a_listing() -> None:
    driver = Asked()
    harbor = Harbor(driver)
    tasks = Tasks(harbor)
    few = chord((tasks.spread.s(2) for _ in range(3)), tasks.collect.s()).enqueue()
    worked_off(harbor)
    assert driver.asked == [("inspect", 1)] * 3 + [("results", 6)]
    driver.asked.clear()
    many = chord((tasks.spread.s(2) for _ in range(50)), tasks.collect.s()).enqueue()
    worked_off(harbor)
    assert driver.asked == [("results", 100)]
    assert few.result(1) == [[1, 2]] * 3
    assert many.result(1) == [[1, 2]] * 50
    harbor.close()


def test_results_are_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_module, "SLICE_JOBS", 3)
    driver = Asked()
    harbor = Harbor(driver)
    tasks = Tasks(harbor)
    handle = chord((tasks.number.s(n) for n in range(7)), tasks.collect.s()).enqueue()
    grown = chord((tasks.spread.s(1) for _ in range(7)), tasks.collect.s()).enqueue()
    worked_off(harbor)
    assert ("results", 3) in driver.asked
    assert max(number for _, number in driver.asked) == 3
    assert (handle.result(1), grown.result(1)) == (list(range(7)), [[1]] * 7)
    harbor.close()


def test_too_many_bytes_kill_the_step_with_advice(
    harbor: Harbor, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binder_module, "MAX_RESULTS_BYTES", 100)
    fits = chord((tasks.number.s(10**9) for _ in range(10)), tasks.collect.s()).enqueue()
    over = chord((tasks.number.s(10**9) for _ in range(11)), tasks.collect.s()).enqueue()
    drain(harbor)
    assert len(fits.result(1)) == 10
    with pytest.raises(JobDead, match="have over 100 bytes together; keep them elsewhere"):
        over.result(1)


def test_a_step_waits_while_results_cannot_be_read_and_spends_no_attempt(dsn: str, harbor_on: MakeHarbor) -> None:
    faults, clock = Faults(), ManualClock()
    harbor = harbor_on(faults.wrap(dsn), clock=clock)
    tasks = Tasks(harbor)
    handle = chain(tasks.number.s(1), tasks.add.s()).enqueue()
    faults.fail("results")
    drain(harbor)
    assert handle.status() == "running"
    clock.advance(2)
    drain(harbor)
    assert handle.result(1) == 2
    assert {node.job.attempts for node in harbor.flow(handle.id).nodes} == {0}


def test_a_damaged_mark_kills_the_job_and_nothing_else(dsn: str, harbor_on: MakeHarbor) -> None:
    harbor = harbor_on(dsn)
    tasks = Tasks(harbor)
    for mark in ("nonsense", '["x",3]', '["x",-1]', '["x",true]', '["x",[[null],"a"]]'):
        record = JobRecord(id="a", type="add", metadata={BIND_KEY: mark})
        harbor._store.enqueue(lambda now, record=record: [record], None, "test")  # type: ignore[misc]  # a default binds the loop's variable
        drain(harbor)
        handle = harbor.client.handle("a")
        with pytest.raises(JobDead, match=r"its metadata taskharbor\.bind cannot be read"):
            handle.result(1)
        _delete(harbor, "a")
    assert tasks.ran == []


def _delete(harbor: Harbor, id: str) -> None:
    call_store(harbor.client, lambda driver: driver.delete([id]))


class Tagged:
    """A codec that is not JSON: its bytes begin with a tag."""

    def encode(self, value: Any) -> bytes:
        return b"T" + json.dumps(value, allow_nan=False).encode()

    def decode(self, data: bytes, type: Any = Any) -> Any:
        if data[:1] != b"T":
            raise ValueError("no tag")
        return json.loads(data[1:])


def test_another_codec() -> None:
    harbor = Harbor("memory://", codec=Tagged())
    tasks = Tasks(harbor)
    handle = chain(group(tasks.number.s(1), tasks.spread.s(2), tasks.nothing.s()), tasks.collect.s()).enqueue()
    bare = group(tasks.number.s(1), tasks.number.s(2)).enqueue()
    tasks.broken = {5}
    failing = chain(tasks.add.s(5), on_failure=tasks.nothing.s()).enqueue()
    drain(harbor)
    assert handle.result(1) == [1, [1, 2], None]
    assert bare.result(1) == [1, 2]
    assert failing.status() == "failed"
    assert "nothing" in tasks.ran
    harbor.close()


def test_payloads_are_completed_with_results() -> None:
    codec = JsonCodec()
    assert complete(codec, b"{}", "a", b"1") == b'{"a":1}'
    assert complete(codec, b' { "b" : 2 } ', 'q"', [b"1", None, [b"[]"]]) == b'{"b" : 2,"q\\"":[1,null,[[]]]}'
    assert compose(codec, [[], [b"1"]]) == b"[[],[1]]"
    assert complete(Tagged(), b'T{"a": 1}', "b", [b"T2", None]) == b'T{"a": 1, "b": [2, null]}'
    for codec_, payload in ((codec, b"[1]"), (Tagged(), b"T[1]")):
        with pytest.raises(ValueError, match="the payload: expected an object"):
            complete(codec_, payload, "a", b"1")


def test_flow_metadata_round_trips() -> None:
    assert read_bind(write_bind("rows", [2, None, [0, 1]])).shape == [2, None, [0, 1]]
    assert taken([2, None, [0, 1]]) == 4


def test_a_process_job_receives_results_too(dsn: str, harbor_on: MakeHarbor) -> None:
    from tests.flow import process_tasks

    harbor = harbor_on(dsn)
    tasks = Tasks(harbor)
    double = harbor.task(name="process_tasks.double", process=True)(process_tasks.double.function)
    handle = chain(tasks.number.s(4), double.s()).enqueue()
    drain(harbor)
    assert handle.result(60) == 8


def test_results_are_kept_while_a_step_needs_them(harbor: Harbor, tasks: Tasks) -> None:
    """A step that waits for a day finds the result of the one before it, whatever is pruned meanwhile."""
    assert isinstance(harbor.clock, ManualClock)
    handle = chain(tasks.number.s(1), tasks.add.s().options(delay=3 * 24 * 3600)).enqueue()
    drain(harbor)
    harbor.clock.advance(3 * 24 * 3600)
    now = harbor.clock.now()
    pruned = call_store(harbor.client, lambda d: d.prune(now, 100))
    assert pruned == 0
    drain(harbor)
    assert handle.result(1) == 2


def test_large_results_of_a_batch_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binder_module, "MAX_RESULTS_BYTES", 100)
    driver = Asked()
    harbor = Harbor(driver)
    tasks = Tasks(harbor)
    members = [tasks.number.s(10**9).options(queue="first") for _ in range(8)]
    handles = [chord(members, tasks.collect.s()).enqueue() for _ in range(3)]
    harbor.worker(queues=["first"], heart="loop").run(until_empty=True)
    worked_off(harbor)
    assert driver.asked == [("results", 24), ("results", 8), ("results", 8), ("results", 8)]
    assert [handle.result(1) for handle in handles] == [[10**9] * 8] * 3
    harbor.close()


def test_a_join_whose_mark_is_damaged_is_the_list_of_all_it_waited_for() -> None:
    def join(text: str) -> JobRecord:
        return JobRecord(id="x.join", type="taskharbor.join", depends_on=("a", "b"), metadata={SHAPE_KEY: text})

    assert [shape_of(join(text)) for text in ("1", "[1,null]", "nonsense", "3", '["a"]', "-1")] == [
        1,
        [1, None],
        2,
        2,
        2,
        2,
    ]
    assert shape_of(JobRecord(id="x.join", type="taskharbor.join", depends_on=("a",))) == 1


def test_a_join_that_was_deleted_kills_the_step() -> None:
    harbor = Harbor("memory://")
    tasks = Tasks(harbor)
    mark = {BIND_KEY: write_bind("value", None)}
    missing = JobRecord(id="n", type="nothing")
    waits = JobRecord(id="c", type="collect", depends_on=("n",), metadata=mark)
    harbor._store.enqueue(lambda now: [missing, waits], None, "test")
    store = harbor.driver.store  # type: ignore[attr-defined]  # not in its declared type
    entry = store.entries["c"]
    entry.record = replace(entry.record, depends_on=("gone.join",))
    drain(harbor)
    with pytest.raises(JobDead, match=r"the result of job gone\.join is gone"):
        harbor.client.handle("c").result(1)
    assert tasks.ran == ["nothing"]
    harbor.close()


@pytest.mark.parametrize("value", [42, None, [1], []], ids=str)
def test_a_job_whose_id_ends_like_a_joins_is_read_as_a_job(harbor: Harbor, tasks: Tasks, value: Any) -> None:
    """Ids may be given by the caller: what a job returned must not depend on how its id ends."""
    mark = {BIND_KEY: write_bind("value", [None, 6])}
    ids = ["order-7.join", *(f"01J00000000000000000000{n:03}.join" for n in range(5)), "plain"]
    jobs = [JobRecord(id=id, type="echo", payload=json.dumps({"value": value}).encode(), flow_id="f") for id in ids]
    jobs.append(JobRecord(id="c", type="collect", depends_on=tuple(ids), metadata=mark, flow_id="f"))
    harbor.task(name="echo")(echo)
    harbor._store.enqueue(lambda now: jobs, None, "test")
    drain(harbor)
    assert [harbor.client.handle(id).result(1) for id in ids] == [value] * 7
    assert harbor.client.handle("c").result(1) == [value, [value] * 6]


def echo(value: Any) -> Any:
    return value
