"""Names that no store can hold: with lone surrogates, with NUL where a store's text cannot have it, with braces.

No job can have such a name, so a call returns for it what it returns for any unknown name. But the client library of
a store raises, and one such name would spoil its whole batch. `accepts_any_name` then repeats the call with these names
replaced by ones that no job has; calls that succeed are not touched. It also bounds limits that are too large for a
store.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from operator import is_
from typing import Any, TypeVar

import msgspec

from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack, Cancelled, Fail, Retry

D = TypeVar("D", bound=type)

MAX_LIMIT_JOBS = 10_000  # a lease token is made for each before the store is called
_VERBS = (
    "reserve", "extend", "settle", "results", "release", "wait", "is_paused", "inspect", "list", "requeue", "cancel",
    "delete", "flow", "cancel_flow", "upcoming", "figures", "heads",
)  # fmt: skip


def accepts_any_name(driver: D) -> D:
    """A class decorator: the verbs of the driver accept any text as a name, and any limit.

    >>> @accepts_any_name
    ... class MyDriver:
    ...     async def inspect(self, id, now):
    ...         return id.encode()
    >>> import asyncio
    >>> asyncio.run(MyDriver().inspect("\\ud800", None))
    b'{\\\\ud800'
    """
    for verb in _VERBS:
        if hasattr(driver, verb):  # blocking calls have a client's verbs only
            setattr(driver, verb, _guarded(getattr(driver, verb)))
    for verb, place in (("reserve", 3), ("list", None), ("flows", None), ("audit", None), ("prune", 1)):
        if hasattr(driver, verb):
            setattr(driver, verb, _bounded(getattr(driver, verb), place))
    return driver


def _guarded(verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    filters = verb.__name__ in ("list", "figures")  # their texts are names to filter by

    @functools.wraps(verb)
    async def call(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return await verb(self, *args, **named)
        except Exception:
            storable = [_storable(value, filters) for value in args]
            storable_named = {name: _storable(value, filters) for name, value in named.items()}
            if all(map(is_, (*storable, *storable_named.values()), (*args, *named.values()))):
                raise
        result = await verb(self, *storable, **storable_named)
        if verb.__name__ == "results":  # by the ids as the caller wrote them
            (ids,) = args or named.values()
            return {id: result[replaced] for id in ids if (replaced := _storable(id, True)) in result}
        if verb.__name__ == "heads":  # under the names as the caller wrote them
            queues = args[0] if args else named["queues"]
            return [msgspec.structs.replace(head, queue=name) for name, head in zip(queues, result, strict=True)]
        return result

    return call


def _bounded(verb: Callable[..., Awaitable[Any]], place: int | None) -> Callable[..., Awaitable[Any]]:
    """`limit` is at `place` in the arguments, or given by name."""

    @functools.wraps(verb)
    async def call(self: Any, *args: Any, **named: Any) -> Any:
        if "limit" in named:
            if named["limit"] > MAX_LIMIT_JOBS:
                named["limit"] = MAX_LIMIT_JOBS
        elif place is not None and args[place] > MAX_LIMIT_JOBS:
            args = (*args[:place], MAX_LIMIT_JOBS, *args[place + 1 :])
        return await verb(self, *args, **named)

    return call


def _storable(value: Any, within: bool = False) -> Any:
    """The same value with every name in it that no store can hold replaced by one that no job has; the very same
    object if there is nothing to replace.

    An empty text is such a name `within` a list, a lease or a filter. Elsewhere it has a meaning, such as a worker
    without a name.
    """
    if isinstance(value, str):
        if _is_storable(value, within):
            return value
        shown = value.encode("ascii", "backslashreplace").decode().replace("\x00", "\\x00").replace("}", ")")
        return "{" + shown[:200]  # no name has a brace
    if isinstance(value, Lease):
        names = (value.job_id, value.queue, value.token)
        job_id, queue, token = storable = _storable(names)
        return value if storable is names else Lease(job_id, queue, token, value.expires_at)
    if isinstance(value, Ack | Retry | Fail | Cancelled):
        lease = _storable(value.lease)
        return value if lease is value.lease else msgspec.structs.replace(value, lease=lease)
    if isinstance(value, list | tuple):
        each_storable = [_storable(each, True) for each in value]
        return value if all(map(is_, each_storable, value)) else each_storable
    return value


def _is_storable(name: str, within: bool) -> bool:
    if (within and not name) or "\x00" in name or "}" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
