"""Tests that are coroutine functions: a conftest imports the hook, and pytest runs them, each on a loop of its own.

A module with `NO_TASK_LEFT = True` fails where a test leaves a task behind.
"""

import asyncio
import inspect

import pytest

PATIENCE_S = 60  # hanging is a failure, not a wait


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def bounded() -> None:
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        async with asyncio.timeout(PATIENCE_S):
            await pyfuncitem.obj(**arguments)
        if getattr(pyfuncitem.module, "NO_TASK_LEFT", False):
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(bounded())
    return True
