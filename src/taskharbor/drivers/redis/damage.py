"""What other programs damaged, in words for whoever looks after the store (`taskharbor doctor`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.redis.records import text_of
from taskharbor.drivers.redis.scripts import load

if TYPE_CHECKING:
    from taskharbor.drivers.redis.commands import StandaloneCommands


async def report(commands: StandaloneCommands, queues: Sequence[str]) -> list[str]:
    """A sentence for each kind of damage in each of these queues, with what to do about it."""
    found: list[str] = []
    for home, part in commands.parts(queues):
        for answer in await commands.endpoint.run(load("damage"), home, (part,)):
            found += _sentences(*answer)
    return found


def _sentences(queue: bytes, number: int, kept: list[Any], restored: int, aside: int, returned: int) -> Iterator[str]:
    name = text_of(queue)
    if number:
        names = [
            f"{{{name}}}:th:damaged:{text_of(kept[at])} (a {text_of(kept[at + 1])})" for at in range(0, len(kept), 2)
        ]
        yield (
            f"queue {name}: {number} key(s) that another program wrote over were moved out of the way: "
            f"{', '.join(names)}{' …' if number > len(names) else ''}; find that program, look at what it wrote there, "
            "and DEL it"
        )
    if restored:
        yield (
            f"queue {name}: {restored} job(s) stood in no lane and were put back in the last day; "
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
