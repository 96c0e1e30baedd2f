"""What workers do once a minute: prune what is past its retention, and put back records that stand in no lane.

Everything goes in slices, each a script of a few milliseconds, whatever the store holds.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.redis.records import name_of, text_of
from taskharbor.drivers.redis.scripts import binary, load

if TYPE_CHECKING:
    from taskharbor.drivers.redis.commands import StandaloneCommands

logger = logging.getLogger("taskharbor.redis")
SWEPT = 2000  # ids that one round looks at, in whatever queues come next
AT_ONCE = 200  # of them in one script
WINDOW = 5000  # entries of a list that one script reads
OVERLAP = 500  # of them twice: others may remove some in between


class Sweeper:
    """One client's share of it."""

    def __init__(self, commands: StandaloneCommands) -> None:
        self._commands = commands
        self._swept = ""  # the queue that was swept last
        self._begun = False

    async def prune(self, before: int, limit: int) -> int:
        """Forget what finished before a moment; answers how many, at most `limit`."""
        gone = 0
        names = await self._commands.known_queues()
        for home, queues in self._commands.parts(names):
            gone += await self._prune(home, queues, before, limit - gone)
            if gone >= limit:
                break
        await self._sweep(names)
        await self._commands.look_at_notes()
        return gone

    async def _prune(self, home: str, queues: list[str], before: int, limit: int) -> int:
        commands, gone, known = self._commands, 0, dict[bytes, bool]()
        done = cancelled = 0
        while gone < limit:
            told = [part for flow, is_open in known.items() for part in (binary(flow), is_open)]
            args = (commands.endpoint.cluster, home, before, limit - gone, queues, told, done, cancelled)
            answer = await commands.endpoint.run(load("prune"), home or queues[0], args, repeat=False)
            number, unknown, done, cancelled, more = answer
            gone += number
            asked = {flow: await self._is_open(flow) for flow in unknown}
            known |= asked
            if not all(asked.values()):
                done = cancelled = 0  # some of what was passed over may go
            elif not more:
                break
        await commands.delivered(queues)
        return gone

    async def _is_open(self, flow: bytes) -> bool:
        name = name_of(flow)
        return name is not None and await self._commands.is_open(name)  # no run has a name that is no text

    async def _sweep(self, names: list[str]) -> None:
        """Look at the next ids, where this client ended its last round."""
        if not names:
            return
        if not self._begun:
            self._begun, self._swept = True, random.choice(names)  # not all workers the same queues
        start = sum(name <= self._swept for name in names)
        now, left = await self._commands.clock(), SWEPT
        for queue in [*names[start:], *names[:start]]:
            if left <= 0:
                return
            self._swept = queue
            left -= max(AT_ONCE // 10, await self.sweep(queue, now))

    async def sweep(self, queue: str, now: int) -> int:
        """The next slice of a queue; answers how many ids it looked at."""
        commands = self._commands
        home = queue if commands.endpoint.cluster else ""
        args = (now, commands.endpoint.cluster, home, queue, AT_ONCE, AT_ONCE)
        looked, restored, shown, doubtful = await commands.endpoint.run(load("sweep"), queue, args)
        lost = await self._nowhere(queue, doubtful) if doubtful else []
        if lost:
            again = (now, commands.endpoint.cluster, home, queue, [tuple(map(binary, one[1:])) for one in lost])
            restored += await commands.endpoint.run(load("restore_records"), queue, again)
            shown += [one[1] for one in lost[:5]]
        if restored:
            logger.warning(
                "queue %s: %d job(s) stood in no lane and were put back: %s",
                queue,
                restored,
                ", ".join(text_of(id) for id in shown[:5]) + (" …" if restored > 5 else ""),
            )
        if restored or lost:
            await commands.delivered([queue])
        return int(looked)

    async def _nowhere(self, queue: str, doubtful: list[Any]) -> list[Any]:
        """Those that are not in the list that they should be in: it is read whole, some entries at a time, from the end
        to the head. So nothing is missed while others append and take."""
        lost: list[Any] = []
        for list_key in {one[0] for one in doubtful}:
            missing = {one[1]: one for one in doubtful if one[0] == list_key}
            passed, size = 0, 1
            while missing and passed < size:
                args = (binary(list_key), [binary(id) for id in missing], passed, WINDOW)
                found, size = await self._commands.endpoint.run(load("find_in_list"), queue, args)
                for id in found:
                    missing.pop(id, None)
                passed += WINDOW - OVERLAP
            lost += missing.values()
        return lost
