"""Repeating a call to the store while the store cannot be reached, with growing, jittered pauses."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from taskharbor.client.budget import Budget
from taskharbor.drivers.base import Driver
from taskharbor.model.errors import BackendUnavailable

T = TypeVar("T")

MAX_TRIES = 5
FIRST_PAUSE_S = 0.05  # doubled each time, plus up to as much again: 0.75 to 1.5 seconds in all


async def with_retries(call: Callable[[Driver], Awaitable[T]], budget: Budget) -> T:
    """Make a call that may be repeated, until it succeeds, fails five times, or has spent its budget."""
    return await budget.access.within(budget, _tries, call, budget)


async def _tries(call: Callable[[Driver], Awaitable[T]], budget: Budget) -> T:
    access = budget.access
    closings = access.closings()
    pause = FIRST_PAUSE_S
    for number in range(1, MAX_TRIES + 1):
        budget.tries += 1
        try:
            driver = await access.driver(budget.deadline)
            budget.reached = True
            return await call(driver)
        except BackendUnavailable as error:
            if budget.is_spent():
                raise budget.spent() from budget.cause(error)
            budget.last = error
            if number == MAX_TRIES or access.closings() != closings:
                raise budget.refused(error) from budget.cause(error)
        await access.sleep(min(pause + pause * random.random(), budget.left()))
        if access.closings() != closings:
            raise budget.refused(budget.last) from budget.cause()
        if budget.is_spent():
            break
        pause *= 2
    raise budget.spent() from budget.cause()
