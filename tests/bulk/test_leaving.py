"""A program that leaves an operation, by Ctrl-C for example, ends the slice under way first."""

import asyncio

import pytest

from taskharbor.client.operation import _to_its_end


def test_a_slice_is_finished_before_its_program_leaves():
    """A lease that is left behind would keep every other runner from the slice for a minute."""
    ended = []

    async def leave() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def slice() -> bool:
            begun.set()
            await go.wait()
            ended.append(True)
            return True

        running = asyncio.create_task(_to_its_end(slice()))
        await begun.wait()
        running.cancel()
        asyncio.get_running_loop().call_soon(go.set)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended == [True]

    asyncio.run(leave())
