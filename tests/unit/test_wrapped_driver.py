"""A driver around another one: every verb passes through it, also the one that opens a store only to read."""

import asyncio
from typing import Any

from taskharbor.drivers import WrappedDriver, open_driver


class Noting(WrappedDriver):
    verbs: list[str]

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        self.verbs.append(verb)
        return await call()


def test_opening_to_read_is_the_wrapper_s_own_open() -> None:
    """Of a driver that has no `open_existing` of its own: a wrapper that counts or refuses connections must see it."""
    driver = Noting(open_driver("memory://"))
    driver.verbs = []
    asyncio.run(driver.open_existing())
    assert driver.verbs == ["open"]
    assert (driver.lacks(), driver.unkept, driver.retention.days) == (frozenset(), frozenset(), 1)
