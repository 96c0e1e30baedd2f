"""Steps of a job from outside: read by its handle, and forgotten with a fresh requeue or another payload."""

import asyncio
from collections.abc import Iterator

import pytest

from taskharbor import Fixed, Harbor, JobContext, JobNotFound, StepInfo
from taskharbor.testing import ManualClock


class World:
    """A harbor with one task, whose effects are counted, and which fails until it is mended."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.harbor = Harbor("memory://", clock=self.clock)
        self.effects: list[str] = []
        self.is_mended = False

        @self.harbor.task(name="book", retry=Fixed(0), max_attempts=2)
        def book(ctx: JobContext, flight: str) -> str:
            found = ctx.step("reserve", self.reserve, flight)
            ctx.checkpoint({"page": 1})
            if not self.is_mended:
                raise ValueError("broken")
            return found

        self.task = book

    def reserve(self, flight: str) -> str:
        self.effects.append(flight)
        return f"a seat in {flight}"

    def run(self) -> None:
        self.harbor.worker().run(until_empty=True)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.harbor:
        yield world


def test_a_handle_lists_the_steps(world: World) -> None:
    job = world.task.enqueue("LH 4")
    assert job.steps() == []
    world.run()
    (step,) = job.steps()
    assert step == StepInfo("reserve", step.at, len('"a seat in LH 4"'), 1)
    assert asyncio.run(read(world, job.id)) == [step]
    with pytest.raises(JobNotFound):
        world.harbor.job("unknown").steps()


async def read(world: World, id: str) -> list[StepInfo]:
    async with Harbor(world.harbor.driver.sibling(), clock=world.clock) as harbor:
        return await harbor.job(id).asteps()


@pytest.mark.parametrize(
    ("way", "flights"),
    [("requeue", ["LH 4"]), ("fresh", ["LH 4", "LH 4"]), ("amend", ["LH 4", "BA 2"])],
)
def test_what_a_requeue_forgets(world: World, way: str, flights: list[str]) -> None:
    job = world.task.enqueue("LH 4")
    world.run()
    assert job.status() == "dlq"
    world.is_mended = True
    if way == "amend":
        job.amend(payload={"flight": "BA 2"})
    job.requeue(fresh=way == "fresh")
    world.run()
    assert job.result() == f"a seat in {flights[-1]}"
    assert world.effects == flights
    assert len(job.steps()) == 1


def test_a_fresh_requeue_of_a_job_without_steps(world: World) -> None:
    @world.harbor.task(name="plain", max_attempts=1)
    def plain() -> None:
        if not world.is_mended:
            raise ValueError("broken")

    job = plain.enqueue()
    world.run()
    world.is_mended = True
    job.requeue(fresh=True)
    world.run()
    assert (job.status(), job.info().job.edits) == ("done", 0)
    with pytest.raises(TypeError, match="fresh: expected True or False"):
        job.requeue(fresh="yes")  # type: ignore[arg-type]  # on purpose
