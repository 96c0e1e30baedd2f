"""Delivering messages between the slots of a Cluster: from the outbox of a queue to the queues they are for.

A message is applied first and taken out of the outbox then, so a crash in between delivers it again: every message may
come twice. Two clients that deliver at once do no harm either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from taskharbor.drivers.redis.scripts import load
from taskharbor.model.shown import shown

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster import ClusterCalls

BATCH = 500
ROUNDS = 1000  # so many turns of a delivery are work; more are a mistake
YOUNG = 24 * 3600  # seconds for which a dependency that is missing may still come, with a call that is sent again


class Message(msgspec.Struct, array_like=True):
    """What flows.lua posts: `args` stays as it is."""

    queue: Any
    kind: Any
    number: int
    posted: int
    now: int
    args: msgspec.Raw

    def __repr__(self) -> str:
        return shown(self, "queue", "kind", "number")


# What Redis packs is text of any bytes, which no decoder of text takes: names are UTF-8, payloads stay raw.
_message = msgspec.msgpack.Decoder(Message).decode
_names = msgspec.msgpack.Decoder(list[str]).decode


class Outbox:
    """One client's deliveries."""

    def __init__(self, calls: ClusterCalls) -> None:
        self._calls = calls

    async def deliver(self, queues: Iterable[str]) -> bool:
        """Deliver what is in these outboxes, and what comes of it; answers whether any was delivered."""
        waiting = list(dict.fromkeys(queues))
        late: set[bytes] = set()
        any_delivered = False
        for _ in range(ROUNDS):
            if not waiting:
                return any_delivered
            queue = waiting.pop(0)
            key = f"{{{queue}}}:th:outbox"
            found = await self._calls.link.ask("ZRANGE", key, 0, BATCH - 1 + len(late), key=key)
            posted = [one for one in found if one not in late]
            if not posted:
                continue
            applied = await self._apply(posted)
            late.update(one for one in posted if one not in applied)
            if applied:
                any_delivered = True
                await self._calls.link.ask("ZREM", key, *applied, key=key)
            targets = [target for target in map(_target, posted) if not target.startswith("@")]
            waiting = list(dict.fromkeys([*waiting, queue, *targets]))
        return any_delivered

    async def _apply(self, posted: list[bytes]) -> set[bytes]:
        """Apply messages, in their order for each target; answers those that were. New jobs come first: others wait
        for them, and would have to come again."""
        applied: set[bytes] = set()
        parts: dict[tuple[bool, str], list[tuple[bytes, Message]]] = {}
        for one in posted:
            message = _message(one)
            parts.setdefault((message.kind != "store", str(message.queue)), []).append((one, message))
        link = self._calls.link
        for (_, target), messages in sorted(parts.items(), key=lambda part: part[0][0]):
            if target.startswith("@"):
                for one, message in messages:
                    await self._apply_here(message)
                    applied.add(one)
                continue
            given = [(one.kind, one.number, one.posted, one.now, one.args) for _, one in messages]
            answers = await link.run(load("deliver"), target, (target, YOUNG, given), durable=True)
            applied.update(one for (one, _), answer in zip(messages, answers, strict=True) if answer)
        return applied

    async def _apply_here(self, message: Message) -> None:
        """What is for keys that belong to no queue."""
        from taskharbor.drivers.redis.cluster import bucket

        names = _names(message.args)
        calls = self._calls
        if message.kind == "gone":
            id, queue = names
            if not await calls.link.ask("EXISTS", f"{{{queue}}}:job:{id}", key=f"{{{queue}}}"):
                await calls.register("gone", bucket(id), (id, queue))
        elif message.kind == "entered":
            flow, queue = names
            await calls.runs.stored(flow, [queue], message.now)
        elif message.kind == "left":
            await calls.runs.tidy(names[0])
        elif message.kind == "resumed":
            await calls.runs.resume(names[0])


def _target(one: bytes) -> str:
    return str(_message(one).queue)
