"""Commands and scripts go to the node of a Redis Cluster that serves the hash slot of a key.

The map of hash slots is read from any node, and again when a node reports that it is wrong (MOVED) or does not answer.
While a hash slot moves (ASK, then TRYAGAIN: see `anchors` in scripts.py) or has no primary, a call waits a moment and
tries again, for as long as `timeout` allows, ten seconds at most. While a node is known to be away, calls to it are
tried once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, NoScriptError, RedisError, ResponseError

from taskharbor.drivers.redis.connection import RespConnection, dial
from taskharbor.drivers.redis.endpoint import (
    AWAY,
    LOST,
    Endpoint,
    MakeCommands,
    ScanPosition,
    checked,
    refused,
)
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.pool import RedisPool
from taskharbor.drivers.redis.resp import Address, Command, monotonic
from taskharbor.model.errors import BackendUnavailable

PAUSE_S = 0.1  # between two tries
MAX_WAIT_S = 10.0  # for which a call waits for a new primary
PATIENCE_S = 0.5  # after this time without an answer a node counts as away
HASTE_S = 5.0  # for which a node counts as away
UNKNOWN_HOSTS = ("", "?")  # a node that does not know its own host, or another's: the host by which it was reached


def address_of(node: Sequence[Any], host: str) -> Address:
    """The address of a node in the reply of CLUSTER SLOTS; `host` is where the reply came from.

    >>> address_of([None, 7000, b"id", []], "10.0.0.1")
    ('10.0.0.1', 7000)
    >>> address_of([b"?", 7000, b"id", [b"ip", b"10.0.0.2"]], "10.0.0.1")
    ('10.0.0.2', 7000)
    """
    name, port, *more = node
    if name and name.decode() not in UNKNOWN_HOSTS:
        return name.decode(), int(port)
    pairs = more[1] if len(more) > 1 else []
    further = dict(zip(pairs[::2], pairs[1::2], strict=False))
    return (further.get(b"ip") or b"").decode() or host, int(port)


class ClusterEndpoint(Endpoint):
    """Calls to the nodes of a Cluster."""

    cluster = True

    def __init__(self, options: RedisOptions, dsn: str) -> None:
        super().__init__(options, dsn)
        self._pools: dict[Address, RedisPool] = {}
        self._hash_slots: list[tuple[int, int, Address]] = []
        self._nodes: list[Address] = list(options.hosts)  # every node that is known, primaries first
        self._away: dict[Address | None, float] = {}  # node → until when no other call waits for it
        self._clocks: list[Address] = []  # the node whose clock was read last
        self._refreshing: asyncio.Lock = asyncio.Lock()

    async def open(self) -> None:
        """Any node that answers will do: what lies on another one is missing until that one is back."""
        await self._refresh()
        await self.each([self._check_node(address) for address in self.primaries()])

    async def _check_node(self, address: Address) -> None:
        await self._ask_node(address, "PING")
        await self._check(self._pool_of(address))

    async def addresses(self) -> list[Address]:
        if not self._hash_slots:
            await self._refresh()
        return self.primaries()

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()

    # The map of hash slots

    async def _refresh(self) -> None:
        """Read the map of hash slots from the first node that has one."""
        last: Exception | None = None
        async with self._refreshing:
            for address in list(dict.fromkeys([*self._nodes, *self.options.hosts])):
                try:
                    ranges = await self._pool_of(address).ask("CLUSTER", "SLOTS")
                except (*LOST, *AWAY) as error:
                    last = error
                    await self._pool_of(address).drop_idle()
                    self._nodes = [node for node in self._nodes if node != address] + [address]  # others first
                    continue
                except ResponseError as error:
                    raise refused(self, error) from error
                if ranges:
                    self._read_map(ranges, address[0])
                    return
        raise self.unavailable(last or OSError("no node of the Cluster knows its hash slots"))

    def _read_map(self, ranges: Any, host: str) -> None:
        found, primaries, replicas = [], [], []
        for low, high, primary, *others in ranges:
            address = address_of(primary, host)
            found.append((int(low), int(high), address))
            primaries.append(address)
            replicas += [address_of(other, host) for other in others]
        self._hash_slots = found
        self._nodes = list(dict.fromkeys([*primaries, *replicas]))

    def _pool_of(self, address: Address) -> RedisPool:
        found = self._pools.get(address)
        if found is None:
            found = self._pools[address] = RedisPool(self.options, address)
        return found

    def address_of(self, key: str) -> Address | None:
        """The primary that serves the hash slot of a key, as far as is known."""
        hash_slot = key_slot(key.encode())
        return next((address for low, high, address in self._hash_slots if low <= hash_slot <= high), None)

    def primaries(self) -> list[Address]:
        return list(dict.fromkeys(address for _, _, address in self._hash_slots))

    # Calls

    async def _send(self, key: str, commands: MakeCommands, *, repeat: bool, within: float | None = None) -> list[Any]:
        began = monotonic()
        end = began + min(MAX_WAIT_S, self.options.timeout)
        ask_at: Address | None = None
        is_repeat, last = False, None
        while True:
            address = ask_at or self.address_of(key)
            try:
                if address is None:
                    raise ConnectionError("no primary serves the hash slot")
                replies = await self._once(address, commands(is_repeat), asking=ask_at is not None, within=within)
                self._away.pop(address, None)
                return replies
            except AskError as error:  # MovedError is one, too
                last = None
                assert address is not None  # a node replied
                there = (error.host if error.host not in UNKNOWN_HOSTS else address[0], error.port)
                moved = isinstance(error, MovedError)
                ask_at = None if moved else there
                if moved:
                    await self._note_move(error.slot_id, there)
            except NoScriptError:
                raise
            except (*LOST, *AWAY) as error:
                if address is not None:
                    await self._pool_of(address).drop_idle()
                is_away = isinstance(error, (*LOST, ClusterDownError))  # not: its hash slot moves
                is_known = is_away and last is None and self._away.get(address, 0.0) > monotonic()
                ask_at, is_repeat, last = None, True, error
                if is_away and monotonic() > began + PATIENCE_S:
                    self._away[address] = monotonic() + HASTE_S
                if monotonic() > end or (not repeat and isinstance(error, LOST) and address):
                    raise self.unavailable(error) from error
                if not is_known:
                    await asyncio.sleep(PAUSE_S)
                await self._quietly_refresh()
                if is_known and self.address_of(key) == address:
                    raise self.unavailable(error) from error
            except ResponseError as error:
                raise refused(self, error) from error
            if monotonic() > end:
                if last is not None:
                    raise self.unavailable(last) from last
                raise BackendUnavailable("Redis did not answer: the hash slot moved meanwhile; send the call again")

    async def _once(
        self, address: Address, commands: list[Command], *, asking: bool, within: float | None
    ) -> list[Any]:
        given = [("ASKING",), *commands] if asking else commands
        return checked((await self._pool_of(address).call(*given, within=within))[1 if asking else 0 :])

    async def _note_move(self, hash_slot: int, address: Address) -> None:
        self._hash_slots.insert(0, (hash_slot, hash_slot, address))  # until the map is read again
        await self._quietly_refresh()

    async def _quietly_refresh(self) -> None:
        try:
            await self._refresh()
        except BackendUnavailable:
            pass  # the call reports it when it gives up

    # All nodes

    async def _ask_node(self, address: Address, *command: Any) -> Any:
        try:
            return await self._pool_of(address).ask(*command)
        except (*LOST, *AWAY) as error:
            raise self.unavailable(error) from error
        except ResponseError as error:
            raise refused(self, error) from error

    async def time(self) -> tuple[int, int]:
        """The clock of one node, always the same one while that answers."""
        last: BackendUnavailable | None = None
        for address in dict.fromkeys([*self._clocks, *self.primaries()]):
            try:
                seconds, micros = await self._ask_node(address, "TIME")
            except BackendUnavailable as error:
                last = error
                continue
            self._clocks = [address]
            return int(seconds), int(micros)
        raise last or BackendUnavailable("Redis did not answer: no node of the Cluster is known")

    async def size(self) -> int:
        """How many keys the nodes have that answer."""
        found = await self.each([self._ask_node(address, "DBSIZE") for address in self.primaries()])
        self.left_out += any(isinstance(size, BackendUnavailable) for size in found)
        return sum(size for size in found if not isinstance(size, BackendUnavailable))

    async def scan_step(
        self, position: ScanPosition | None, pattern: str, count: int
    ) -> tuple[ScanPosition | None, list[bytes]]:
        node, cursor = position or (0, b"0")
        primaries = self.primaries()
        if node >= len(primaries):  # there were more of them before
            return None, []
        try:
            cursor, keys = await self._ask_node(primaries[node], "SCAN", cursor, "MATCH", pattern, "COUNT", count)
        except BackendUnavailable:
            if len(primaries) == 1:
                raise
            self.left_out += 1
            cursor, keys = b"0", []
        if cursor == b"0":
            node += 1
        return None if node == len(primaries) else (node, cursor), keys

    async def connection(self) -> RespConnection:
        """A connection of its own to any node that answers: a message published on one node reaches all."""
        last: Exception | None = None
        for address in self._nodes:
            try:
                return await dial(self.options, address)
            except (RedisError, OSError) as error:
                last = error
        await self._quietly_refresh()
        raise last or OSError("no node is known")
