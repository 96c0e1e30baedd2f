"""What workers do once a minute: prune what is past its retention. One of them puts back records that are in no list.

Also the report of what other programs damaged. Everything goes in slices, each a script of a few milliseconds, whatever
the store holds.
"""

from __future__ import annotations

import logging
import random
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from taskharbor.drivers.redis.pruning import prune
from taskharbor.drivers.redis.records import name_of, text_of
from taskharbor.drivers.redis.schedules import sweep_schedules
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.errors import BackendUnavailable, DriverError

logger = logging.getLogger("taskharbor.drivers.redis")
SWEPT = "{th}:swept"  # there for a while after a worker swept
PACE_MS = 50_000  # for which no other worker does
MAX_SWEPT_IDS = 10_000  # in one round, in whatever queues come next; a script that searches a list counts as SCRIPT_IDS
SCRIPT_IDS = 200  # of them in one script
LIST_WINDOW = 5000  # entries of a list that one script reads
LIST_OVERLAP = 500  # entries that are read twice: others may remove some in between


class Sweeper:
    """One client's share of this work."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._swept = ""  # the queue that was swept last
        self._begun = False

    async def prune(self, before: int, limit: int) -> int:
        """Delete what finished before a moment; returns how many, at most `limit`."""
        router = self._store.router
        names = await router.known_queues(partly=True)
        gone = await prune(self._store, names, before, limit)
        with suppress(BackendUnavailable):  # of one node: the next round does it
            if await router.takes_turn(SWEPT, PACE_MS):
                await self._sweep([name for name in names if not router.away(router.home_of(name))])
                await router.check_locations()
                await sweep_schedules(self._store)
        return gone

    async def _sweep(self, names: list[str]) -> None:
        """Check the next ids, from where this client ended its last round."""
        if not names:
            return
        if not self._begun:
            self._begun, self._swept = True, random.choice(names)  # not all workers the same queues
        start = sum(name <= self._swept for name in names)
        now, left = await self._store.clock(), MAX_SWEPT_IDS
        waiting = deque([*names[start:], *names[:start]])
        while waiting and left > 0:
            self._swept = queue = waiting.popleft()
            try:
                spent, is_over = await self.sweep(queue, now)
            except DriverError as error:  # another queue is not the worse for it
                if isinstance(error, BackendUnavailable) and not self._store.router.divides:
                    raise
                logger.warning("queue %s cannot be swept: %s", queue, error)
                spent, is_over = SCRIPT_IDS, True
            left -= max(SCRIPT_IDS // 10, spent)
            if not is_over:
                waiting.append(queue)

    async def sweep(self, queue: str, now: int) -> tuple[int, bool]:
        """Check the next slice of a queue; returns how many ids that were, or stand for what it cost to search lists
        for a few, and whether it was the last slice."""
        store = self._store
        home = store.router.home_of(queue)
        args = ScriptCall("sweep", now=now, home=home, queue=queue, id_count=SCRIPT_IDS, key_count=SCRIPT_IDS)
        checked, restored, shown, doubtful, located, is_over, flows = await store.run(args)
        await store.router.restore_locations(queue, [id for data in located if (id := name_of(data)) is not None])
        await store.router.restore_flows(queue, [flow for data in flows if (flow := name_of(data)) is not None], now)
        lost, searches = await self._missing(queue, doubtful)
        if lost:
            records = [(binary(id), binary(state), binary(since)) for _, id, state, since in lost]
            restored += await store.run(ScriptCall("restore_records", now=now, home=home, queue=queue, records=records))
            shown += [one[1] for one in lost[:5]]
        if restored:
            logger.warning(
                "queue %s: %d job(s) were in no list or set and were put back: %s",
                queue,
                restored,
                ", ".join(text_of(id) for id in shown[:5]) + (" …" if restored > 5 else ""),
            )
        await store.router.deliver([queue])
        return max(int(checked), SCRIPT_IDS * searches), bool(is_over)

    async def _missing(self, queue: str, doubtful: list[Any]) -> tuple[list[Any], int]:
        """Those that are not in the list that they should be in, and how many scripts it took to find out. A list is
        read whole, some entries at a time, from the end to the head: so nothing is missed while others append and
        take."""
        lost: list[Any] = []
        scripts = 0
        for list_key in {one[0] for one in doubtful}:
            missing = {one[1]: one for one in doubtful if one[0] == list_key}
            skip, size = 0, 1
            while missing and skip < size:
                args = ScriptCall(
                    "find_in_list",
                    home=self._store.router.home_of(queue),
                    list=binary(list_key),
                    ids=[binary(id) for id in missing],
                    skip=skip,
                    count=LIST_WINDOW,
                )
                found, size = await self._store.run(args)
                scripts += 1
                for id in found:
                    missing.pop(id, None)
                skip += LIST_WINDOW - LIST_OVERLAP
            lost += missing.values()
        return lost, scripts


# What other programs damaged, in sentences for `taskharbor doctor`


async def damage_report(store: RedisStore, queues: Sequence[str]) -> list[str]:
    """A sentence for each kind of damage in each of these queues, with what to do about it."""
    found: list[str] = []
    for home, part in store.router.parts(queues):
        for reply in await store.run(ScriptCall("damage", home=home, queues=part)):
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
            f"taskharbor dlq list --queue {shlex.quote(name)}; find the program that wrote them"
        )
    if returned:
        yield (
            f"queue {name}: {returned} message(s) to other queues cannot be delivered, and what waits for them stays "
            f"blocked; they are kept in {{{name}}}:th:returned: cancel the blocked jobs or the flow, and DEL it"
        )
