"""What other programs damaged in a store, in sentences for `taskharbor doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from taskharbor.drivers.redis.records import text_of
from taskharbor.drivers.redis.script_args import DamageArgs
from taskharbor.drivers.redis.store import RedisStore


async def report(store: RedisStore, queues: Sequence[str]) -> list[str]:
    """A sentence for each kind of damage in each of these queues, with what to do about it."""
    found: list[str] = []
    for home, part in store.router.parts(queues):
        for reply in await store.run(DamageArgs(home=home, queues=part)):
            found += _sentences(*reply)
    return found


def _sentences(queue: bytes, number: int, kept: list[Any], restored: int, aside: int, returned: int) -> Iterator[str]:
    name = text_of(queue)
    if number:
        names = [
            f"{{{name}}}:th:damaged:{text_of(kept[at])} (a {text_of(kept[at + 1])})" for at in range(0, len(kept), 2)
        ]
        yield (
            f"queue {name}: {number} key(s) that another program wrote over were moved out of the way: "
            f"{', '.join(names)}{' …' if number > len(names) else ''}; find that program, check what it wrote there, "
            "and DEL it"
        )
    if restored:
        yield (
            f"queue {name}: {restored} job(s) were in no list or set and were put back in the last day; "
            "find the program that deletes or writes over keys of the queue"
        )
    if aside:
        yield (
            f"queue {name}: {aside} damaged record(s) were set aside in the last day: "
            f"taskharbor dlq list --queue {name}; find the program that wrote them"
        )
    if returned:
        yield (
            f"queue {name}: {returned} message(s) to other queues cannot be delivered, and what waits for them stays "
            f"blocked; they are kept in {{{name}}}:th:returned: cancel the blocked jobs or the flow, and DEL it"
        )
