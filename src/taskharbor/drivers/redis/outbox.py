"""Delivering messages between the slots of a Cluster: from the outbox of a queue to the queues they are for.

A message is applied first and taken out of the outbox then, so a crash in between delivers it again: every message may
come twice. Two clients that deliver at once do no harm either. Whoever posts delivers at once; what is for a queue that
cannot be reached stays, and housekeeping comes back to it. So a delivery never fails what posted the message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from taskharbor.drivers.redis.scripts import load
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.safe_repr import shown

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster_commands import ClusterCommands

logger = logging.getLogger("taskharbor.redis")

BATCH = 100
AGAIN = 3  # times that a delivery comes back to messages that wait for others
LASTS = 10.0  # seconds for which one delivery goes on, at most; housekeeping does the rest
YOUNG = 24 * 3600  # seconds for which a job that is waited for may still come, with a message that is under way


class OutboxMessage(msgspec.Struct, array_like=True):
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
_message = msgspec.msgpack.Decoder(OutboxMessage).decode
_names = msgspec.msgpack.Decoder(list[str]).decode


class Outbox:
    """One client's deliveries."""

    def __init__(self, commands: ClusterCommands) -> None:
        self._commands = commands
        self._handlers: dict[str, Callable[..., Awaitable[None]]] = {
            "gone": self._gone,
            "entered": self._entered,
            "left": self._left,
            "resumed": self._resumed,
        }

    async def deliver(self, queues: Iterable[str]) -> bool:
        """Deliver what is in these outboxes, and what comes of it; answers whether any was delivered."""
        loop = asyncio.get_running_loop()
        waiting, end = list(dict.fromkeys(queues)), loop.time() + LASTS
        late: dict[bytes, str] = {}  # message that waits for another → the queue whose outbox it is in
        any_delivered, again = False, AGAIN
        while loop.time() < end:
            if not waiting and late and again:  # what they wait for may have come, also by others
                waiting, late, again = list(dict.fromkeys(late.values())), {}, again - 1
            if not waiting:
                break
            queue = waiting.pop(0)
            key = f"{{{queue}}}:th:outbox"
            ask = partial(self._commands.endpoint.ask, "ZRANGE", key, 0, BATCH - 1 + len(late), key=key)
            found = await self._commands.patiently(queue, ask)
            posted = [one for one in found or () if one not in late]
            if not posted:
                continue
            messages, damaged = _read(posted)
            applied, refused = await self._apply(messages)
            late |= {one: queue for one, _ in messages if one not in applied and one not in refused}
            if applied:
                any_delivered = True
                await self._commands.endpoint.ask("ZREM", key, *applied, key=key)
            await self._set_aside(queue, [*damaged, *refused])
            targets = [str(message.queue) for _, message in messages if not str(message.queue).startswith("@")]
            waiting = list(dict.fromkeys([*waiting, queue, *targets]))
        return any_delivered

    async def _apply(self, messages: Sequence[tuple[bytes, OutboxMessage]]) -> tuple[set[bytes], list[bytes]]:
        """Apply messages, in their order for each target; answers those that were, and those that cannot be. New jobs
        come first: others wait for them, and would have to come again."""
        applied: set[bytes] = set()
        refused: list[bytes] = []
        parts: dict[tuple[bool, str], list[tuple[bytes, OutboxMessage]]] = {}
        for one, message in messages:
            parts.setdefault((message.kind != "store", str(message.queue)), []).append((one, message))
        for (_, target), part in sorted(parts.items(), key=lambda part: part[0][0]):
            if target.startswith("@"):
                answers = [await self._apply_here(message) for _, message in part]
            else:
                answers = await self._commands.patiently(target, partial(self._hand_in, target, part)) or []
            for (one, _), answer in zip(part, answers, strict=False):
                if answer == 1:
                    applied.add(one)
                elif answer == 2:
                    refused.append(one)
        return applied, refused

    async def _hand_in(self, target: str, part: Sequence[tuple[bytes, OutboxMessage]]) -> list[int]:
        given = [(one.kind, one.number, one.posted, one.now, one.args) for _, one in part]
        answers: list[int] = await self._commands.endpoint.run(
            load("deliver_messages"), target, (target, YOUNG, given), durable=True
        )
        return answers

    async def _apply_here(self, message: OutboxMessage) -> int:
        """What is for keys that belong to no queue."""
        try:
            names = _names(message.args)
            await self._handlers[message.kind](message.now, *names)
        except BackendUnavailable:
            return 0
        except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError):
            return 2
        return 1

    async def _gone(self, now: int, id: str, queue: str) -> None:
        from taskharbor.drivers.redis.cluster_commands import bucket

        if not await self._commands.endpoint.ask("EXISTS", f"{{{queue}}}:job:{id}", key=f"{{{queue}}}"):
            await self._commands.register("gone", bucket(id), (id, queue))

    async def _entered(self, now: int, flow: str, queue: str) -> None:
        await self._commands.runs.stored(flow, [queue], now)

    async def _left(self, now: int, flow: str, queue: str) -> None:
        await self._commands.runs.tidy(flow)

    async def _resumed(self, now: int, flow: str) -> None:
        await self._commands.runs.resume(flow)

    async def _set_aside(self, queue: str, messages: Sequence[bytes]) -> None:
        """What cannot be delivered stands in nobody's way: it is kept beside the outbox, and reported."""
        if not messages:
            return
        outbox, returned = f"{{{queue}}}:th:outbox", f"{{{queue}}}:th:returned"
        pairs = [part for one in messages for part in (0, one)]
        await self._commands.endpoint.write("ZADD", returned, *pairs, key=returned)
        await self._commands.endpoint.ask("ZREM", outbox, *messages, key=outbox)
        logger.error(
            "%d message(s) of queue %s cannot be delivered; they are kept in %s, and what waits for them stays blocked",
            len(messages),
            queue,
            returned,
        )


def _read(posted: Sequence[bytes]) -> tuple[list[tuple[bytes, OutboxMessage]], list[bytes]]:
    """Messages, and what is none."""
    messages: list[tuple[bytes, OutboxMessage]] = []
    damaged: list[bytes] = []
    for one in posted:
        try:
            messages.append((one, _message(one)))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            damaged.append(one)
    return messages, damaged
