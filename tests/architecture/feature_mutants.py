"""Deliberate mistakes in what the memory driver offers as features, each with the theme whose cases notice it."""

from typing import NamedTuple

from tests.architecture.mutants import Edit, Mutant, one


class FeatureMutant(NamedTuple):
    theme: str
    mutant: Mutant


def in_theme(theme: str, name: str, module: str, old: str, new: str) -> FeatureMutant:
    return FeatureMutant(theme, one(name, module, old, new))


ATTEMPTS = (
    in_theme("attempts", "reserve notes no worker", "reserve", ", began_at=now, ran_on=worker)", ", began_at=now)"),
    in_theme("attempts", "reserve notes no time", "reserve", ", began_at=now, ran_on=worker)", ", ran_on=worker)"),
    in_theme("attempts", "a release is no loss", "settle", "        entry.lost_at = now\n", ""),
    in_theme("attempts", "a requeue leaves the loss", "admin", "        entry.lost_at = None\n", ""),
    in_theme(
        "attempts",
        "a loss is reported twice",
        "reserve",
        "entry.settled = entry.lost_at = None",
        "entry.settled = None",
    ),
    in_theme(
        "attempts",
        "an expiry is no loss",
        "reserve",
        "        lost_by = Lost(record.ran_on, record.began_at, entry.lease.expires_at)\n",
        "",
    ),
    in_theme(
        "attempts",
        "an empty trail empties that of the record",
        "settle",
        "trail = outcome.trail or record.trail",
        "trail = outcome.trail",
    ),
    in_theme("attempts", "an ack loses its trail", "settle", "handed_to=heir, trail=trail)", "handed_to=heir)"),
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
        "fingerprint=outcome.fingerprint,",
        "fingerprint=outcome.fingerprint or record.fingerprint,",
    ),
    in_theme("attempts", "a given trail is stored", "planning", '        trail=b"",\n', ""),
)

NOTES = (
    in_theme(
        "notes",
        "the note of a lost lease is stored",
        "settle",
        "        refused: TaskHarborError | None",
        "        if entry is not None and notes and lease.token in notes:\n"
        "            entry.record = replace(entry.record, note=notes[lease.token])\n"
        "        refused: TaskHarborError | None",
    ),
    in_theme("notes", "requeue keeps the note", "admin", 'run_at=run_at, note=b"")', "run_at=run_at)"),
    in_theme("notes", "a long note is stored", "refusals", "bad[place] = invalid", "pass"),
)

KEEP_FOR = (
    in_theme("keep_for", "keep_for is ignored", "store", "        if keep_for is None:\n", "        if True:\n"),
    in_theme("keep_for", "keep_for at equality", "admin", " and first[0][0] < before:", " and first[0][0] <= before:"),
    in_theme("keep_for", "keep_for without the retention", "admin", "before + retention", "before"),
)

FILTERS = (
    in_theme("filters", "since is exclusive", "queries", "or at >= self.since", "or at > self.since"),
    in_theme("filters", "until is inclusive", "queries", "or at < self.until", "or at <= self.until"),
    in_theme(
        "filters",
        "the time of the enqueue counts after the end",
        "queries",
        "at = job.finished_at if state.terminal and job.finished_at is not None else job.created_at",
        "at = job.created_at",
    ),
    in_theme("filters", "the fingerprint is ignored", "queries", "job.fingerprint == self.fingerprint", "True"),
    in_theme("filters", "a name of an error fits any end", "queries", 'f".{self.error_name}"', "self.error_name"),
    in_theme(
        "filters", "an error's class beside its name", "queries", "return error_class == self.error_class or", "return"
    ),
    in_theme("filters", "downwards one job twice", "reading", "or id < after)", "or id <= after)"),
    in_theme(
        "filters", "payloads in any case", "queries", "return job if self.payloads else", "return job if True else"
    ),
    in_theme(
        "filters",
        "a listing that was cut has no cursor",
        "reading",
        "        if looked_at == MAX_SCANNED_JOBS:\n            return Page(tuple(items), encode_cursor(last))\n",
        "        if looked_at == MAX_SCANNED_JOBS:\n            return Page(tuple(items))\n",
    ),
    in_theme(
        "filters",
        "blocked jobs are not listed",
        "reading",
        "if wanted.fits(found.job, found.state):",
        "if wanted.fits(found.job, found.state) and found.state is not State.BLOCKED:",
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
        "            queue.move(now)\n            if (first :=",
        "            if (first :=",
    ),
)

HEADS = (
    in_theme("heads", "groups do not wait", "reading", "for line in queue.lines()", "for line in [queue.ungrouped]"),
    in_theme("heads", "more than the group may", "reading", "min(n, group.capacity)", "n"),
    in_theme("heads", "the other turn", "reading", "queue.groups_next, n)", "not queue.groups_next, n)"),
    in_theme("heads", "as of the last call", "reading", "queue.move(now)\n            due", "due"),
)

AMEND = (
    in_theme(
        "amend",
        "the version is not checked",
        "admin",
        "if (record.deliveries, record.edits) != (change.deliveries, change.edits):",
        "if False:",
    ),
    in_theme(
        "amend",
        "edits are not compared",
        "admin",
        "if (record.deliveries, record.edits) != (change.deliveries, change.edits):",
        "if record.deliveries != change.deliveries:",
    ),
    in_theme(
        "amend",
        "deliveries are not compared",
        "admin",
        "if (record.deliveries, record.edits) != (change.deliveries, change.edits):",
        "if record.edits != change.edits:",
    ),
    in_theme(
        "amend",
        "a leased job is amended",
        "admin",
        "entry.state is State.DONE or entry.lease is not None:",
        "entry.state is State.DONE:",
    ),
    in_theme(
        "amend",
        "a done job is amended",
        "admin",
        "if entry.state is State.DONE or entry.lease is not None:",
        "if entry.lease is not None:",
    ),
    in_theme(
        "amend",
        "an expired job is amended",
        "admin",
        "or entry.lease is not None:",
        "or entry.state_at(now) is State.INFLIGHT:",
    ),
    in_theme("amend", "edits are not counted", "admin", "edits=record.edits + 1, ", ""),
    in_theme("amend", "the place stays", "admin", "    if entry.state is State.READY and (", "    if False and ("),
    in_theme(
        "amend", "any change takes a new place", "admin", ' and ("run_at" in changes or "priority" in changes):', ":"
    ),
    in_theme(
        "amend",
        "an amend wakes no wait",
        "driver",
        "        with self._changing() as store:\n            return admin.amend(store, ",
        "        with self.store.lock:\n            return admin.amend(self.store, ",
    ),
)

STEPS = (
    in_theme("steps", "a zombie saves", "settle", "    if refused is not None:\n        raise refused\n", ""),
    in_theme("steps", "the record does not say so", "settle", "has_memos=True", "has_memos=False"),
    in_theme("steps", "the delivery is not counted", "settle", "now, entry.record.deliveries)", "now, 1)"),
    in_theme("steps", "a new payload keeps the memos", "admin", "        entry.memos.clear()\n", ""),
    in_theme("steps", "any change forgets them", "admin", 'if "payload" in changes:', "if True:"),
    in_theme(
        "steps", "memos in the order of their names", "reading", ", key=memo_place)", ", key=lambda memo: memo.name)"
    ),
)

FLOWS = (
    in_theme(
        "flow_listing",
        "what failed once has failed",
        "reading",
        "flow_status([entry.state_at(now) for entry in members])",
        "flow_status([State.DLQ if entry.record.failed_at else entry.state_at(now) for entry in members])",
    ),
    in_theme(
        "flow_listing",
        "created by the first that was stored",
        "reading",
        "sorted(store.flows[id], key=lambda entry: entry.record.id)",
        "sorted(store.flows[id], key=lambda entry: entry.stored)",
    ),
    in_theme(
        "flow_listing",
        "an open flow has succeeded",
        "reading",
        "flow_status([entry.state_at(now) for entry in members])",
        "flow_status([state if (state := entry.state_at(now)).terminal else State.DONE for entry in members])",
    ),
    in_theme(
        "flow_listing",
        "a listing that was cut has no cursor",
        "reading",
        "        if looked_at == MAX_SCANNED_FLOWS:\n            return FlowPage(tuple(items), encode_cursor(last))\n",
        "        if looked_at == MAX_SCANNED_FLOWS:\n            return FlowPage(tuple(items))\n",
    ),
    in_theme(
        "flow_listing",
        "flows until and with a moment",
        "queries",
        "flow.created_at < self.until",
        "flow.created_at <= self.until",
    ),
)

FIGURES = (
    in_theme("figures", "figures replace those before", "history", "counts.get(name, 0) + number", "number"),
    in_theme(
        "figures", "figures are kept for ever", "history", "        while self._oldest and", "        while False and"
    ),
    in_theme(
        "figures", "figures go a minute early", "history", "< now - FIGURES_KEPT_FOR", "<= now - FIGURES_KEPT_FOR"
    ),
    in_theme(
        "figures", "figures up to and with a minute", "history", "since <= minute < until", "since <= minute <= until"
    ),
    in_theme(
        "figures",
        "zeros are returned",
        "history",
        " for what, number in counts.items() if number}",
        " for what, number in counts.items()}",
    ),
)

SEEN = (
    in_theme(
        "seen", "requeue ignores seen", "driver", "now, run_at, reset_attempts, seen)", "now, run_at, reset_attempts)"
    ),
    in_theme("seen", "cancel ignores seen", "driver", "cancel(store, ids, now, seen)", "cancel(store, ids, now)"),
    in_theme("seen", "delete ignores seen", "driver", "delete(store, ids, seen)", "delete(store, ids)"),
    *(
        in_theme(
            "seen",
            f"{field} of a job are not compared with what was seen",
            "admin",
            "_seen(entry) != expected:",
            f"replace(_seen(entry), {field}=expected.{field}) != expected:",
        )
        for field in ("deliveries", "edits", "finished_at")
    ),
    in_theme(
        "seen",
        "what was seen of an ended job is ignored",
        "admin",
        "if expected is not None and _seen(entry)",
        "if expected is not None and not entry.finished and _seen(entry)",
    ),
    in_theme(
        "seen",
        "an unknown job is one that changed",
        "admin",
        "            return no_job(id)\n        if expected",
        "            return no_job(id) if expected is None else changed_since(id)\n        if expected",
    ),
    in_theme(
        "seen",
        "all are compared before one is changed",
        "admin",
        "    return [one(id, expected) for id, expected in paired(ids, seen)]\n",
        "    before = {id: _seen(store.entries[id]) for id in ids if id in store.entries}\n"
        "    return [\n"
        "        changed_since(id) if expected and before.get(id, expected) != expected else one(id, None)\n"
        "        for id, expected in paired(ids, seen)\n"
        "    ]\n",
    ),
    in_theme(
        "seen",
        "the last of what was seen is left out",
        "refusals",
        '        raise ValueError(f"seen: expected one for each of {len(ids)} ids, got {len(seen)}")\n',
        "        return list(zip(ids, seen, strict=False))\n",
    ),
)

AUDIT = (
    in_theme("audit", "an entry is stored beside the one before", "history", "if known is not None:", "if False:"),
    in_theme(
        "audit",
        "an entry is never replaced",
        "history",
        "                del self._places[bisect_left(self._places, (known.at, known.id))]\n",
        "                continue\n",
    ),
    in_theme(
        "audit",
        "entries in the order of arrival",
        "history",
        "insort(self._places, (entry.at, entry.id))",
        "self._places.append((entry.at, entry.id))",
    ),
    in_theme("audit", "the first entry first", "history", "range(end - 1, first - 1, -1)", "range(first, end)"),
    in_theme(
        "audit", "entries are kept for ever", "history", "        for _, id in old:\n", "        for _, id in ():\n"
    ),
    in_theme(
        "audit",
        "entries go a millisecond early",
        "history",
        "now - AUDIT_KEPT_FOR)",
        "now - AUDIT_KEPT_FOR + AUDIT_KEPT_FOR.resolution)",
    ),
    in_theme("audit", "all old entries go at once", "history", ", MAX_FORGOTTEN_ENTRIES)", ", 10**9)"),
    in_theme("audit", "by is ignored", "queries", "entry.by == self.by", "True"),
    in_theme("audit", "by is a prefix", "queries", "entry.by == self.by", "entry.by.startswith(self.by)"),
    FeatureMutant(
        "audit",
        Mutant(
            "the audit from behind a moment",
            (
                Edit("history", "0 if wanted.since is None else self._before(wanted.since)", "0"),
                Edit("queries", "entry.at >= self.since", "entry.at > self.since"),
            ),
        ),
    ),
    FeatureMutant(
        "audit",
        Mutant(
            "the audit up to and with a moment",
            (
                Edit(
                    "history",
                    "len(self._places) if wanted.until is None else self._before(wanted.until)",
                    "len(self._places)",
                ),
                Edit("queries", "entry.at < self.until", "entry.at <= self.until"),
            ),
        ),
    ),
    in_theme(
        "audit",
        "the audit shows an entry twice",
        "history",
        "bisect_left(self._places, wanted.after))",
        "bisect_left(self._places, wanted.after) + 1)",
    ),
    in_theme(
        "audit",
        "an audit that was cut has no cursor",
        "history",
        "            if end - 1 - index == MAX_SCANNED_AUDIT:\n"
        "                return AuditPage(tuple(items), encode_place(*self._places[index + 1]))\n",
        "            if end - 1 - index == MAX_SCANNED_AUDIT:\n                return AuditPage(tuple(items))\n",
    ),
    in_theme("audit", "entries out of bounds are stored", "driver", "        check_audit(entries)\n", ""),
)

ALL = (*ATTEMPTS, *NOTES, *KEEP_FOR, *FILTERS, *UPCOMING, *HEADS, *AMEND, *STEPS, *FLOWS, *FIGURES, *SEEN, *AUDIT)

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
    "requeue ignores seen",
    "cancel ignores seen",
    "delete ignores seen",
    "deliveries of a job are not compared with what was seen",
    "edits of a job are not compared with what was seen",
    "finished_at of a job are not compared with what was seen",
    "an entry is stored beside the one before",
}
FOR_THE_MACHINE = tuple(each.mutant for each in ALL if each.mutant.name in _LOSES)
assert len(FOR_THE_MACHINE) == len(_LOSES)
