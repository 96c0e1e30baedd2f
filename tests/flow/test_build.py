"""Composing: what is refused where, and what the parts say of themselves."""

import pytest

from taskharbor import Harbor
from taskharbor.flow import Flow, chain, chord, group
from taskharbor.testing import enqueued
from tests.flow.tasks import Tasks


def test_a_step_that_lacks_two_is_refused_when_it_is_put_in(tasks: Tasks) -> None:
    for make in (chain, group, lambda step: chord([tasks.number.s(1)], step)):
        with pytest.raises(TypeError, match=r"two: expected at most one parameter .* got 'a', 'b'; give all but one"):
            make(tasks.two.s())
    with pytest.raises(TypeError, match="on_failure: two"):
        chain(tasks.number.s(1), on_failure=tasks.two.s())


def test_a_step_that_lacks_one_and_has_nothing_before_it_is_refused_at_enqueue(harbor: Harbor, tasks: Tasks) -> None:
    for flow in (
        chain(tasks.add.s(), tasks.add.s()),
        group(tasks.number.s(1), tasks.add.s()),
        chord([tasks.add.s()], tasks.total.s()),
        chain(chain(group(chain(tasks.add.s())))),
    ):
        with pytest.raises(TypeError, match=r"add: parameter 'x' has no argument, and nothing comes before"):
            flow.enqueue()
    for task in (tasks.add, tasks.number, tasks.total):
        assert enqueued(harbor, task) == []


def test_surplus_parameters_are_refused_in_the_line_that_gives_them(tasks: Tasks) -> None:
    with pytest.raises(TypeError, match="unexpected parameter 'z'"):
        tasks.add.s(z=1)


def test_a_wrong_argument_is_refused_at_enqueue_and_nothing_is_stored(harbor: Harbor, tasks: Tasks) -> None:
    with pytest.raises(TypeError, match="add: parameter 'x': expected int, got str"):
        chain(tasks.number.s(1), tasks.add.s("one")).enqueue()
    assert enqueued(harbor, tasks.number) == []


def test_empty_chains_groups_and_chords(harbor: Harbor, tasks: Tasks) -> None:
    with pytest.raises(ValueError, match="chain: expected at least one step"):
        chain()
    empty_ones: list[Flow[object]] = [group(), group([]), group(group([])), chain(group([]), group())]
    for empty in empty_ones:
        with pytest.raises(ValueError, match="expected at least one step"):
            empty.enqueue()


def test_anything_but_a_step_is_refused_with_advice(tasks: Tasks) -> None:
    with pytest.raises(TypeError, match=r"chain: expected steps or other flows, got Task; write add\.s\(…\)"):
        chain(tasks.add)  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(TypeError, match="group: expected steps or other flows, got int"):
        group([1, 2])  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError, match="got str"):
        group("ab")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError, match=r"on_failure: expected a step such as alert\.s"):
        chain(tasks.number.s(1), on_failure=tasks.alert)  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(TypeError, match=r"chord: expected a group and a step, got a chain"):
        chord(chain(tasks.number.s(1)), tasks.total.s())


def test_steps_of_another_harbor_are_refused(tasks: Tasks) -> None:
    other = Tasks(Harbor("memory://"))
    for make in (
        lambda: chain(tasks.number.s(1), other.add.s()),
        lambda: group(tasks.number.s(1), chain(other.number.s(1))),
        lambda: chain(tasks.number.s(1), on_failure=other.alert.s()),
    ):
        with pytest.raises(ValueError, match="expected steps of one harbor, got"):
            make()


def test_parts_nest_a_hundred_deep_and_no_deeper(tasks: Tasks) -> None:
    flow: Flow[object] = chain(tasks.number.s(1))
    for _ in range(99):
        flow = chain(flow)
    with pytest.raises(ValueError, match="nested at most 100 deep, got 101"):
        chain(flow)


def test_a_repr_shows_no_values(tasks: Tasks) -> None:
    flow = chord((tasks.add.s(i) for i in range(7)), tasks.total.s())
    members = ", ".join(["Step('add', x=…)"] * 5)
    assert repr(flow) == f"chord(group({members}, … 2 more), Step('total'))"
    assert repr(chain(tasks.number.s(77))) == "chain(Step('number', n=…))"


def test_a_flow_may_be_enqueued_again(tasks: Tasks) -> None:
    flow = chain(tasks.number.s(1), tasks.add.s())
    assert flow.enqueue().id != flow.enqueue().id
