"""The modes of bench/meter.py for any peer that can send, send many, and work.

A peer is a class; one object is made for each sample. What it sends runs `meter.job` or `meter.ajob`. `work` goes on
until the process ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bench import meter
from bench.meter import Measured, Mode, Order


class Peer(Protocol):
    """One whose client blocks."""

    def send(self) -> object:
        """Enqueue one job."""

    def send_many(self, jobs: int) -> object:
        """Enqueue several jobs in one call, if there is such a call."""

    def work(self) -> object:
        """Be a worker."""


class AsyncPeer(Protocol):
    """One whose client is awaited. `open` is called first."""

    async def open(self) -> object:
        """Connect, and make what an empty store lacks."""

    async def send(self) -> object:
        """Enqueue one job."""

    async def send_many(self, jobs: int) -> object:
        """Enqueue several jobs in one call, if there is such a call."""

    async def work(self) -> object:
        """Be a worker."""


def modes(make: Callable[[Order], Peer]) -> dict[str, Mode]:
    """The modes of a peer whose client blocks."""

    def process(order: Order) -> None:
        peer = make(order)
        for size in meter.batches(order.jobs):
            peer.send_many(size)
        meter.count(order)
        peer.work()

    def enqueue_one(order: Order) -> Measured:
        peer = make(order)
        peer.send()
        with meter.Watch(order.server) as watch:
            for _ in range(order.jobs):
                peer.send()
        return watch.sample(order.jobs)

    def enqueue_many(order: Order) -> Measured:
        peer = make(order)
        peer.send()
        with meter.Watch(order.server) as watch:
            for size in meter.batches(order.jobs):
                peer.send_many(size)
        return watch.sample(order.jobs)

    def latency(order: Order) -> Measured:
        peer = make(order)
        with meter.idle_worker(order) as picks:
            for _ in picks.turns():
                peer.send()
        return picks.sample()

    def serve(order: Order) -> None:
        meter.tell_picks()
        make(order).work()

    return _named(process, enqueue_one, enqueue_many, latency, serve)


def async_modes(make: Callable[[Order], AsyncPeer]) -> dict[str, Mode]:
    """The modes of a peer whose client is awaited."""

    async def process(order: Order) -> None:
        peer = await opened(order)
        for size in meter.batches(order.jobs):
            await peer.send_many(size)
        meter.count(order)
        await peer.work()

    async def enqueue_one(order: Order) -> Measured:
        peer = await opened(order)
        await peer.send()
        with meter.Watch(order.server) as watch:
            for _ in range(order.jobs):
                await peer.send()
        return watch.sample(order.jobs)

    async def enqueue_many(order: Order) -> Measured:
        peer = await opened(order)
        await peer.send()
        with meter.Watch(order.server) as watch:
            for size in meter.batches(order.jobs):
                await peer.send_many(size)
        return watch.sample(order.jobs)

    async def latency(order: Order) -> Measured:
        peer = await opened(order)
        with meter.idle_worker(order) as picks:
            for _ in picks.turns():
                await peer.send()
        return picks.sample()

    async def serve(order: Order) -> None:
        meter.tell_picks()
        await (await opened(order)).work()

    async def opened(order: Order) -> AsyncPeer:
        peer = make(order)
        await peer.open()
        return peer

    return _named(process, enqueue_one, enqueue_many, latency, serve)


def _named(*functions: Mode) -> dict[str, Mode]:
    return dict(zip(("process", "enqueue-one", "enqueue-many", "latency", "serve"), functions, strict=True))
