"""Schedules on a Cluster that come, go, or move to another queue: between hash slots, so in several scripts.

A row lies in the hash slot of its queue, and the index of names in its own. The entry of a name in the index is a queue
and a claim, a token that is used once. A change that leaves the row in its queue is one script and touches no entry.

    add      prepare (queue) → claim (index: none → entry) → arrive (queue)
    delete   leave (queue) → release (index: entry → none)
    move     prepare (new queue) → leave (old queue) → claim (index: old entry → new) → left (old queue) → arrive (new)

`prepare` stores the row and its jobs beside the rows of the queue, under a new token; no listing sees it. `arrive`
makes it the row, stores its jobs and forgets what was prepared, in one script: so a token arrives once, however many
clients try. `leave` compares the revision and removes the row; if it moves, it notes queue and token. `left` removes
that note.

One step decides a change: `claim` for an add, otherwise `leave`. Until then nothing can be seen of it. From then on
every client that meets the name, by a change or a listing, does what is left to do (`resolve`). Steps may come late,
twice, and from several clients: each compares the revision, the whole entry or the token, and otherwise does nothing.

- *A name has one row.* A row arrives only after the index has its claim, and an entry is replaced only by a client that
  read it. Of two adds in different queues one claims. The other meets that entry, and its add is refused.
- *A row that is due is listed.* The index has the claim before the row arrives, and until it has left. An entry is
  removed only if its queue has neither a row nor a note of that name, nor anything prepared under its claim. That stays
  so: a token is prepared before it is claimed, and not again (a lost reply gets another token).
- *Nothing fires twice, nothing is lost.* The old row is gone before the new one is seen. In between the new one is
  prepared, and the note in the old queue says that this was decided.
- *No name is blocked.* A client that meets an entry without a row finishes the change, or removes the entry.

A client that dies leaves what it prepared. A look at that queue (`due_schedules`, or `schedules` of the queue) reports
what is older than five seconds. `rescue` finishes it if it was decided, and drops it after a day if it was not. So that
nothing is decided after it was dropped, `claim` of an add and `leave` refuse a token that is older than half a day. The
node that made the token, and theirs, compare it with their own clocks: these must not differ by half a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from taskharbor.drivers.redis.endpoint import FULL, LOST, monotonic
from taskharbor.drivers.redis.schedule_index import HOME, PackedChange, ScheduleEntry
from taskharbor.drivers.redis.script_args import (
    ArriveScheduleArgs,
    ChangeSchedulesArgs,
    ListSchedulesArgs,
    MoveScheduleArgs,
    ScheduleIndexArgs,
)
from taskharbor.drivers.redis.scripts import binary, pack
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.ids import new_tokens
from taskharbor.model.safe_repr import shown

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster_router import ClusterRouter

DECIDED_WITHIN_MS = 12 * 3600 * 1000  # what was prepared is claimed, and a row leaves for it, no later than this
DROPPED_AFTER_MS = 24 * 3600 * 1000  # what was prepared and not decided
MAX_TRIES = 20  # of a change that others overtake
CONFIRMED_S = 600.0  # for which a client believes that the index has an entry
MAX_REMEMBERED = 20_000  # entries, and things prepared, that a client remembers
RESCUE_AGAIN_S = 60.0  # after which a client checks once more whether something prepared was decided

CHANGED, ABSENT, ALREADY, TOO_LATE = 1, 2, 3, 4  # what `leave` returns, beside 0: the row has another revision


class Prepared(msgspec.Struct, array_like=True):
    """A row that was prepared, as arrive_schedule.lua reads it; `value` and `jobs` stay as they are."""

    now: int
    name: str
    source: str  # the queue that it comes from, or ""
    value: msgspec.Raw
    jobs: msgspec.Raw

    def __repr__(self) -> str:
        return shown(self, "name", "source")


class Standing(NamedTuple):
    """What a queue knows of a name: whether it has its row, where the row went, and what was prepared under a token."""

    has_row: bool
    went: ScheduleEntry | None
    prepared: Prepared | None
    is_old: bool


_prepared = msgspec.msgpack.Decoder(Prepared).decode


class ClusterSchedules:
    """One client's changes."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router
        self._confirmed: dict[tuple[str, str], float] = {}  # queue and name → until when the index is believed to know
        self._undecided: dict[str, float] = {}  # token → until when it is not looked at again

    async def change(self, wanted: PackedChange, now: int) -> bool:
        """One change of a row that was not in the queue that it shall have."""
        for _ in range(MAX_TRIES):
            entry = await self.resolve(wanted.name)
            if wanted.to and entry is not None and entry.queue == wanted.to[0]:
                args = ChangeSchedulesArgs(now=now, home=entry.queue, changes=[wanted])
                (code,) = await self._router.endpoint.run(args, durable=True, timed=True)
            elif entry is None and not wanted.to:
                code = CHANGED
            elif entry is None:
                code = await self._add(wanted, now) if wanted.expect is False else 0
            else:
                code = await self._leave_for(entry, wanted, now)
            if code not in (ABSENT, TOO_LATE):
                return code in (CHANGED, ALREADY)
        raise overtaken()

    async def _add(self, wanted: PackedChange, now: int) -> int:
        assert wanted.to  # an absent row is not deleted
        entry = await self._prepare(wanted, now, "")
        try:
            is_mine = await self.claim(entry, None)
        except BackendUnavailable as error:
            if str(error) == FULL:
                await self.drop(entry)
            raise
        if not is_mine:
            await self.drop(entry)
            return ABSENT
        await self.arrive(entry)
        return CHANGED

    async def _leave_for(self, entry: ScheduleEntry, wanted: PackedChange, now: int) -> int:
        """The row leaves the queue that has it; for another one, or for good."""
        if not wanted.to:
            code = await self.leave(entry, wanted)
            if code == CHANGED:
                await self.release(entry)
            return code
        target = await self._prepare(wanted, now, entry.queue)
        code = await self.leave(entry, wanted, target)
        # Of a step that was repeated after a lost reply, another client may have seen the note, and removed it.
        if code == CHANGED or (code == ABSENT and await self._is_decided(target, entry.queue)):
            await self._finish(entry.queue, target)
            return CHANGED
        await self.drop(target)
        return code

    async def resolve(self, name: str) -> ScheduleEntry | None:
        """The entry of the queue that has the row of a name, after what others left undone is done; None: there is no
        row."""
        for _ in range(MAX_TRIES):
            entry = await self._entry(name)
            if entry is None:
                return None
            standing = await self._look(entry)
            if standing.prepared is not None:
                await self._finish(standing.prepared.source, entry)
                return entry
            if standing.has_row:
                return entry
            if standing.went is None or standing.went.queue == entry.queue:
                await self.release(entry)
            else:
                await self._finish(entry.queue, standing.went)
        raise overtaken()

    async def _finish(self, source: str, target: ScheduleEntry) -> None:
        """Do what is left of a change that was decided. `source`: the queue that the row left, or ""."""
        if source:
            await self._claim_for(source, target)
            await self.left(source, target)
        await self.arrive(target)

    async def _claim_for(self, source: str, target: ScheduleEntry) -> None:
        """Let the index know where a row went, as long as its old queue has a note of it."""
        for _ in range(MAX_TRIES):
            entry = await self._entry(target.name)
            if entry == target or (entry is not None and entry.queue != source):
                return
            if (await self._look(ScheduleEntry(target.name, source))).went != target:
                return  # another client has done it
            if await self.claim(target, entry, is_decided=True):
                return
        raise overtaken()

    async def rescue(self, queue: str, tokens: Sequence[str]) -> bool:
        """Finish what was prepared in a queue by clients that may have died, if it was decided; returns whether any
        was."""
        now, any_finished = monotonic(), False
        for token in tokens:
            if self._undecided.get(token, 0.0) > now:
                continue
            if len(self._undecided) > MAX_REMEMBERED:
                self._undecided.clear()
            self._undecided[token] = now + RESCUE_AGAIN_S
            any_finished |= await self._rescue(queue, token)
        return any_finished

    async def _rescue(self, queue: str, token: str) -> bool:
        found = await self._look(ScheduleEntry("", queue, token))
        if found.prepared is not None:
            target = ScheduleEntry(found.prepared.name, queue, token)
            if await self._is_decided(target, found.prepared.source):
                await self._finish(found.prepared.source, target)
                return True
        if found.is_old:
            await self.drop(ScheduleEntry("", queue, token))
        return False

    async def _is_decided(self, target: ScheduleEntry, source: str) -> bool:
        """Whether a change was decided, and its row has not arrived yet. In this order: the index has the claim before
        the note goes."""
        if source and (await self._look(ScheduleEntry(target.name, source))).went == target:
            return True
        return await self._entry(target.name) == target

    async def confirm(self, rows: Iterable[tuple[str, str]]) -> None:
        """Rows, each queue and name, that were met in their queues: let the index know them, if it lost them."""
        now = monotonic()
        new = [row for row in rows if self._confirmed.get(row, 0.0) <= now]
        if not new:
            return
        entries = [ScheduleEntry(name, queue, next(new_tokens(1))) for queue, name in new]
        args = ScheduleIndexArgs(
            home=HOME,
            operation="confirm",
            names=[entry.name for entry in entries],
            entries=[binary(entry.data()) for entry in entries],
            instead=False,
            patience_ms=0,
        )
        if await self._router.optional(HOME, partial(self._router.endpoint.run, args)) is None:
            return
        if len(self._confirmed) > MAX_REMEMBERED:
            self._confirmed.clear()
        self._confirmed |= dict.fromkeys(new, now + CONFIRMED_S)

    # The steps

    async def _prepare(self, wanted: PackedChange, now: int, source: str) -> ScheduleEntry:
        """A try whose reply was lost is repeated with another token: none may be prepared a second time."""
        assert wanted.to  # only what has a queue is prepared
        data = pack((now, wanted.name, source, wanted.to[2], wanted.jobs))
        try:
            token = await self.prepare(wanted.to[0], data)
        except BackendUnavailable as error:
            if not isinstance(error.__cause__, LOST):
                raise
            token = await self.prepare(wanted.to[0], data)
        return ScheduleEntry(wanted.name, wanted.to[0], token)

    async def prepare(self, queue: str, data: bytes) -> str:
        token: bytes = await self._step("prepare", queue, token=next(new_tokens(1)), data=data, repeat=False)
        return token.decode()

    async def claim(self, entry: ScheduleEntry, instead: ScheduleEntry | None, *, is_decided: bool = False) -> bool:
        return await self._index("replace" if is_decided else "add", entry, instead)

    async def release(self, entry: ScheduleEntry) -> bool:
        return await self._index("replace", None, entry)

    async def leave(self, entry: ScheduleEntry, wanted: PackedChange, target: ScheduleEntry | None = None) -> int:
        code: int = await self._step(
            "leave",
            entry.queue,
            name=entry.name,
            expect=wanted.expect,
            wanted=wanted.to[1] if wanted.to else False,
            token=target.claim if target is not None else False,
            target=target.queue if target is not None else False,
        )
        return code

    async def left(self, source: str, target: ScheduleEntry) -> None:
        await self._step("left", source, name=target.name, token=target.claim)

    async def arrive(self, entry: ScheduleEntry) -> None:
        await self._router.endpoint.run(ArriveScheduleArgs(home=entry.queue, token=entry.claim), durable=True)

    async def drop(self, entry: ScheduleEntry) -> None:
        await self._step("drop", entry.queue, token=entry.claim)

    # Scripts

    async def _entry(self, name: str) -> ScheduleEntry | None:
        args = ListSchedulesArgs(home=HOME, names=[name], queue=False, start="", count=0, slow_ms=0)
        ((data,), _) = await self._router.endpoint.run(args)
        return None if data is None else ScheduleEntry.read(data)

    async def _look(self, entry: ScheduleEntry) -> Standing:
        has_row, went, data, is_old = await self._step("look", entry.queue, name=entry.name, token=entry.claim)
        prepared = None
        if data is not None:
            try:
                prepared = _prepared(data)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                prepared = None  # another program wrote over it
        target = None if went is None else ScheduleEntry.read(entry.name.encode() + b"\n" + went)
        return Standing(bool(has_row), target, prepared, bool(is_old))

    async def _step(
        self,
        operation: str,
        queue: str,
        *,
        name: str = "",
        token: Any = False,
        data: bytes = b"",
        expect: Any = False,
        wanted: Any = False,
        target: Any = False,
        repeat: bool = True,
    ) -> Any:
        args = MoveScheduleArgs(
            home=queue,
            operation=operation,
            name=name,
            token=token,
            data=binary(data),
            expect=expect,
            wanted=wanted,
            target=target,
            patience_ms=DROPPED_AFTER_MS if operation == "look" else DECIDED_WITHIN_MS,
        )
        return await self._router.endpoint.run(args, durable=operation != "look", repeat=repeat)

    async def _index(self, operation: str, entry: ScheduleEntry | None, instead: ScheduleEntry | None) -> bool:
        name = entry.name if entry is not None else instead.name if instead is not None else ""
        args = ScheduleIndexArgs(
            home=HOME,
            operation=operation,
            names=[name],
            entries=[binary(entry.data()) if entry is not None else False],
            instead=binary(instead.data()) if instead is not None else False,
            patience_ms=DECIDED_WITHIN_MS,
        )
        return bool(await self._router.endpoint.run(args, durable=True) == 1)


def overtaken() -> BackendUnavailable:
    """A change that others overtook again and again."""
    return BackendUnavailable("other clients changed this schedule again and again meanwhile; send the call again")
