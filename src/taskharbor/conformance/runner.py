"""Running the cases without pytest: for the command line, and for tests of the tests.

All cases run on one store, one after the other. Each uses names and a day of its own and takes its jobs away
afterwards; nothing that the run did not create is deleted.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from taskharbor.conformance.case import Case, Skipped, all_cases
from taskharbor.conformance.environment import BASE, Damage, DamageField, Environment, opened, settled
from taskharbor.conformance.report import CaseResult, Report, Verdict
from taskharbor.drivers import Driver, open_driver

Factory: TypeAlias = Callable[[], Driver | Awaitable[Driver]]


class StoreNotEmpty(Exception):
    """The store holds jobs, and no `namespace` was given for the cases to run beside them."""


def run(
    target: str | Factory,
    *,
    themes: Sequence[str] | None = None,
    damage: Damage | None = None,
    damage_field: DamageField | None = None,
    namespace: str | None = None,
    stop_at_first: bool = False,
) -> Report:
    """Run the cases against a store: a DSN, or a function that makes a driver which is not yet open.

    `themes`: only these. `damage`, `damage_field`: how to damage a record (see `DriverConformance`); without them those
    cases are skipped. `namespace`: what the names of queues, jobs and workers begin with; needed where the store is not
    empty.

    >>> report = run("memory://", themes=["enqueue"])
    >>> report.ok
    True
    """
    if not __debug__:
        raise RuntimeError("the cases are written with assert: run Python without -O")
    return asyncio.run(
        arun(
            target,
            themes=themes,
            damage=damage,
            damage_field=damage_field,
            namespace=namespace,
            stop_at_first=stop_at_first,
        )
    )


async def arun(
    target: str | Factory,
    *,
    themes: Sequence[str] | None = None,
    damage: Damage | None = None,
    damage_field: DamageField | None = None,
    namespace: str | None = None,
    stop_at_first: bool = False,
) -> Report:
    """The same for a running event loop."""
    cases = all_cases(themes)
    made = open_driver(target) if isinstance(target, str) else target()
    results: list[CaseResult] = []
    async with opened(await settled(made)) as driver:
        if namespace is None and (found := await driver.queues()):
            raise StoreNotEmpty(
                f"the store is not empty: it holds {len(found)} queue(s), the first is {found[0]!r}. "
                "Use an empty store, or give a namespace that the names of the cases begin with."
            )
        lacks = driver.lacks()
        for number, case in enumerate(cases):
            if missing := case.missing(lacks):
                results.append(CaseResult(case, Verdict.NOT_OFFERED, missing))
                continue
            env = Environment(
                driver,
                prefix=f"{namespace or 'conformance-'}{number:03d}-",
                # A later case lies on an earlier day, so that it never prunes what another left behind.
                now=BASE - timedelta(days=number),
                exclusive=False,
                damage=damage,
                damage_field=damage_field,
                dsn=target if isinstance(target, str) else "",
            )
            results.append(await judge(case, env, remove=True))
            if stop_at_first and results[-1].verdict is Verdict.FAILED:
                break
    return Report(tuple(results))


async def judge(case: Case, env: Environment, *, remove: bool) -> CaseResult:
    """Run one case in its environment; never raises for what the driver does."""
    try:
        try:
            await case.function(env)
        finally:
            await env.close(remove=remove)
    except Skipped as reason:
        return CaseResult(case, Verdict.SKIPPED, str(reason))
    except Exception as error:
        return CaseResult(case, Verdict.FAILED, describe(error))
    return CaseResult(case, Verdict.OK)


def describe(error: Exception) -> str:
    """What went wrong and where: the line of the case, then the error."""
    frames = traceback.extract_tb(error.__traceback__)
    in_case = [frame for frame in frames if "conformance" in frame.filename and "runner" not in frame.filename]
    lines = [f"{frame.filename.rsplit('/', 2)[-1]}:{frame.lineno}: {frame.line}" for frame in in_case[-2:]]
    if frames and (not in_case or frames[-1] is not in_case[-1]):
        lines.append(f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}")
    text = str(error)
    return "\n".join([*lines, f"{type(error).__name__}{': ' + text if text else ''}"])
