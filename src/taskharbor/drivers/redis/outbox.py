"""Delivering messages between the hash slots of a Cluster: from the outbox of a queue to the queues they are for.

A message is applied first and removed from the outbox then. A crash in between delivers it again, so every message may
come twice; two clients may also deliver at once. The client that posts a message delivers it at once. A message for a
queue that cannot be reached stays, and housekeeping comes back to it. So a failed delivery never fails the call that
posted the message.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from taskharbor.drivers.redis.cluster_registry import bucket
from taskharbor.drivers.redis.resp import monotonic
from taskharbor.drivers.redis.scripts import ScriptCall
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.safe_repr import shown

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster_router import ClusterRouter

logger = logging.getLogger("taskharbor.drivers.redis")

BATCH = 100  # messages that are read at once
MAX_ROUNDS = 3  # a delivery comes back this often to messages that wait for others
MAX_DELIVERY_S = 10.0  # of one delivery; housekeeping does the rest
FRESH_S = 60.0  # after which messages are read again: others may have applied them, and their jobs may be gone since
PATIENCE_S = 60  # for which a message waits for a job that comes by another one; then healing.py sees to it


class OutboxMessage(msgspec.Struct, array_like=True):
    """What 60_flows.lua posts: `args` stays as it is."""

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

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router
        self._handlers: dict[str, Callable[..., Awaitable[None]]] = {
            "gone": self._gone,
            "entered": self._entered,
            "left": self._left,
            "resumed": self._resumed,
        }

    async def deliver(self, queues: Iterable[str]) -> bool:
        """Deliver what is in these outboxes, and the messages that follow from it; returns whether any was
        delivered."""
        waiting, end = list(dict.fromkeys(queues)), monotonic() + MAX_DELIVERY_S
        late: dict[bytes, str] = {}  # message that waits for another → the queue whose outbox it is in
        any_delivered, again = False, MAX_ROUNDS
        while monotonic() < end:
            if not waiting and late and again:  # what they wait for may have come, also by others
                waiting, late, again = list(dict.fromkeys(late.values())), {}, again - 1
            if not waiting:
                break
            queue = waiting.pop(0)
            key, fresh_until = f"{{{queue}}}:th:outbox", monotonic() + FRESH_S
            ask = partial(self._router.endpoint.ask, "ZRANGE", key, 0, BATCH - 1 + len(late), key=key)
            found = await self._router.optional(queue, ask)
            posted = [one for one in found or () if one not in late]
            if not posted:
                continue
            messages, damaged = _read(posted)
            applied, refused = await self._apply(messages, fresh_until)
            late |= {one: queue for one, _ in messages if one not in applied and one not in refused}
            if applied:
                any_delivered = True
                await self._router.endpoint.ask("ZREM", key, *applied, key=key)
            await self._set_aside(queue, [*damaged, *refused])
            targets = [str(message.queue) for _, message in messages if not str(message.queue).startswith("@")]
            waiting = list(dict.fromkeys([*waiting, queue, *targets]))
        return any_delivered

    async def _apply(
        self, messages: Sequence[tuple[bytes, OutboxMessage]], fresh_until: float
    ) -> tuple[set[bytes], list[bytes]]:
        """Apply messages, in their order for each target; returns those that were applied, and those that never can be.
        New jobs come first: other messages wait for them, and would have to come again."""
        applied: set[bytes] = set()
        refused: list[bytes] = []
        parts: dict[tuple[bool, str], list[tuple[bytes, OutboxMessage]]] = {}
        for one, message in messages:
            parts.setdefault((message.kind != "store", str(message.queue)), []).append((one, message))
        for (_, target), part in sorted(parts.items(), key=lambda part: part[0][0]):
            if monotonic() >= fresh_until:
                break
            if target.startswith("@"):
                results = [await self._apply_here(message) for _, message in part]
            else:
                results = await self._router.optional(target, partial(self._hand_in, target, part)) or []
            for (one, _), result in zip(part, results, strict=False):
                if result == 1:
                    applied.add(one)
                elif result == 2:
                    refused.append(one)
        return applied, refused

    async def _hand_in(self, target: str, part: Sequence[tuple[bytes, OutboxMessage]]) -> list[int]:
        given = [(one.kind, one.number, one.posted, one.now, one.args) for _, one in part]
        args = ScriptCall("deliver_messages", home=target, patience_s=PATIENCE_S, messages=given)
        results: list[int] = await self._router.endpoint.run(args, durable=True)
        return results

    async def _apply_here(self, message: OutboxMessage) -> int:
        """Apply a message for keys that belong to no queue."""
        try:
            names = _names(message.args)
            await self._handlers[message.kind](message.now, *names)
        except BackendUnavailable:
            return 0
        except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError):
            return 2
        return 1

    async def _gone(self, now: int, id: str, queue: str) -> None:
        if not await self._router.endpoint.ask("EXISTS", f"{{{queue}}}:job:{id}", key=f"{{{queue}}}"):
            await self._router.register("gone", bucket(id), (id, queue))

    async def _entered(self, now: int, flow: str, queue: str) -> None:
        await self._router.flows.stored(flow, [queue], now)

    async def _left(self, now: int, flow: str, queue: str) -> None:
        await self._router.flows.tidy(flow)

    async def _resumed(self, now: int, flow: str) -> None:
        await self._router.flows.resume(flow)

    async def _set_aside(self, queue: str, messages: Sequence[bytes]) -> None:
        """Keep messages that cannot be delivered beside the outbox, so that they block no others, and report them."""
        if not messages:
            return
        outbox, returned = f"{{{queue}}}:th:outbox", f"{{{queue}}}:th:returned"
        pairs = [part for one in messages for part in (0, one)]
        await self._router.endpoint.write("ZADD", returned, *pairs, key=returned)
        await self._router.endpoint.ask("ZREM", outbox, *messages, key=outbox)
        logger.error(
            "%d message(s) of queue %s cannot be delivered; they are kept in %s, and what waits for them stays blocked",
            len(messages),
            queue,
            returned,
        )


def _read(posted: Sequence[bytes]) -> tuple[list[tuple[bytes, OutboxMessage]], list[bytes]]:
    """The messages that can be read, and the rest."""
    messages: list[tuple[bytes, OutboxMessage]] = []
    damaged: list[bytes] = []
    for one in posted:
        try:
            messages.append((one, _message(one)))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            damaged.append(one)
    return messages, damaged
