"""A step whose predecessor's result is not there: it never runs with a value that nobody returned."""

import sqlite3
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from taskharbor import BackendUnavailable, JobDead, JobNotFound
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.flow import chain, chord, group
from taskharbor.model.events import JobDeadLettered, JobGivenBack
from taskharbor.model.job import State
from taskharbor.testing import ManualClock
from tests.flow.stores import MakeHarbor, call_store
from tests.servers import redis as servers

Charged = list[dict[str, int] | None]
EVENTS = (JobGivenBack, JobDeadLettered)


class Orders:
    """price → charge, where charge takes None as well: nothing but the worker can notice a made-up value."""

    def __init__(self, dsn: Any, harbor_on: MakeHarbor) -> None:
        self.told: list[Any] = []
        self.harbor = harbor_on(dsn, clock=ManualClock(), observers=[self.note])
        self.charged: Charged = []

        @self.harbor.task(name="price", queue="first")
        def price(amount: int) -> dict[str, int]:
            return {"amount": amount}

        @self.harbor.task(name="skip", queue="first")
        def skip() -> None:
            pass

        @self.harbor.task(name="charge", queue="second")
        def charge(order: dict[str, int] | None) -> None:
            self.charged.append(order)

        @self.harbor.task(name="charge_all", queue="second")
        def charge_all(orders: list[Any]) -> None:
            self.charged += orders

        self.price, self.skip, self.charge, self.charge_all = price, skip, charge, charge_all

    def note(self, event: Any) -> None:
        if isinstance(event, EVENTS):
            self.told.append(event)

    def work(self, *queues: str) -> None:
        self.harbor.worker(queues=queues, heart="loop").run(until_empty=True)

    def driver(self, call: Callable[[Any], Any]) -> Any:
        return call_store(self.harbor.client, call)

    @property
    def now(self) -> Any:
        return self.harbor.clock.now()

    def ids(self, handle: Any, type: str) -> list[str]:
        return [node.job.id for node in self.harbor.flow(handle.id).nodes if node.job.type == type]


@pytest.fixture
def orders(dsn: str, harbor_on: MakeHarbor) -> Orders:
    return Orders(dsn, harbor_on)


def lose(orders: Orders, dsn: str, id: str) -> None:
    """Delete a record behind the driver's back."""
    scheme = urlsplit(dsn).scheme
    if scheme == "memory":
        del orders.harbor.driver.store.entries[id]  # type: ignore[attr-defined]  # not in its declared type
    elif scheme == "sqlite":
        with sqlite3.connect(urlsplit(dsn).path[1:]) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("DELETE FROM taskharbor_jobs WHERE id = ?", (id,))
        connection.close()
    elif scheme == "postgresql":
        import psycopg

        with psycopg.connect(dsn.partition("?")[0]) as postgres:
            postgres.execute("delete from taskharbor.history where id = %s", (id,))
    else:
        with servers.shared().client() as client:
            assert client.delete(f"{{first}}:job:{id}") == 1


def assert_dead_for_want_of(orders: Orders, handle: Any, id: str) -> None:
    with pytest.raises(JobDead, match=f"the result of job {id}.* is gone"):
        handle.result(1)
    (event,) = orders.told
    assert isinstance(event, JobDeadLettered)
    assert f"job {id}" in event.reason
    assert event.job.attempts == 0


def test_a_record_that_vanished_kills_the_step_with_the_reason(orders: Orders, dsn: str) -> None:
    handle = chain(orders.price.s(7), orders.charge.s()).enqueue()
    (price,) = orders.ids(handle, "price")
    orders.work("first")
    lose(orders, dsn, price)
    orders.work("second")
    assert orders.charged == []
    assert_dead_for_want_of(orders, handle, price)


def test_a_step_requeued_after_its_predecessor_was_deleted(orders: Orders) -> None:
    """No damage is needed: a cancelled step keeps nothing, and a dependency whose record is gone is not open."""
    handle = chain(orders.price.s(7), orders.charge.s()).enqueue()
    (price,), (charge,) = orders.ids(handle, "price"), orders.ids(handle, "charge")
    orders.work("first")
    for call in (
        lambda driver: driver.cancel([charge], orders.now),
        lambda driver: driver.delete([price]),
        lambda driver: driver.requeue([charge], orders.now),
    ):
        assert orders.driver(call) == [None]
    orders.work("second")
    assert orders.charged == []
    assert_dead_for_want_of(orders, orders.harbor.client.handle(charge), price)


def test_one_of_many_that_vanished_kills_the_step_that_collects_them(orders: Orders, dsn: str) -> None:
    """Behind a join, in a batch with a step that has all its results."""
    whole = chord([orders.price.s(1), orders.skip.s()], orders.charge_all.s()).enqueue()
    short = chord([orders.price.s(number) for number in (2, 3, 4)], orders.charge_all.s()).enqueue()
    chained = chain(orders.price.s(5), orders.charge.s()).enqueue()
    price = orders.ids(short, "price")[1]
    orders.work("first", "default")
    lose(orders, dsn, price)
    orders.work("second", "default")
    assert sorted(orders.charged, key=str) == [None, {"amount": 1}, {"amount": 5}]
    assert (whole.status(), chained.status()) == ("succeeded", "succeeded")
    assert_dead_for_want_of(orders, short, price)


def test_the_result_of_a_group_is_not_made_up_either(orders: Orders, dsn: str) -> None:
    handle = group(orders.price.s(1), orders.price.s(2), orders.skip.s()).enqueue()
    orders.work("first", "default")
    assert handle.result(1) == [{"amount": 1}, {"amount": 2}, None]
    price = orders.ids(handle, "price")[0]
    lose(orders, dsn, price)
    with pytest.raises(JobNotFound, match=f"the result of job {price} is not there"):
        handle.result(1)


def test_a_job_whose_heir_is_gone_has_no_result(orders: Orders, dsn: str) -> None:
    """A job returned a workflow, whose last job stands for it: its own None was never its result."""

    @orders.harbor.task(name="offer", queue="first")
    def offer() -> Any:
        return chain(orders.skip.s(), orders.price.s(1))

    handle = offer.enqueue()
    orders.work("first")
    info = orders.driver(lambda driver: driver.inspect(handle.id, orders.now))
    assert orders.driver(lambda driver: driver.results([handle.id])) == {handle.id: b'{"amount":1}'}
    lose(orders, dsn, info.job.handed_to)
    assert orders.driver(lambda driver: driver.results([handle.id])) == {}


def given_back(orders: Orders, times: int) -> list[float]:
    """After how many seconds the step is due again, each time that it is given back."""
    waits = []
    for _ in range(times):
        orders.work("second")
        waits.append((orders.told[-1].run_at - orders.now).total_seconds())
        orders.harbor.clock.advance(100)  # type: ignore[attr-defined]  # a manual clock
    return waits


def assert_growing(waits: list[float]) -> None:
    assert all(2 ** min(n, 6) <= wait <= 1.5 * 2 ** min(n, 6) for n, wait in enumerate(waits)), waits


def test_a_step_waits_for_a_predecessor_whose_end_the_store_has_forgotten(harbor_on: MakeHarbor) -> None:
    """Given back with the reason, ever later, without an attempt, until the predecessor has run again."""
    orders = Orders("memory://", harbor_on)
    handle = chain(orders.price.s(7), orders.charge.s()).enqueue()
    (price,) = orders.ids(handle, "price")
    orders.work("first")
    entry = orders.harbor.driver.store.entries[price]  # type: ignore[attr-defined]  # not in its declared type
    done, entry.state = entry.state, State.READY
    waits = given_back(orders, 9)
    assert {type(event) for event in orders.told} == {JobGivenBack}
    assert {event.reason for event in orders.told} == {
        f"the result of job {price} (price) is not there: that job is ready"
    }
    assert len(orders.told) == 9
    assert_growing(waits)
    assert orders.charged == []
    entry.state = done
    orders.work("second")
    assert orders.charged == [{"amount": 7}]
    assert {node.job.attempts for node in orders.harbor.flow(handle.id).nodes} == {0}


def test_results_that_a_store_cannot_read_are_not_asked_for_all_the_time(
    harbor_on: MakeHarbor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node of several is away: what waits for its results may be thousands of steps."""
    orders = Orders("memory://", harbor_on)
    chain(orders.price.s(7), orders.charge.s()).enqueue()
    orders.work("first")

    async def away(*_: Any) -> None:
        raise BackendUnavailable("a node is away")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryDriver, "results", away)
        assert_growing(given_back(orders, 8))
    assert {type(event) for event in orders.told} == {JobGivenBack}
    orders.work("second")
    assert orders.charged == [{"amount": 7}]
