"""`with` and `async with` around what has `close` and `aclose`, written once for Client and Harbor."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class ClosedAfterBlock:
    """Closes itself at the end of a `with` or an `async with` block."""

    def close(self) -> None:
        """Close what blocking calls opened."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close what this event loop opened, and what blocking calls did."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
