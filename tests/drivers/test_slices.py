"""Large calls go in slices on every store, and say what is done if the store is away in between."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import BackendUnavailable, Driver, JobRecord, open_driver, slices
from taskharbor.drivers.redis import admin
from tests.drivers.redis_stores import emptied
from tests.servers import postgres

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATE = NOW + timedelta(days=3)
JOBS = [f"j{number}" for number in range(5)]
STORES = [pytest.param(name, marks=pytest.mark.lane(name)) for name in ("sqlite", "postgres", "redis")]
CALLS: dict[str, Callable[[Driver], Awaitable[Any]]] = {
    "cancel": lambda driver: driver.cancel(JOBS, NOW),
    "requeue": lambda driver: driver.requeue(JOBS, NOW),
    "prune": lambda driver: driver.prune(LATE, 5),
}


def dsn_of(store: str, folder: Any) -> str:
    if store == "sqlite":
        return f"sqlite:///{folder}/jobs.db"
    return emptied() if store == "redis" else postgres.shared().address(postgres.shared().store())


def called_by(store: str, driver: Any) -> tuple[Any, str]:
    """What makes a transaction or runs a script."""
    if store == "redis":
        return driver.store.endpoint, "run"
    return (driver.database, "write") if store == "sqlite" else (driver, "_value")


@pytest.mark.parametrize("store", STORES)
def test_a_large_call_that_stops_says_how_far_it_came(store, tmp_path, monkeypatch):
    monkeypatch.setattr(slices, "MAX_CHANGED_JOBS", 2)
    monkeypatch.setattr(admin, "MAX_MOVED", 2)

    async def stopped(driver: Driver, call: Callable[[Driver], Awaitable[Any]]) -> str:
        """The error of a call whose third transaction or script cannot reach the store."""
        place, name = called_by(store, driver)
        real, calls = getattr(place, name), list[None]()

        async def twice(*given: Any, **how: Any) -> Any:
            calls.append(None)
            if len(calls) == 3:
                raise BackendUnavailable("away")
            return await real(*given, **how)

        with monkeypatch.context() as patch:
            patch.setattr(place, name, twice)
            with pytest.raises(BackendUnavailable) as caught:
                await call(driver)
        return str(caught.value)

    async def story() -> None:
        driver = open_driver(dsn_of(store, tmp_path))
        await driver.open()
        try:
            await driver.enqueue([JobRecord(id=id, type="t") for id in JOBS], NOW)
            for name in ("cancel", "requeue", "cancel"):
                said = f"{name}: changed 4 job(s), then: away; what is changed stays so; call it again for the rest"
                assert await stopped(driver, CALLS[name]) == said
                await CALLS[name](driver)
            if store != "redis":  # where a script deletes 200, and looks at the locations first
                assert await stopped(driver, CALLS["prune"]) == (
                    "prune: deleted 4 job(s), then: away; call it again for the rest"
                )
                assert await driver.prune(LATE, 5) == 1
        finally:
            await driver.close()

    asyncio.run(story())
