"""Every public call that uses a store, awaited and blocking: found by introspection, and made on a prepared store."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from taskharbor import Client, Harbor, JobHandle, JobRequest, Jobs, Task
from taskharbor.client.operation import Operation
from taskharbor.client.schedules import Schedules
from taskharbor.client.store_calls import StoreCalls
from taskharbor.flow import chain
from taskharbor.flow.build import Flow
from taskharbor.flow.handle import FlowHandle
from taskharbor.flow.run import FlowRun

LONG = 60.0
LISTINGS = ("Jobs", "Flows", "Audit", "ScheduleListing")
PLACES = (
    *(Client, Harbor, StoreCalls, JobHandle, Jobs, Operation, FlowHandle, FlowRun, Task),
    *(Flow, Schedules),
)
# Parts of other calls: they take the budget of the call that they are a part of. And `run`, which works as a worker
# does: it waits for a store that is away.
PARTS = {
    "Operation.arun",
    "Operation.run",
}


def found() -> Iterator[str]:
    """The calls that exist both awaited and blocking, that are coroutines, or that make a listing."""
    for place in PLACES:
        names = {name for name in vars(place) if not name.startswith("_")}
        for name in names:
            value = getattr(place, name)
            if not inspect.isfunction(value):
                continue
            twins = f"a{name}" in names or (name[:1] == "a" and name[1:] in names)
            lists = name != "dead" and inspect.signature(value).return_annotation in (
                "Jobs",
                "Flows",
                "Audit",
                "ScheduleListing",
            )
            if twins or lists or name == "wait" or inspect.iscoroutinefunction(value):
                yield f"{place.__name__}.{name}"


def is_awaited(call: str) -> bool:
    """Whether a call is a coroutine, or is iterated with `async for`."""
    place, _, name = call.partition(".")
    value = getattr(next(each for each in PLACES if each.__name__ == place), name)
    iterated = str(inspect.signature(value).return_annotation).startswith("AsyncIterator")
    return iterated or inspect.iscoroutinefunction(value)


async def listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


class World:
    """A harbor whose store has one waiting job and one flow, which all calls below are about, and a job to delete."""

    def __init__(self, store: Any, **options: Any) -> None:
        self.harbor = Harbor(store, **options)
        self.client = self.harbor.client

        @self.harbor.task(name="wait")
        def wait(number: int) -> int:
            return number

        self.task = wait

    async def begin(self) -> None:
        """With a store that answers, however busy this machine is."""
        with self.harbor.within(LONG):
            self.job = await self.task.aenqueue(1)
            self.spare = await self.task.aenqueue(1)
            self.flow = await self.chain().aenqueue()
            self.run = await self.harbor.aflow(self.flow.id)
            for name in ("old", "spare"):
                await self.harbor.schedules.aadd(name, self.task.s(number=1), every=3600)
            self.operation = await self.harbor.dead().arequeue()

    def chain(self) -> Flow[Any]:
        return chain(self.task.s(number=1), self.task.s(number=2))

    def request(self) -> JobRequest:
        return JobRequest(type="wait", payload={"number": 1})


# The name of a call → how it is made.
CALLS: dict[str, Callable[[World], Any]] = {
    "Client.enqueue": lambda world: world.client.enqueue(world.request()),
    "Client.enqueue_many": lambda world: world.client.enqueue_many([world.request(), world.request()]),
    "Client.aenqueue": lambda world: world.client.aenqueue(world.request()),
    "Client.aenqueue_many": lambda world: world.client.aenqueue_many([world.request(), world.request()]),
    "Harbor.enqueue_many": lambda world: world.harbor.enqueue_many([world.task.s(number=1)]),
    "Harbor.flow": lambda world: world.harbor.flow(world.flow.id),
    "Harbor.aenqueue_many": lambda world: world.harbor.aenqueue_many([world.task.s(number=1)]),
    "Harbor.aflow": lambda world: world.harbor.aflow(world.flow.id),
    "JobHandle.status": lambda world: world.job.status(),
    "JobHandle.result": lambda world: world.job.result(0.05),
    "JobHandle.cancel": lambda world: world.job.cancel(),
    "JobHandle.astatus": lambda world: world.job.astatus(),
    "JobHandle.aresult": lambda world: world.job.aresult(0.05),
    "JobHandle.acancel": lambda world: world.job.acancel(),
    "JobHandle.wait": lambda world: world.job.wait(0.05),
    "JobHandle.await_": lambda world: world.job.await_(0.05),
    "JobHandle.watch": lambda world: list(world.job.watch(0.05)),
    "JobHandle.awatch": lambda world: listed(world.job.awatch(0.05)),
    "JobHandle.requeue": lambda world: world.job.requeue(),
    "JobHandle.arequeue": lambda world: world.job.arequeue(),
    "JobHandle.info": lambda world: world.job.info(),
    "JobHandle.ainfo": lambda world: world.job.ainfo(),
    "JobHandle.executions": lambda world: world.job.executions(),
    "JobHandle.aexecutions": lambda world: world.job.aexecutions(),
    "JobHandle.steps": lambda world: world.job.steps(),
    "JobHandle.asteps": lambda world: world.job.asteps(),
    "JobHandle.progress": lambda world: world.job.progress(),
    "JobHandle.aprogress": lambda world: world.job.aprogress(),
    "JobHandle.amend": lambda world: world.job.amend(payload={"number": 2}),
    "JobHandle.aamend": lambda world: world.job.aamend(priority=1),
    "JobHandle.delete": lambda world: world.spare.delete(),
    "JobHandle.adelete": lambda world: world.spare.adelete(),
    "StoreCalls.jobs": lambda world: list(world.harbor.jobs()),
    "StoreCalls.flows": lambda world: list(world.harbor.flows()),
    "StoreCalls.audit": lambda world: list(world.harbor.audit()),
    "Jobs.summary": lambda world: world.harbor.dead().summary(),
    "Jobs.asummary": lambda world: world.harbor.dead().asummary(),
    "Jobs.requeue": lambda world: world.harbor.dead().requeue(),
    "Jobs.arequeue": lambda world: world.harbor.dead().arequeue(),
    "Jobs.cancel": lambda world: world.harbor.jobs(queue="elsewhere").cancel(),
    "Jobs.acancel": lambda world: world.harbor.jobs(queue="elsewhere").acancel(),
    "Jobs.delete": lambda world: world.harbor.dead().delete(),
    "Jobs.adelete": lambda world: world.harbor.dead().adelete(),
    "Operation.status": lambda world: world.operation.status(),
    "Operation.astatus": lambda world: world.operation.astatus(),
    "Operation.progress": lambda world: world.operation.progress(),
    "Operation.aprogress": lambda world: world.operation.aprogress(),
    "Operation.stop": lambda world: world.operation.stop(),
    "Operation.astop": lambda world: world.operation.astop(),
    "Operation.await_": lambda world: world.operation.await_(0.05),
    "Operation.wait": lambda world: world.operation.wait(0.05),
    "StoreCalls.counts": lambda world: world.harbor.counts(),
    "StoreCalls.acounts": lambda world: world.harbor.acounts(),
    "StoreCalls.workers": lambda world: world.harbor.workers(),
    "StoreCalls.aworkers": lambda world: world.harbor.aworkers(),
    "StoreCalls.queues": lambda world: world.harbor.queues(),
    "StoreCalls.aqueues": lambda world: world.harbor.aqueues(),
    "StoreCalls.pause": lambda world: world.harbor.pause("elsewhere"),
    "StoreCalls.apause": lambda world: world.harbor.apause("elsewhere"),
    "StoreCalls.resume": lambda world: world.harbor.resume("elsewhere"),
    "StoreCalls.aresume": lambda world: world.harbor.aresume("elsewhere"),
    "StoreCalls.is_paused": lambda world: world.harbor.is_paused("elsewhere"),
    "StoreCalls.ais_paused": lambda world: world.harbor.ais_paused("elsewhere"),
    "Schedules.add": lambda world: world.harbor.schedules.add("new", world.task.s(number=1), every=3600),
    "Schedules.aadd": lambda world: world.harbor.schedules.aadd("new", world.task.s(number=1), every=3600),
    "Schedules.get": lambda world: world.harbor.schedules.get("old"),
    "Schedules.aget": lambda world: world.harbor.schedules.aget("old"),
    "Schedules.preview": lambda world: world.harbor.schedules.preview("old"),
    "Schedules.apreview": lambda world: world.harbor.schedules.apreview("old"),
    "Schedules.edit": lambda world: world.harbor.schedules.edit("old", jitter=1),
    "Schedules.aedit": lambda world: world.harbor.schedules.aedit("old", jitter=1),
    "Schedules.reset": lambda world: world.harbor.schedules.reset("old"),
    "Schedules.areset": lambda world: world.harbor.schedules.areset("old"),
    "Schedules.pause": lambda world: world.harbor.schedules.pause("old"),
    "Schedules.apause": lambda world: world.harbor.schedules.apause("old"),
    "Schedules.resume": lambda world: world.harbor.schedules.resume("old"),
    "Schedules.aresume": lambda world: world.harbor.schedules.aresume("old"),
    "Schedules.run": lambda world: world.harbor.schedules.run("old"),
    "Schedules.arun": lambda world: world.harbor.schedules.arun("old"),
    "Schedules.delete": lambda world: world.harbor.schedules.delete("spare"),
    "Schedules.adelete": lambda world: world.harbor.schedules.adelete("spare"),
    "Schedules.list": lambda world: list(world.harbor.schedules.list()),
    "Jobs.count": lambda world: world.harbor.jobs().count(),
    "Jobs.acount": lambda world: world.harbor.jobs().acount(),
    "Jobs.ids": lambda world: world.harbor.jobs().ids(5),
    "Jobs.aids": lambda world: world.harbor.jobs().aids(5),
    "Jobs.preview": lambda world: world.harbor.jobs().preview(),
    "Jobs.apreview": lambda world: world.harbor.jobs().apreview(),
    "FlowHandle.status": lambda world: world.flow.status(),
    "FlowHandle.progress": lambda world: world.flow.progress(),
    "FlowHandle.result": lambda world: world.flow.result(0.05),
    "FlowHandle.cancel": lambda world: world.flow.cancel(),
    "FlowHandle.requeue": lambda world: world.flow.requeue(),
    "FlowHandle.astatus": lambda world: world.flow.astatus(),
    "FlowHandle.aprogress": lambda world: world.flow.aprogress(),
    "FlowHandle.aresult": lambda world: world.flow.aresult(0.05),
    "FlowHandle.acancel": lambda world: world.flow.acancel(),
    "FlowHandle.arequeue": lambda world: world.flow.arequeue(),
    "FlowHandle.info": lambda world: world.flow.info(),
    "FlowHandle.ainfo": lambda world: world.flow.ainfo(),
    "FlowHandle.wait": lambda world: world.flow.wait(0.05),
    "FlowHandle.await_": lambda world: world.flow.await_(0.05),
    "FlowHandle.watch": lambda world: list(world.flow.watch(0.05)),
    "FlowHandle.awatch": lambda world: listed(world.flow.awatch(0.05)),
    "FlowRun.result": lambda world: world.run.result(0.05),
    "FlowRun.cancel": lambda world: world.run.cancel(),
    "FlowRun.requeue": lambda world: world.run.requeue(),
    "FlowRun.aresult": lambda world: world.run.aresult(0.05),
    "FlowRun.acancel": lambda world: world.run.acancel(),
    "FlowRun.arequeue": lambda world: world.run.arequeue(),
    "Task.enqueue": lambda world: world.task.enqueue(1),
    "Task.aenqueue": lambda world: world.task.aenqueue(1),
    "Flow.enqueue": lambda world: world.chain().enqueue(),
    "Flow.aenqueue": lambda world: world.chain().aenqueue(),
}


async def made(world: World, name: str) -> Any:
    """What a call returns or raises."""
    try:
        if is_awaited(name):
            return await CALLS[name](world)
        return await asyncio.to_thread(CALLS[name], world)
    except Exception as error:
        return error


async def all_made(world: World) -> dict[str, Any]:
    """All of them, at the same time."""
    answers = await asyncio.gather(*(made(world, name) for name in CALLS))
    return dict(zip(CALLS, answers, strict=True))
