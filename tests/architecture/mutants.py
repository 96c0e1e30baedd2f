"""The deliberate mistakes: what is changed in a copy of the memory driver, and how such a copy is made.

A mistake is a piece of the driver's text and what stands there instead. A text that is no longer there, or stands
there twice, is an error of its own: a rewrite of the driver has to restate the mistake for the new text.
"""

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from taskharbor import drivers
from taskharbor.drivers import memory

SOURCE = Path(memory.__file__).parent
PACKAGE = memory.__name__
SHARED = (
    "planning",
    "refusals",
    "queries",
    "notes",
)  # logic that all drivers share, copied into the package


class Edit(NamedTuple):
    module: str
    old: str
    new: str


class Mutant(NamedTuple):
    name: str
    edits: tuple[Edit, ...]


def one(name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, (Edit(module, old, new),))


# Freeing a place twice shall be a wrong number, not an exception: a real store would not notice either.
LENIENT = Edit(
    "groups",
    "        group = self._groups[name]\n        group.inflight -= 1\n",
    "        group = self._get(name)\n        group.inflight = max(group.inflight - 1, 0)\n",
)
REPEATED = "                results.append(None)\n                continue\n            refused = "

# Those that must always be here: the mistakes that lose jobs or run them twice.
REQUIRED = (
    Mutant(
        "token check dropped",
        (
            Edit("refusals", "if token != lease.token:", "if token is None:"),
            Edit("settle", "            or held.token != lease.token\n", ""),
        ),
    ),
    Mutant(
        "expiry compared with <",
        (
            Edit("refusals", "ends_at <= now", "ends_at < now"),
            Edit("settle", "entry.moment <= moment", "entry.moment < moment"),
        ),
    ),
    Mutant(
        "expiry compared the wrong way round",
        (
            Edit("refusals", "ends_at <= now", "ends_at > now"),
            Edit("settle", "entry.moment <= moment", "entry.moment > moment"),
        ),
    ),
    one(
        "runnable a millisecond after its time",
        "reserve",
        "    for queue in queues:\n        queue.move(moment)\n",
        "    for queue in queues:\n        queue.move(moment - 1000)\n",
    ),
    one("lost leases not counted", "reserve", " lost=record.lost + 1, run_at=None", " run_at=None"),
    Mutant(
        "a slot freed twice: at expiry, and when the expired job leaves",
        (
            LENIENT,
            Edit(
                "queue",
                "        if standing in DUE:\n",
                "        if standing in DUE:\n"
                "            if entry.lease and entry.record.group:\n"
                "                self.groups.free(entry.record.group)\n",
            ),
        ),
    ),
    Mutant(
        "a slot freed twice: by the outcome, and by its repetition",
        (
            LENIENT,
            Edit(
                "settle",
                REPEATED,
                "                if entry.record.group:\n"
                "                    entry.queue.groups.free(entry.record.group)\n" + REPEATED,
            ),
        ),
    ),
    one("dependents released before the last ack", "flows", "dependent.open -= 1", "dependent.open = 0"),
    one(
        "settle applied twice",
        "settle",
        REPEATED,
        "                _apply(store, entry, outcome, now, moment)\n" + REPEATED,
    ),
)

OTHERS = (
    one("give-back resets lost", "settle", "lost=record.lost if given_back else 0", "lost=0"),
    one("a failure leaves lost", "settle", "lost=record.lost if given_back else 0", "lost=record.lost"),
    one(
        "deliveries reset by requeue",
        "admin",
        'reason="", finished_at=None, lost=0, run_at=run_at, ',
        'reason="", finished_at=None, lost=0, deliveries=0, run_at=run_at, ',
    ),
    one("requeue leaves lost", "admin", "finished_at=None, lost=0, run_at=run_at,", "finished_at=None, run_at=run_at,"),
    one("requeue leaves the flow's flag", "admin", "store.flows[record.flow_id].cancelled = False", "pass"),
    one("requeue forgets open dependencies", "admin", "            link(store, entry)", "            pass"),
    one("key not freed by delete", "store", "del queue.keys[record.idempotency_key]", "pass"),
    one("release ignores keep", "leases", " and entry.lease.token not in kept", ""),
    one(
        "release counts nothing",
        "leases",
        "lost + 1 if type(lost) is int else lost",
        "lost",
    ),
    one(
        "release keeps run_at",
        "leases",
        "replace(entry.record, lost=lost, run_at=None)",
        "replace(entry.record, lost=lost)",
    ),
    one(
        "cancel and every outcome leave the slot taken",
        "queue",
        "return group is not None and self.groups.free(group)",
        "return False",
    ),
    one("cancel takes dead jobs", "admin", "if state is State.DONE or state is State.DLQ:", "if state is State.DONE:"),
    one("cancel_flow sets no flag", "admin", "flow.cancelled = True", "pass"),
    one(
        "one space of keys for all queues",
        "enqueue",
        "    return queue.keys.get(key) if queue is not None else None\n",
        "    return next((queue.keys[key] for queue in store.queues.values() if key in queue.keys), None)\n",
    ),
    one(
        "the key decides before the id",
        "planning",
        "    stored = plan.stored.get(job.id)\n",
        "    stored = plan.stored.get(job.id)\n"
        "    if (job.queue, job.idempotency_key) in taken:\n"
        "        return taken[job.queue, job.idempotency_key]\n",
    ),
    one(
        "ordered by id",
        "queue",
        "-record.priority, entry.time, entry.arrival",
        "-record.priority, entry.time, record.id",
    ),
    one(
        "last in, first out",
        "queue",
        "-record.priority, entry.time, entry.arrival",
        "-record.priority, entry.time, -entry.arrival",
    ),
    one(
        "joining time ignored",
        "queue",
        "-record.priority, entry.time, entry.arrival",
        "-record.priority, entry.arrival",
    ),
    one(
        "priority inverted",
        "queue",
        "-record.priority, entry.time, entry.arrival",
        "record.priority, entry.time, entry.arrival",
    ),
    one(
        "priority inside groups",
        "groups",
        "group.push((entry.time, entry.arrival)",
        "group.push((-entry.record.priority, entry.time, entry.arrival)",
    ),
    one(
        "an expired job joins when it is noticed",
        "queue",
        "entry.time = entry.moment\n",
        "entry.time = self.calendar.now\n",
    ),
    one("paused ignored", "reserve", " and not queue.paused]", "]"),
    Mutant(
        "group limit off by one",
        (
            Edit("groups", "return self.inflight < self.limit", "return self.inflight <= self.limit"),
            Edit("groups", "if group.inflight >= group.limit or", "if group.inflight > group.limit or"),
        ),
    ),
    one("the last group limit counts", "groups", "        if name in self._limits:\n            return False\n", ""),
    one("reserve limit off by one", "queue", "while len(taken) < limit:", "while len(taken) <= limit:"),
    one(
        "ungrouped jobs first, always",
        "queue",
        "            self.groups_next = entry.record.group is None\n",
        "            self.groups_next = False\n",
    ),
    one(
        "handover to the end of depends_on",
        "flows",
        "tuple(new.record.id if id == old.record.id else id for id in dependent.record.depends_on)",
        "(*(id for id in dependent.record.depends_on if id != old.record.id), new.record.id)",
    ),
    one("handed_to not noted", "settle", "lost=0, handed_to=heir)", "lost=0)"),
    one(
        "a new dependency on the job that was handed over",
        "planning",
        "    if stored.handed_to is None:\n        return dependency\n",
        "    return dependency\n",
    ),
    one("prune at equality", "admin", " and first < moment:", " and first <= moment:"),
    one("prune takes dead letters", "store", "        if standing != DLQ:\n", "        if True:\n"),
    one(
        "prune takes what is needed",
        "admin",
        "if entry.holds or (flow is not None and flow.open):",
        "if flow is not None and flow.open:",
    ),
    one("prune takes half a flow", "admin", "if entry.holds or (flow is not None and flow.open):", "if entry.holds:"),
    one("delete takes what is needed", "admin", "        if entry.holds:\n", "        if False:\n"),
    one("extend shortens", "leases", "if until > entry.moment:", "if True:"),
    one(
        "scheduled at equality",
        "records",
        "return State.SCHEDULED if moment is not None and moment > now else State.READY",
        "return State.SCHEDULED if moment is not None and moment >= now else State.READY",
    ),
    one(
        "inflight at equality",
        "records",
        "return State.INFLIGHT if moment is not None and moment > now else State.READY",
        "return State.INFLIGHT if moment is not None and moment >= now else State.READY",
    ),
    one(
        "a cycle is stored",
        "planning",
        "        refuse_cycle({id: job.depends_on for id, job in plan.fresh.items()})\n",
        "",
    ),
    one(
        "the same token for a whole batch",
        "reserve",
        "zip(taken, new_tokens(len(taken)), strict=True)",
        "zip(taken, [*new_tokens(1)] * len(taken), strict=True)",
    ),
    one(
        "a repetition is refused",
        "settle",
        REPEATED,
        "                pass\n            refused = ",
    ),
    one(
        "another kind counts as a repetition",
        "settle",
        "entry.settled == lease.token and entry.settled_as is kind:",
        "entry.settled == lease.token:",
    ),
    one(
        "damaged records are handed out",
        "records",
        "    if not entry.tampered:\n        return None\n",
        "    if entry.standing != UNKNOWN:\n        return None\n",
    ),
    one(
        "an ack wakes no wait",
        "driver",
        "            results = settle(self.store, outcomes, now, self._max_payload)\n            self._wake()\n",
        "            results = settle(self.store, outcomes, now, self._max_payload)\n",
    ),
    one("a result of jobs that are not done", "reading", "last.standing == DONE and ", ""),
    one("a result of a job whose heir is gone", "reading", "DONE and last.record.handed_to is None:", "DONE:"),
    one(
        "a result for every id",
        "reading",
        "    found: dict[str, bytes | None] = {}\n    for id in ids:\n",
        "    found: dict[str, bytes | None] = dict.fromkeys(ids)\n    for id in ids:\n",
    ),
)


@contextmanager
def copied(mutant: Mutant | None, folder: Path) -> Iterator[Any]:
    """A copy of the memory driver's package with the mistake in it; None: as it is."""
    name = f"memory_copy_{abs(hash((mutant, str(folder))))}"
    target = folder / name
    shutil.copytree(SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"))
    for shared in SHARED:
        shutil.copy(SOURCE.parent / f"{shared}.py", target)
    for edit in mutant.edits if mutant else ():
        _apply(target / f"{edit.module}.py", edit)
    for file in target.glob("*.py"):
        text = file.read_text(encoding="utf-8").replace(PACKAGE, name)
        for shared in SHARED:
            text = text.replace(f"{drivers.__name__}.{shared} ", f"{name}.{shared} ")
        file.write_text(text, encoding="utf-8")
    with imported_from(folder, name) as package:
        yield package


@contextmanager
def imported_from(folder: Path, name: str) -> Iterator[Any]:
    """A package in a folder, imported; forgotten at the end of the block."""
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        for module in [module for module in sys.modules if module.split(".")[0] == name]:
            del sys.modules[module]


def _apply(file: Path, edit: Edit) -> None:
    text = file.read_text(encoding="utf-8")
    found = text.count(edit.old)
    if found != 1:
        raise LookupError(
            f"{file.name} of {SOURCE} or its parent holds the text to be mutated {found} times, expected once. "
            f"Say this mistake again in the words that stand there now:\n{edit.old}"
        )
    file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
