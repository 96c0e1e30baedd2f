"""Calls that the type checker must refuse: each line marked with its error code, and no other. Never run."""

from taskharbor import Client, Harbor, JobContext, JobRequest

harbor = Harbor("memory://")


@harbor.task
def plain(to: str, subject: str = "Hello") -> str:
    return to


@harbor.task(queue="mail")
def configured(to: str) -> str:
    return to


@harbor.task
async def coroutine(a: int) -> float:
    return a


@harbor.task
async def context_coroutine(ctx: JobContext, a: int) -> float:
    return a


plain.enqueue(5)  # E: arg-type
plain.enqueue()  # E: call-arg
plain.enqueue("a", "b", "c")  # E: call-arg
plain.enqueue("a", sbject="x")  # E: call-arg
plain.enqueue("a", subject=5)  # E: arg-type
plain(5)  # E: arg-type
configured.enqueue(5)  # E: arg-type
configured.options(queue="q").enqueue(5)  # E: arg-type
coroutine.enqueue("a")  # E: arg-type
context_coroutine.enqueue("a")  # E: arg-type
context_coroutine.enqueue(1, 2)  # E: call-arg
awaitable = context_coroutine(1)  # E: call-arg arg-type
number: int = plain.enqueue("a").result()  # E: assignment
text: str = coroutine.enqueue(1).result()  # E: assignment
configured.options(quue="q")  # E: call-arg
configured.options(queue=5)  # E: arg-type
configured.options(retry=None)  # E: arg-type
harbor.task(queue=5)  # E: call-overload
harbor.task(retries=5)  # E: call-overload
Harbor("memory://", queue="x")  # E: call-arg
Harbor(5)  # E: arg-type
harbor.worker(concurency=3)  # E: call-arg
harbor.worker(queues=5)  # E: arg-type
Client("memory://").enqueue("email:send")  # E: arg-type
JobRequest(payload={})  # E: call-arg
JobRequest(type=5)  # E: arg-type


async def colours() -> None:
    await plain.aenqueue(5)  # E: arg-type
    result: int = await (await plain.aenqueue("a")).aresult()  # noqa: F841 # E: assignment
    await plain.enqueue("a")  # E: misc
