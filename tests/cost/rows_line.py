"""Lining up and reserving."""

from taskharbor.drivers import Ack
from tests.cost.meter import Row, Store


async def backlog(store: Store, size: int) -> None:
    await store.put(size)
    store.later()


async def enqueue(store: Store) -> None:
    await store.driver.enqueue(store.jobs(100), store.later())


async def reserve(store: Store) -> None:
    store.later()
    assert len(await store.take(10)) == 10


async def reserve_and_ack(store: Store) -> None:
    store.later()
    taken = await store.take(10)
    assert await store.driver.settle([Ack(held.lease) for held in taken], store.now) == [None] * 10


ROWS = [
    Row("`enqueue` of 100", backlog, enqueue),
    Row("`reserve` of 10", backlog, reserve),
    Row("`reserve` of 10 and their acks", backlog, reserve_and_ack),
]
