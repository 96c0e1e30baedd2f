"""Which keys one script reaches, and what has to be done around it. This is one server, where a script reaches all.

`ClusterRouter` (cluster_router.py) is the other kind. The verbs ask the router to divide a call into parts, run a
script for each, and call the router before and after; so they are written once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from taskharbor.drivers.redis.records import name_of
from taskharbor.drivers.redis.scripts import ScriptCall
from taskharbor.model.errors import BackendUnavailable, DriverError
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.safe_repr import shown

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster_registry import FlowEntry
    from taskharbor.drivers.redis.endpoint import Endpoint

T = TypeVar("T")
Flows = dict[str, "FlowEntry"]
IdAndQueue = tuple[str | msgspec.Raw, str | msgspec.Raw | Literal[False]]
Where = Sequence[tuple[str, str | None]]  # ids, each with its queue if that is known and no location is stored

QUEUES = "{th}:queues"
WATCHED = "{th}:watched"  # queues with jobs on which others depend, or that belong to a flow
TENDED = "{th}:tended"  # there while one worker looks after the queues of others
TENDED_KEYS = ("completed", "th:watched", "th:blocked")  # a queue without any of them needs no looking after
MAX_RESERVE_QUEUES = 250  # in one script of a reserve
MAX_VISITED_QUEUES = 50  # in one script that visits queues
MAX_SOUGHT_KEYS = 2000  # in one script that looks for ids in queues
STRAYS = 64  # queues of others that are visited in a round


class QueueGrants(NamedTuple):
    """What a reserve found in one queue: the number of its last arrival if nothing is left; id, token and values of
    each job; the end of their leases in ms."""

    queue: str
    arrival: bytes | None
    jobs: list[Any]
    end: int

    def __repr__(self) -> str:
        return shown(self, "queue", "end")


class Admission(NamedTuple):
    """A call that may store jobs: the jobs of each home, those that are known elsewhere, and the flows they enter."""

    parts: Sequence[tuple[str, Sequence[JobRecord]]]  # on one server a single part: the jobs as they were given
    elsewhere: Mapping[str, Enqueued]
    flows: Flows

    def __repr__(self) -> str:
        return shown(self)


ReserveSome = Callable[[str, Sequence[str], int, Sequence[str]], Awaitable[list[QueueGrants]]]
CancelIn = Callable[[str, Sequence[Any] | Literal[False], str], Awaitable[bool]]


class Router:
    """One server."""

    divides = False  # whether a call may have to be divided among several scripts

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._reserves = 0
        self._others_cursor: bytes = b"0"  # how far the queues of others were walked

    # Dividing a call

    def home_of(self, queue: str) -> str:
        """The `home` of a script that uses the keys of a queue."""
        return ""

    def by_home(self, queues: Sequence[str]) -> Iterable[tuple[str, Sequence[int]]]:
        """Positions of a call that one script may treat together, by home."""
        return [("", range(len(queues)))] if queues else []

    def shared_home(self, queues: Sequence[str]) -> str | None:
        """The home of one script that reaches all of these queues; None if there is none."""
        return ""

    async def each(self, calls: Sequence[tuple[str, Callable[[], Awaitable[T]]]]) -> list[T | BackendUnavailable]:
        """Make calls, each on a home: for each its result, or why that cannot be reached. Raises if none can be."""
        if len(calls) == 1:
            return [await calls[0][1]()]
        return list(await self.endpoint.gather([call() for _, call in calls]))

    def away(self, home: str) -> BackendUnavailable | None:
        """Why a home is known not to answer; None if nothing is known of it."""
        return None

    async def close(self) -> None:
        """End what runs in the background."""

    def parts(self, queues: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """Queues that one script may visit, by home."""
        return (("", list(part)) for part in sliced(queues, MAX_VISITED_QUEUES))

    async def place(self, where: Where, *, strictly: bool = True) -> list[tuple[str | None, list[IdAndQueue]]]:
        """Ids in their order, divided by home; None: no queue has them. `strictly`: fail if a node cannot be asked."""
        return [("", [(id, queue or False) for id, queue in where])] if where else []

    async def find(self, ids: Sequence[str], queues: Sequence[str] | None = None) -> dict[str, str]:
        """The queues of ids without a stored location, because a foreign client published them. Looks into `queues`, or
        all that are known."""
        found: dict[str, str] = {}
        for names in sliced(queues if queues is not None else await self.known_queues(), MAX_SOUGHT_KEYS // 4):
            for part in sliced([id for id in ids if id not in found], MAX_SOUGHT_KEYS // len(names)):
                numbers = await self.endpoint.run(ScriptCall("find_in_queues", queues=names, ids=part))
                found |= {id: names[number - 1] for id, number in zip(part, numbers, strict=True) if number}
        return found

    async def known_queues(self, *, partly: bool = False) -> list[str]:
        """The names of all queues that this driver has used. `partly`: if the list cannot be read, those that this
        client knows will do."""
        names: dict[str, None] = {}
        cursor = b"0"
        while True:
            cursor, found = await ask_shared(self.endpoint, "ZSCAN", QUEUES, cursor, "COUNT", 1000)
            names |= {name: None for data in found[::2] if (name := name_of(data)) is not None}
            if cursor == b"0":
                return sorted(names)

    # Around storing jobs: on one server a script does all of it

    async def admit(self, jobs: Sequence[JobRecord]) -> Admission:
        """Before jobs without dependencies are stored: divide them by home; on a Cluster also store their locations."""
        return Admission([("", jobs)], {}, {})

    async def admit_planned(self, jobs: Sequence[JobRecord], needed: Iterable[str], *, spawned: bool = False) -> Flows:
        """Before jobs that were planned are stored. `needed`: queues of their dependencies."""
        return {}

    async def confirm(self, jobs: Iterable[JobRecord], flows: Flows, now: int) -> None:
        """After jobs were stored that entered flows."""

    async def settled_results(self, ids_by_queue: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """After a planned call: ids that became known under another id meanwhile."""
        return {}

    async def name_queues(self, queues: Sequence[str]) -> None:
        """Make queues known that were found among the keys."""
        pairs = [part for name in queues for part in (0, name)]
        await self.endpoint.write("ZADD", QUEUES, "NX", *pairs, key=QUEUES)

    async def use_queues(self, queues: Iterable[str]) -> None:
        """A call uses these queues: make them known."""

    async def expect_messages(self, queues: Iterable[str]) -> None:
        """Scripts on these queues may post messages: make sure that another client looks there if this one dies."""

    async def deliver(self, queues: Iterable[str]) -> None:
        """Deliver the messages that scripts on these queues posted."""

    # Reserving

    async def reserve(
        self, queues: Sequence[str], limit: int, tokens: Sequence[str], reserve_some: ReserveSome
    ) -> list[QueueGrants]:
        """One script asks up to 250 queues; of more, each call begins with others."""
        parts, found, used = list(sliced(queues, MAX_RESERVE_QUEUES)), list[QueueGrants](), 0
        first = self._reserves % len(parts)
        self._reserves += 1
        for part in parts[first:] + parts[:first]:
            found += await reserve_some("", part, limit - used, tokens[used:])
            used = sum(len(grants.jobs) for grants in found)
            if used == limit:
                break
        return found

    # Flows

    async def flow_parts(self, flow: str) -> list[tuple[str, list[str] | Literal[False]]]:
        """The queues that have jobs of a flow, by home; False: a script knows them."""
        return [("", False)]

    async def cancel_flow(self, flow: str, cancel_in: CancelIn) -> None:
        """Cancel the unfinished jobs of a flow with `cancel_in`."""
        await cancel_in("", False, "")

    async def flow_is_open(self, flow: str) -> bool:
        """Whether a flow has unfinished jobs, where a script cannot know it."""
        raise AssertionError("on one server a script knows")

    # Housekeeping

    async def to_visit(self, queues: Sequence[str]) -> list[str]:
        """Which of these queues may need looking after."""
        keys = [f"{{{queue}}}:{name}" for queue in queues for name in TENDED_KEYS]
        if not keys or not await self.endpoint.ask("EXISTS", *keys):
            return []
        return list(queues)

    async def takes_turn(self, key: str, pace_ms: int) -> bool:
        """Whether this client does what one worker at a time does; no other begins with it in the next `pace_ms`."""
        if await self.endpoint.ask("EXISTS", key, key=key):
            return False
        return bool(await self.endpoint.write("SET", key, "1", "NX", "PX", pace_ms, key=key))

    async def queues_of_others(self, pace_ms: int) -> list[str]:
        """Queues of others that may need looking after; none if another worker did that in the last `pace_ms`."""
        if not await self.endpoint.ask("EXISTS", WATCHED) or not await self.takes_turn(TENDED, pace_ms):
            return []
        cursor = self._others_cursor
        self._others_cursor, found = await ask_shared(self.endpoint, "SSCAN", WATCHED, cursor, "COUNT", STRAYS)
        return [name.decode() for name in found]

    async def visited(self, queue: str, posted: int, unnoted: Sequence[bytes], idle: bool) -> None:
        """After a visit of housekeeping: what the script found."""

    async def restore_locations(self, queue: str, ids: Sequence[str]) -> None:
        """Store locations of jobs in this queue that were lost; on one server the sweep's script does it."""

    async def restore_flows(self, queue: str, flows: Sequence[str], now: int) -> None:
        """Let these flows know a queue that has jobs of them; on one server the sweep's script does it."""

    async def all_arrived(self) -> bool:
        """Whether every job that was stored until now has arrived in its queue."""
        return True

    async def check_locations(self) -> None:
        """Check some stored locations for ids that were never stored; where one script does both there are none."""


async def ask_shared(endpoint: Endpoint, command: str, key: str, *more: Any) -> Any:
    """A command on a key that belongs to no queue. A value of another type, which another program wrote there, is moved
    to `<key>:damaged` first."""
    try:
        return await endpoint.ask(command, key, *more, key=key)
    except DriverError as error:
        if "WRONGTYPE" not in str(error):
            raise
    await endpoint.write("RENAME", key, f"{key}:damaged", key=key)
    return await endpoint.ask(command, key, *more, key=key)


def sliced(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Some of them at a time.

    >>> list(sliced("abcde", 2))
    ['ab', 'cd', 'e']
    """
    return (items[first : first + size] for first in range(0, len(items), size))
