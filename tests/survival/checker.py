"""The checker: computes from the journals and the final state of the store what was lost, doubled or accepted too late.

It keeps its own count of the deliveries of each job and trusts no token of the driver. It knows which faults were
injected, when, and which processes they hit; an execution beyond the first one is explained only by such a fault.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tests.survival.journal import Note


class Fault(NamedTuple):
    """Something that was done to processes (`pids`) or to the store (None), from one moment to another."""

    kind: str
    begin: float
    end: float
    pids: frozenset[int] | None = None

    def explains(self, pid: int, begin: float, end: float) -> bool:
        """Whether it hit this process between an execution and the next one of the same job."""
        hit = self.pids is None or pid in self.pids
        return hit and self.begin <= end and self.end >= begin


class Stored(NamedTuple):
    """What the store holds about a job at the end."""

    state: str
    attempts: int = 0
    lost: int = 0
    reason: str = ""
    last_error: str = ""
    max_attempts: int = 0
    payload: bool = True
    finished: bool = True


@dataclass
class Verdict:
    """What the checker found. Everything in `wrong` is a violation, in words."""

    jobs: int = 0
    executions: int = 0
    lost: int = 0
    duplicates: int = 0
    unexplained: int = 0
    stale: int = 0
    recovery: float | None = None
    wrong: list[str] = field(default_factory=list)


class _Start(NamedTuple):
    time: float
    pid: int
    number: int
    id: str
    fence: int


def check(
    notes: Sequence[Note],
    faults: Iterable[Fault],
    stored: Mapping[str, Stored],
    *,
    max_lost: int | None = None,
    dead: frozenset[int] = frozenset(),
    expected_runs: Mapping[int, int] | None = None,
) -> Verdict:
    """`dead`: numbers that have to end in the DLQ. `expected_runs`: numbers that run more than once without a fault."""
    faults = list(faults)
    verdict = Verdict()
    starts: dict[str, list[_Start]] = defaultdict(list)
    sent: set[int] = set()
    unknown: set[int] = set()
    acknowledged: dict[int, str | None] = {}
    ended: set[int] = set()
    accepted: dict[str, tuple[float, int]] = {}  # job → when its final outcome was accepted, and of which delivery
    for note in notes:
        if note.word == "start":
            number, id, fence = note.data
            starts[id].append(_Start(note.time, note.pid, number, id, fence))
        elif note.word == "end":
            ended.add(note.data[0])
        elif note.word == "sent":
            sent.update(note.data[0])
        elif note.word == "stored":
            numbers, *ids = note.data
            acknowledged.update(zip(numbers, ids[0], strict=True) if ids else dict.fromkeys(numbers))
        elif note.word == "unknown":
            unknown.update(note.data[0])
        elif note.word == "settled":
            for id, fence, was_accepted, final in note.data[0]:
                if was_accepted and final:
                    accepted.setdefault(id, (note.time, fence))
    by_number = {runs[0].number: id for id, runs in starts.items()}
    known = {number: id or by_number.get(number, "") for number, id in acknowledged.items()}  # "": it never ran
    verdict.jobs = len(known)
    verdict.executions = sum(map(len, starts.values()))
    _lost(verdict, known, ended, dead, stored)
    _balance(verdict, sent, unknown, known, starts, stored)
    _duplicates(verdict, starts, faults, accepted, expected_runs or {})
    _epochs(verdict, notes)
    _records(verdict, stored, max_lost)
    verdict.recovery = recovery(notes, faults)
    return verdict


def _lost(
    verdict: Verdict,
    acknowledged: Mapping[int, str],
    ended: set[int],
    dead: frozenset[int],
    stored: Mapping[str, Stored],
) -> None:
    """Invariant 1: an acknowledged job was executed to its end, or is in the DLQ, or is cancelled."""
    for number, id in acknowledged.items():
        record = stored.get(id)
        state = record.state if record else "nowhere"
        if state == "cancelled" or (state == "done" and number in ended):
            continue
        if state == "dlq":
            if number not in dead:
                verdict.wrong.append(f"job {number} is dead: {record and record.reason}")
            continue
        verdict.lost += 1
        verdict.wrong.append(f"job {number} ({id}) is lost: it is {state}, its handler ended: {number in ended}")


def _balance(
    verdict: Verdict,
    sent: set[int],
    unknown: set[int],
    acknowledged: Mapping[int, str],
    starts: Mapping[str, list[_Start]],
    stored: Mapping[str, Stored],
) -> None:
    """Invariant 2: what is stored was acknowledged, or sent without a reply. Nothing runs that was never sent."""
    known = set(acknowledged.values())
    ids_without_reply = {each.id for all_of_it in starts.values() for each in all_of_it} - known
    for id in ids_without_reply:
        numbers = {each.number for each in starts[id]}
        if sent and not numbers <= sent:
            verdict.wrong.append(f"job {id} ran and was never sent")
        elif sent and not numbers <= unknown | (sent - set(acknowledged)):
            verdict.wrong.append(f"job {id} ran beside the one that its enqueue returned")
    for number, id in acknowledged.items():
        if id and id not in stored:
            verdict.wrong.append(f"job {number} ({id}) was acknowledged, and the store does not know it")
    open_ones = [id for id, record in stored.items() if record.state not in ("done", "dlq", "cancelled")]
    if open_ones:
        verdict.wrong.append(f"{len(open_ones)} jobs are not ended, the first is {open_ones[0]}")


def _duplicates(
    verdict: Verdict,
    starts: Mapping[str, list[_Start]],
    faults: Sequence[Fault],
    accepted: Mapping[str, tuple[float, int]],
    expected: Mapping[int, int],
) -> None:
    """Invariant 6: executions = 1 + explained ones. After an accepted outcome nothing explains another execution."""
    numbers: dict[int, set[str]] = defaultdict(set)
    for id, runs in starts.items():
        numbers[runs[0].number].add(id)
        runs.sort()
        spare = expected.get(runs[0].number, 1) - 1
        for before, after in pairwise(runs):
            if spare:
                spare -= 1
                continue
            verdict.duplicates += 1
            done = accepted.get(id)
            if done is not None and done[0] < after.time and after.fence > done[1]:
                verdict.unexplained += 1
                verdict.wrong.append(f"job {before.number} ran again after its outcome was accepted")
            elif not any(fault.explains(before.pid, before.time, after.time) for fault in faults):
                verdict.unexplained += 1
                gap = after.time - before.time
                verdict.wrong.append(f"job {before.number} ran twice, {gap:.3f} s apart, and no fault explains it")
            if after.fence <= before.fence:
                verdict.wrong.append(f"the fence of job {before.number} did not grow: {before.fence}, {after.fence}")
    for number, ids in numbers.items():
        if len(ids) > 1:
            verdict.unexplained += len(ids) - 1
            verdict.wrong.append(f"number {number} is {len(ids)} jobs")


def _epochs(verdict: Verdict, notes: Sequence[Note]) -> None:
    """Invariant 3: only the newest reservation extends or settles. A reply that came before a call began is older."""
    newest: dict[str, int] = defaultdict(int)
    granted: set[tuple[str, int]] = set()
    begun: dict[tuple[int, str], dict[str, int]] = {}  # (process, verb) → what was newest when the call began
    for note in notes:
        if note.word == "reserved":
            for id, fence in note.data[0]:
                if (id, fence) in granted:
                    verdict.wrong.append(f"delivery {fence} of job {id} was granted twice")
                granted.add((id, fence))
                newest[id] = max(newest[id], fence)
        elif note.word == "call" and len(note.data) > 2:
            begun[note.pid, note.data[1]] = {id: newest[id] for id in note.data[2]}
        elif note.word in ("settled", "extended"):
            before = begun.pop((note.pid, note.data[1]), {})
            for id, fence, *rest in note.data[0]:
                if fence < before.get(id, 0) and (rest[0] if rest else True):
                    verdict.stale += 1
                    verdict.wrong.append(f"delivery {fence} of job {id} was {note.word} after {before[id]} was granted")


def _records(verdict: Verdict, stored: Mapping[str, Stored], max_lost: int | None) -> None:
    """Invariants 7 and 8: attempts and losses within their bounds; a dead letter says why."""
    for id, record in stored.items():
        if record.max_attempts and record.attempts > record.max_attempts:
            verdict.wrong.append(f"job {id} has {record.attempts} attempts of {record.max_attempts}")
        if max_lost is not None and record.lost > max_lost:
            verdict.wrong.append(f"job {id} was lost {record.lost} times of {max_lost}")
        if record.state == "dlq" and not (record.reason and record.payload and record.finished):
            verdict.wrong.append(f"the dead letter {id} lacks its reason, payload or time")


def recovery(notes: Sequence[Note], faults: Iterable[Fault]) -> float | None:
    """The longest time from a fault until what it interrupted went on.

    A fault of processes: until the jobs that ran in them run again. A fault of the store: from its end until each
    process that made calls before has a reply again.
    """
    held: dict[tuple[str, int], tuple[int, float]] = {}  # delivery → its process, and since when
    starts: dict[str, list[float]] = defaultdict(list)
    over: dict[tuple[str, int], float] = {}
    replies: dict[int, list[float]] = defaultdict(list)
    for note in notes:
        if note.word == "start":
            starts[note.data[1]].append(note.time)
            held.setdefault((note.data[1], note.data[2]), (note.pid, note.time))
        elif note.word == "reserved":
            for id, fence in note.data[0]:
                held[id, fence] = (note.pid, note.time)
        elif note.word == "settled":
            for id, fence, was_accepted, _ in note.data[0]:
                if was_accepted:
                    over[id, fence] = note.time
        elif note.word == "reply":
            replies[note.pid].append(note.time)
    by_process: dict[int, list[tuple[str, int, float]]] = defaultdict(list)
    for (id, fence), (pid, since) in held.items():
        by_process[pid].append((id, fence, since))
    worst: list[float] = []
    for fault in faults:
        if fault.pids is None:
            worst += _of_the_store(fault, replies)
            continue
        for id, fence, since in (each for pid in fault.pids for each in by_process[pid]):
            if since <= fault.begin < over.get((id, fence), float("inf")):
                later = [moment for moment in starts[id] if moment > fault.begin]
                worst += [later[0] - fault.begin] if later else []
    return max(worst, default=None)


def _of_the_store(fault: Fault, replies: Mapping[int, list[float]]) -> list[float]:
    taken = []
    for times in replies.values():
        later = [moment for moment in times if moment > fault.end]
        if later and any(moment < fault.begin for moment in times):
            taken.append(later[0] - fault.end)
    return taken


def describe(wrong: Sequence[Any], limit: int = 12) -> str:
    """The first violations, for an error message."""
    more = f"\n… and {len(wrong) - limit} more" if len(wrong) > limit else ""
    return "\n".join(map(str, wrong[:limit])) + more
