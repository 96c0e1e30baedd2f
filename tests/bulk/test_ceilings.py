"""What looking at many dead jobs costs the store: calls and records, counted."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from taskharbor.drivers.memory import MemoryDriver
from tests.bulk.bench import Store

DEAD = 12_000


class Counting(MemoryDriver):
    """Counts calls, and the records that listings return."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[str]()
        self.records = 0

    def sibling(self) -> "Counting":
        other = Counting()
        other.store, other.calls = self.store, self.calls
        other.count = self.count  # type: ignore[method-assign]  # one tally for both
        return other

    def count(self, name: str, records: int = 0) -> None:
        self.calls[name] += 1
        self.records += records

    async def list(self, **query: Any) -> Any:
        page = await super().list(**query)
        assert query.get("payloads") is False or query.get("limit") == 1, "a listing of many reads no payloads"
        self.count("list", len(page.items))
        return page

    async def enqueue(self, *given: Any) -> Any:
        self.count("enqueue")
        return await super().enqueue(*given)

    async def put_audit(self, *given: Any) -> None:
        self.count("put_audit")
        await super().put_audit(*given)


@pytest.fixture(scope="module")
def store() -> Store:
    made = Store(Counting())
    asyncio.run(made.kill(DEAD))
    made.later(1)
    return made


def cost(store: Store, call: Any) -> tuple[Any, Counter[str], int]:
    """What a call returned, the calls of the store that it made, and the records it was given."""
    driver: Any = store.driver
    driver.calls.clear()
    driver.records = 0
    result = asyncio.run(call())
    return result, Counter(driver.calls), driver.records


def test_a_summary_reads_the_newest_ten_thousand(store: Store) -> None:
    summary, calls, records = cost(store, store.client.dead().asummary)
    assert (summary.jobs, summary.complete) == (10_000, False)
    assert calls == {"list": 10}
    assert records == 10_000


def test_a_dry_run_counts_to_ten_thousand(store: Store) -> None:
    dry, calls, _ = cost(store, lambda: store.client.dead().arequeue(dry_run=True))
    assert str(dry.count) == "10000+"
    assert calls == {"list": 10}


def test_beginning_counts_nothing(store: Store) -> None:
    operation, calls, records = cost(store, lambda: store.client.dead().arequeue(spread=60))
    assert calls == {"enqueue": 1, "put_audit": 1}
    assert records == 0
    _, calls, _ = cost(store, operation.aprogress)
    assert calls == {"list": 1}
    asyncio.run(operation.astop())
