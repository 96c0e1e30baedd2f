"""`within`: another time limit for some calls, by the object that it returns or for a block."""

import asyncio
from typing import Any

import pytest

from taskharbor import BackendUnavailable, Harbor
from taskharbor.drivers.memory import MemoryDriver


class Silent(MemoryDriver):
    """Never answers a count, a page or an enqueue."""

    async def counts(self, now: Any, cap: int | None = None) -> Any:
        await asyncio.Event().wait()

    async def enqueue(self, jobs: Any, now: Any) -> Any:
        await asyncio.Event().wait()

    async def list(self, **query: Any) -> Any:
        await asyncio.Event().wait()

    def sibling(self) -> "Silent":
        return Silent()


def limit_of(call: Any) -> str:
    """The seconds that the error of a call names."""
    with pytest.raises(BackendUnavailable) as caught:
        call()
    return str(caught.value).partition(" within ")[2].partition(" s ")[0]


def test_each_way_to_give_a_limit() -> None:
    harbor = Harbor(Silent(), call_timeout=0.05)

    @harbor.task(name="t")
    def task() -> None: ...

    short = harbor.within(0.01)
    assert limit_of(harbor.counts) == "0.05"
    assert limit_of(short.counts) == "0.01"
    assert limit_of(lambda: list(short.jobs())) == "0.01"
    assert limit_of(lambda: asyncio.run(short.acounts())) == "0.01"
    with harbor.within(0.02):
        assert limit_of(task.enqueue) == "0.02"
        assert limit_of(lambda: asyncio.run(task.aenqueue())) == "0.02"
        assert limit_of(harbor.jobs().count) == "0.02"
        assert limit_of(short.counts) == "0.01"
        with harbor.within(0.03):
            assert limit_of(harbor.counts) == "0.03"
        assert limit_of(harbor.counts) == "0.02"
    assert limit_of(harbor.counts) == "0.05"
    harbor.close()


def test_a_block_is_for_its_own_store_and_closes_nothing() -> None:
    with Harbor("memory://") as harbor, Harbor(Silent(), call_timeout=0.05) as other:
        with harbor.within(0.01) as limited:
            assert limit_of(other.counts) == "0.05"
            assert limited.counts() == {}
            handle = limited.job("01J")
        assert handle == harbor.job("01J")
        assert harbor.counts() == {}

    async def main() -> None:
        async with Harbor("memory://") as harbor, harbor.within(3) as limited:
            assert await limited.acounts() == {}

    asyncio.run(main())


@pytest.mark.parametrize("limit", [0, -1, "3", None])
def test_a_limit_must_be_more_than_zero_seconds(limit: Any) -> None:
    with Harbor("memory://") as harbor, pytest.raises((TypeError, ValueError), match="within: expected"):
        harbor.within(limit)
