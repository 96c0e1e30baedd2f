"""Deliberate mistakes in what the memory driver offers as features, each with the theme whose cases notice it."""

from typing import NamedTuple

from tests.architecture.mutants import Mutant, one


class FeatureMutant(NamedTuple):
    theme: str
    mutant: Mutant


def in_theme(theme: str, name: str, module: str, old: str, new: str) -> FeatureMutant:
    return FeatureMutant(theme, one(name, module, old, new))


ATTEMPTS = (
    in_theme("attempts", "reserve notes no worker", "reserve", ", began_at=now, ran_on=worker)", ", began_at=now)"),
    in_theme("attempts", "reserve notes no time", "reserve", ", began_at=now, ran_on=worker)", ", ran_on=worker)"),
    in_theme("attempts", "a release is no loss", "leases", "        entry.lost_at = now\n", ""),
    in_theme("attempts", "a requeue leaves the loss", "admin", "        entry.lost_at = None\n", ""),
    in_theme("attempts", "a loss is reported twice", "reserve", "        entry.lost_at = None\n", ""),
    in_theme(
        "attempts",
        "an expiry is no loss",
        "reserve",
        "return Lost(record.ran_on, record.began_at, entry.lease.expires_at)",
        "return None",
    ),
    in_theme(
        "attempts",
        "an empty trail empties that of the record",
        "settle",
        "return replace(record, trail=outcome.trail) if outcome.trail else record",
        "return replace(record, trail=outcome.trail)",
    ),
    in_theme("attempts", "an ack loses its trail", "settle", "(outcome.spawn or outcome.trail)", "outcome.spawn"),
    in_theme(
        "attempts",
        "retry empties the class",
        "settle",
        "outcome.error_class or record.error_class",
        "outcome.error_class",
    ),
    in_theme(
        "attempts",
        "fail leaves the fingerprint",
        "settle",
        "        fingerprint=outcome.fingerprint,\n",
        "        fingerprint=outcome.fingerprint or entry.record.fingerprint,\n",
    ),
    in_theme("attempts", "a given trail is stored", "enqueue", "        or job.trail\n", ""),
)

NOTES = (
    in_theme(
        "notes",
        "the note of a lost lease is stored",
        "leases",
        "        refused: TaskHarborError | None",
        "        if entry is not None and notes and lease.token in notes:\n"
        "            entry.record = replace(entry.record, note=notes[lease.token])\n"
        "        refused: TaskHarborError | None",
    ),
    in_theme("notes", "requeue keeps the note", "admin", 'run_at=run_at, note=b"")', "run_at=run_at)"),
    in_theme("notes", "a long note is stored", "notes", "bad[place] = invalid", "pass"),
)

KEEP_FOR = (
    in_theme("keep_for", "keep_for is ignored", "store", "        if keep_for is None:\n", "        if True:\n"),
    in_theme("keep_for", "keep_for at equality", "admin", " and first < moment:", " and first <= moment:"),
    in_theme("keep_for", "keep_for without the retention", "admin", "moment + retention // MICROSECOND", "moment"),
)

FILTERS = (
    in_theme("filters", "since is exclusive", "listing", "at >= self.since", "at > self.since"),
    in_theme("filters", "until is inclusive", "listing", "at < self.until", "at <= self.until"),
    in_theme(
        "filters",
        "the time of the enqueue counts after the end",
        "listing",
        "at = job.finished_at if state.terminal and job.finished_at is not None else job.created_at",
        "at = job.created_at",
    ),
    in_theme("filters", "the fingerprint is ignored", "listing", "job.fingerprint == self.fingerprint", "True"),
    in_theme("filters", "downwards one job twice", "pages", "bisect_left(names, after)", "bisect_right(names, after)"),
    in_theme(
        "filters", "payloads in any case", "listing", "return job if self.payloads else", "return job if True else"
    ),
    in_theme(
        "filters",
        "a listing that was cut has no cursor",
        "pages",
        "        if looked_at == MAX_SCANNED_JOBS:\n            return Page(tuple(items), encode_cursor(last))\n",
        "        if looked_at == MAX_SCANNED_JOBS:\n            return Page(tuple(items))\n",
    ),
    in_theme(
        "filters", "blocked jobs are not listed", "store", "        self.ids_in[BLOCKED].add(entry.record.id)\n", ""
    ),
    in_theme("filters", "the cap is ignored", "reading", "number if cap is None else min(number, cap)", "number"),
    in_theme("filters", "the cap is off by one", "reading", "min(number, cap)", "min(number, cap + 1)"),
)

UPCOMING = (
    in_theme("upcoming", "late by a millisecond", "reading", "from_us(min(found))", "from_us(min(found) + 1000)"),
    in_theme("upcoming", "the last of several queues", "reading", "from_us(min(found))", "from_us(max(found))"),
    in_theme(
        "upcoming",
        "from the moment of the last call",
        "reading",
        "            queue.move(moment)\n            if (due :=",
        "            if (due :=",
    ),
)

AMEND = (
    in_theme(
        "amend",
        "the version is not checked",
        "amend",
        "if (record.deliveries, record.edits) != (change.deliveries, change.edits):",
        "if False:",
    ),
    in_theme(
        "amend",
        "edits are not compared",
        "amend",
        "if (record.deliveries, record.edits) != (change.deliveries, change.edits):",
        "if record.deliveries != change.deliveries:",
    ),
    in_theme(
        "amend",
        "deliveries are not compared",
        "amend",
        "if (record.deliveries, record.edits) != (change.deliveries, change.edits):",
        "if record.edits != change.edits:",
    ),
    in_theme(
        "amend",
        "a leased job is amended",
        "amend",
        "entry.standing == DONE or entry.standing in LEASED:",
        "entry.standing == DONE:",
    ),
    in_theme(
        "amend",
        "a done job is amended",
        "amend",
        "if entry.standing == DONE or entry.standing in LEASED:",
        "if entry.standing in LEASED:",
    ),
    in_theme("amend", "an expired job is amended", "amend", "entry.standing in LEASED:", "entry.standing == 4:"),
    in_theme("amend", "edits are not counted", "amend", "edits=record.edits + 1, ", ""),
    in_theme("amend", "the place stays", "amend", "    if entry.standing in WAITING and (", "    if False and ("),
    in_theme(
        "amend", "any change takes a new place", "amend", ' and ("run_at" in changes or "priority" in changes):', ":"
    ),
    in_theme(
        "amend",
        "an amend wakes no wait",
        "driver",
        "            results = amend(self.store, changes, now, self._max_payload)\n            self._wake()\n",
        "            results = amend(self.store, changes, now, self._max_payload)\n",
    ),
)

FLOWS = (
    in_theme(
        "flow_listing",
        "what failed once has failed",
        "flows",
        "        if entry.standing in standings:\n",
        "        if True:\n",
    ),
    in_theme(
        "flow_listing",
        "created by the first that was stored",
        "flows",
        "entry if id < first.record.id else first",
        "first",
    ),
    in_theme(
        "flow_listing",
        "an open flow has succeeded",
        "flows",
        "FlowStatus.RUNNING if flow.open else",
        "FlowStatus.SUCCEEDED if flow.open else",
    ),
    in_theme(
        "flow_listing",
        "a listing that was cut has no cursor",
        "pages",
        "        if looked_at == MAX_SCANNED_FLOWS:\n            return FlowPage(tuple(items), encode_cursor(last))\n",
        "        if looked_at == MAX_SCANNED_FLOWS:\n            return FlowPage(tuple(items))\n",
    ),
    in_theme(
        "flow_listing",
        "flows until and with a moment",
        "pages",
        "flow.created_at < wanted.until",
        "flow.created_at <= wanted.until",
    ),
)

FIGURES = (
    in_theme("figures", "figures replace those before", "figures", "counts.get(name, 0) + number", "number"),
    in_theme(
        "figures", "figures are kept for ever", "figures", "        while self._oldest and", "        while False and"
    ),
    in_theme(
        "figures", "figures go a minute early", "figures", "< now - FIGURES_KEPT_FOR", "<= now - FIGURES_KEPT_FOR"
    ),
    in_theme(
        "figures", "figures up to and with a minute", "figures", "since <= minute < until", "since <= minute <= until"
    ),
    in_theme(
        "figures",
        "zeros are returned",
        "figures",
        " for what, number in counts.items() if number}",
        " for what, number in counts.items()}",
    ),
)

ALL = (*ATTEMPTS, *NOTES, *KEEP_FOR, *FILTERS, *UPCOMING, *AMEND, *FLOWS, *FIGURES)

# Those that lose what a worker or an editor did, or wake a worker too late.
_LOSES = {
    "an expiry is no loss",
    "a release is no loss",
    "an ack loses its trail",
    "the note of a lost lease is stored",
    "keep_for is ignored",
    "late by a millisecond",
    "the version is not checked",
    "an expired job is amended",
    "the place stays",
}
FOR_THE_MACHINE = tuple(each.mutant for each in ALL if each.mutant.name in _LOSES)
assert len(FOR_THE_MACHINE) == len(_LOSES)
