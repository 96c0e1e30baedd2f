"""`with` and `async with` around a Client or a Harbor: it is closed afterwards. Around one that `within` made, the
block is what the time limit holds for."""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from taskharbor.client.client import Client

_limits: ContextVar[tuple[tuple[Client, float], ...]] = ContextVar("taskharbor_limits", default=())


def limited_by_block(client: Client) -> float | None:
    """How many seconds a call may take by the innermost block around it; None: there is no such block."""
    limits = _limits.get()
    if not limits:
        return None
    return next((seconds for limited, seconds in reversed(limits) if limited.is_same(client)), None)


class ClosedAfterBlock:
    """Closes itself at the end of a `with` or an `async with` block."""

    _original: Client | None = None  # of one that `within` made
    _limit_of_block: float | None = None
    _token: Token[tuple[tuple[Client, float], ...]]

    @property
    def _client(self) -> Client:
        raise NotImplementedError

    def close(self) -> None:
        """Close what blocking calls opened."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close what this event loop opened, and what blocking calls did."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if self._limit_of_block is not None:
            self._token = _limits.set((*_limits.get(), (self._client, self._limit_of_block)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._limit_of_block is not None:
            _limits.reset(self._token)
        else:
            self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._limit_of_block is not None:
            _limits.reset(self._token)
        else:
            await self.aclose()
