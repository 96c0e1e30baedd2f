"""The suite as a class for pytest: each case is a test, the state machine is one more.

Needs pytest and hypothesis, the extra `taskharbor[conformance]`. No asyncio plugin is needed or used.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Collection
from typing import Any

try:
    import hypothesis
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"DriverConformance needs the module {error.name}: pip install 'taskharbor[conformance]'", name=error.name
    ) from None

if (
    "taskharbor.conformance.cases" not in sys.modules
):  # otherwise the cases are imported already, and assert without pytest's help
    pytest.register_assert_rewrite("taskharbor.conformance.cases")

from taskharbor.conformance.case import Case, Skipped, all_cases
from taskharbor.conformance.environment import SAMPLES, Environment, settled
from taskharbor.drivers import Driver


class DriverHooks:
    """What the test class of a driver provides."""

    lacks: Collection[str] = frozenset()
    """The optional parts of the contract that the driver lacks: `MyDriver.lacks()`. Their cases are no tests of the
    class."""
    damage_samples = SAMPLES
    """How many pairs of field and damage each case of the theme `damaged_fields` tries; there are some two hundred."""
    damage_seed = 0
    """Which ones."""

    def make_driver(self) -> Driver | Awaitable[Driver]:
        """A fresh driver, not yet opened, on an EMPTY store. May be a coroutine function."""
        raise NotImplementedError("give your test class a make_driver()")

    def damage(self, driver: Driver, id: str, how: str) -> Awaitable[None] | None:
        """Damage the record of a job behind the driver's back, as another program could.

        `how` is `type` (no type), `payload` (no payload), `number` (attempts that are not a number) or `state` (an
        unknown state). May be a coroutine function. Leave it out only for a store that no other program can write to.
        """
        raise Skipped("damage() is not given: the store cannot be written to by another program")

    def damage_field(self, driver: Driver, id: str, field: str, kind: str) -> Awaitable[bool] | bool:
        """Put a wrong value into one field of a job's record behind the driver's back. False: no store could hold it.

        `field` is that of JobRecord, or `state`. `kind` is `missing`, `empty`, `word` (text that the field cannot
        have), `bytes` (not valid UTF-8), `negative` (-1), `huge` (2**62), `fraction` (1.5), `infinite` (NaN or
        infinity) or `nested` (a list in a list, in the store's form for lists). May be a coroutine function.
        """
        raise Skipped("damage_field() is not given: the store cannot be written to by another program")

    def clean(self, driver: Driver) -> Awaitable[None] | None:
        """Called after each case and each run of the machine, with the driver still open: remove what is left."""
        return None


def _name_of(case: Case) -> str:
    return f"test_{case.theme}_{case.name}"


def _test_of(case: Case) -> Callable[[DriverCases], None]:
    def test(self: DriverCases) -> None:
        async def live() -> None:
            driver = await settled(self.make_driver())
            await driver.open()
            try:
                env = Environment(
                    driver,
                    damage=self.damage,
                    damage_field=self.damage_field,
                    samples=self.damage_samples,
                    seed=self.damage_seed,
                )
                try:
                    await case.function(env)
                finally:
                    await env.close()
                    await settled(self.clean(driver))
            finally:
                await driver.close()

        try:
            asyncio.run(live())
        except Skipped as reason:
            pytest.skip(str(reason))

    test.__name__ = _name_of(case)
    test.__qualname__ = f"DriverCases.{test.__name__}"
    test.__doc__ = "\n".join(case.sentences)
    return test


class DriverCases(DriverHooks):
    """The cases alone, without the state machine. Each case is a test `test_<theme>_<name>`."""

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        for case in all_cases():
            if case.missing(cls.lacks):
                setattr(cls, _name_of(case), None)  # pytest collects functions
            elif getattr(cls, _name_of(case)) is None:
                setattr(cls, _name_of(case), _test_of(case))

    def test_lacks(self) -> None:
        """The class names what the driver lacks, so that no case is left out by mistake."""

        async def lacking() -> frozenset[str]:
            driver = await settled(self.make_driver())
            await driver.open()
            try:
                return driver.lacks()
            finally:
                await settled(self.clean(driver))
                await driver.close()

        assert asyncio.run(lacking()) == frozenset(self.lacks), "give your test class `lacks = MyDriver.lacks()`"


for _case in all_cases():
    setattr(DriverCases, _name_of(_case), _test_of(_case))


class DriverMachine(DriverHooks):
    """The state machine alone: see `taskharbor.conformance.machine`."""

    machine_runs = 200
    machine_steps = 50
    machine_shares_store = True
    """Whether the runs share one store, each with names of its own; False: `make_driver()` is called for each."""
    machine_shrinks = True
    """Whether a walk that fails is shrunk before it is printed, which takes minutes on a slow store; False: the failure
    says how to shrink it."""

    def test_machine(self) -> None:
        from taskharbor.conformance.machine import check_machine

        shrink = self.machine_shrinks or bool(os.environ.get("TASKHARBOR_MACHINE_SHRINK"))
        given = os.environ.get("TASKHARBOR_MACHINE_SEED")
        seed = int(given) if given else None
        if seed is None and not shrink:  # printed when a walk fails; the same number again where runs are repeatable
            seed = 0 if hypothesis.settings().derandomize else secrets.randbelow(2**32)
        try:
            check_machine(
                self.make_driver,
                runs=int(os.environ.get("TASKHARBOR_MACHINE_RUNS") or self.machine_runs),
                steps=int(os.environ.get("TASKHARBOR_MACHINE_STEPS") or self.machine_steps),
                share_store=self.machine_shares_store,
                clean=self.clean,
                shrink=shrink,
                seed=seed,
            )
        except Exception as error:
            if not shrink:
                knobs = f"TASKHARBOR_MACHINE_SEED={seed} TASKHARBOR_MACHINE_SHRINK=1"
                error.add_note(f"This is the walk as it was found. For a shorter one run the test again with {knobs}")
            raise


class DriverConformance(DriverCases, DriverMachine):
    """The whole contract. Subclass it in pytest, and every sentence is a test of your driver:

    class TestMyDriver(DriverConformance):
        def make_driver(self):
            return MyDriver("mystore://localhost/empty")

        async def damage(self, driver, id, how):
            await break_record(id, how)
    """
