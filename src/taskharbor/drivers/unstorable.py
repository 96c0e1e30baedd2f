"""Questions about names that no store can hold: lone surrogates, NUL where a store's text cannot have it, braces.

Nobody can have such a name, so the answer is that of any unknown one. But a store's client library raises, and one
name would spoil the batch in which it stands. `answers_for_any_name` asks again then, with such names replaced by ones
that nobody has; calls that go well are not touched. It also bounds limits that no store could answer.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack, Cancelled, Fail, Retry

D = TypeVar("D", bound=type)

MOST = 10_000  # jobs in one answer: a lease token is made for each before the store is asked
_VERBS = (
    "reserve", "extend", "settle", "results", "release", "wait", "is_paused", "inspect", "list", "requeue", "cancel",
    "delete", "flow", "cancel_flow",
)  # fmt: skip


def answers_for_any_name(driver: D) -> D:
    """A driver class whose verbs answer for any text, and for any limit."""
    for verb in _VERBS:
        setattr(driver, verb, _guarded(getattr(driver, verb)))
    for verb, place in (("reserve", 3), ("list", None), ("prune", 1)):
        setattr(driver, verb, _bounded(getattr(driver, verb), place))
    return driver


def _guarded(verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    filters = verb.__name__ == "list"  # its texts are names to look for

    @functools.wraps(verb)
    async def asked(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return await verb(self, *given, **named)
        except Exception:
            if all(_names_are_storable(value, filters) for value in (*given, *named.values())):
                raise
        asked_for = map(_storable, given)
        answer = await verb(self, *asked_for, **{name: _storable(value, filters) for name, value in named.items()})
        if verb.__name__ == "results":  # by the ids as they were asked for
            (ids,) = given or named.values()
            return {id: answer[found] for id in ids if (found := _storable(id, True)) in answer}
        return answer

    return asked


def _bounded(verb: Callable[..., Awaitable[Any]], place: int | None) -> Callable[..., Awaitable[Any]]:
    """`limit` is at that place of the arguments, or given by name."""

    @functools.wraps(verb)
    async def asked(self: Any, *given: Any, **named: Any) -> Any:
        if "limit" in named:
            if named["limit"] > MOST:
                named["limit"] = MOST
        elif place is not None and given[place] > MOST:
            given = (*given[:place], MOST, *given[place + 1 :])
        return await verb(self, *given, **named)

    return asked


def _storable(value: Any, within: bool = False) -> Any:
    """The same value with every name in it that no store can hold replaced by one that nobody has. An empty text is
    such a name `within` a list, a lease or a filter; else it is what it is, such as a worker without a name."""
    if isinstance(value, str):
        if _is_storable(value, within):
            return value
        shown = value.encode("ascii", "backslashreplace").decode().replace("\x00", "\\x00").replace("}", ")")
        return "{" + shown[:200]  # no name has a brace
    if isinstance(value, Lease):
        job_id, queue, token = (_storable(name, True) for name in (value.job_id, value.queue, value.token))
        return Lease(job_id, queue, token, value.expires_at)
    if isinstance(value, Ack | Retry | Fail | Cancelled):
        return msgspec.structs.replace(value, lease=_storable(value.lease))
    if isinstance(value, list | tuple):
        return [_storable(each, True) for each in value]
    return value


def _names_are_storable(value: Any, within: bool = False) -> bool:
    """Whether there is nothing to replace."""
    if isinstance(value, str):
        return _is_storable(value, within)
    if isinstance(value, Lease):
        return all(_is_storable(name, True) for name in (value.job_id, value.queue, value.token))
    if isinstance(value, Ack | Retry | Fail | Cancelled):
        return _names_are_storable(value.lease)
    if isinstance(value, list | tuple):
        return all(_names_are_storable(each, True) for each in value)
    return True


def _is_storable(name: str, within: bool) -> bool:
    if (within and not name) or "\x00" in name or "}" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
