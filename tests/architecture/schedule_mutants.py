"""Deliberate mistakes in the schedules of the memory driver, each with the theme whose cases notice it."""

from tests.architecture.feature_mutants import FeatureMutant, in_theme

COMPARE = "    if (None if row is None else row.revision) != change.expect:\n"
ENQUEUE = "    enqueue(store, change.jobs, now, max_payload)\n"
REPEAT = "        return True  # the reply to the same change was lost\n"
LOCK = "        with self._changing() as store:\n"
CALL = "            return change_schedules(store, changes, now, self._max_payload)\n"
ADD_PLACE = "insort(store.schedule_places.setdefault(row.queue, []), (row.next_at, row.name))"


def rows(name: str, old: str, new: str) -> FeatureMutant:
    return in_theme("schedules", name, "schedules", old, new)


def jobs(name: str, old: str, new: str) -> FeatureMutant:
    return in_theme("schedule_jobs", name, "schedules", old, new)


def pages(name: str, old: str, new: str) -> FeatureMutant:
    return in_theme("schedule_pages", name, "schedules", old, new)


def verbs(name: str, old: str, new: str) -> FeatureMutant:
    return in_theme("schedule_pages", name, "base", old, new)


CHANGES = (
    rows("the revision is not compared", COMPARE, "    if False:\n"),
    rows(
        "what must be absent is not compared",
        COMPARE,
        "    if change.expect is not None and (None if row is None else row.revision) != change.expect:\n",
    ),
    rows(
        "a row that is absent is never refused", COMPARE, "    if row is not None and row.revision != change.expect:\n"
    ),
    rows("the name decides instead of the revision", COMPARE, "    if (row is None) != (change.expect is None):\n"),
    rows(
        "a repeat is refused",
        "    if row is not None and to is not None and row.revision == to.revision:\n",
        "    if False:\n",
    ),
    rows("a repeat replaces the row", REPEAT, "        store.schedules[to.name] = to\n        return True\n"),
    rows(
        "a deletion that is repeated is refused",
        "    if row is None and to is None:\n        return True\n",
        "    if row is None and to is None:\n        return change.expect is None\n",
    ),
    rows(
        "a name is unique in its queue only",
        "    if row is None and to is None:\n",
        "    if row is not None and to is not None and change.expect is None and row.queue != to.queue:\n"
        "        row = None\n"
        "    if row is None and to is None:\n",
    ),
    rows(
        "the place in the old queue stays",
        "        _remove(store, row)\n",
        "        _remove(store, row)\n"
        "        if to is not None and row.next_at is not None and row.queue != to.queue:\n"
        "            " + ADD_PLACE + "\n",
    ),
    rows(
        "a row stays in its queue",
        "        _add(store, to)\n",
        "        from msgspec.structs import replace\n"
        "        _add(store, to if row is None else replace(to, queue=row.queue))\n",
    ),
    rows(
        "the last change first",
        "    return [_change(store, change, now, max_payload) for change in changes]\n",
        "    return [_change(store, change, now, max_payload) for change in reversed(changes)][::-1]\n",
    ),
    rows(
        "a refused change ends the call",
        "    return [_change(store, change, now, max_payload) for change in changes]\n",
        "    results = []\n"
        "    for change in changes:\n"
        "        results.append(False not in results and _change(store, change, now, max_payload))\n"
        "    return results\n",
    ),
    in_theme(
        "schedules",
        "a schedule makes its queue known",
        "reading",
        "    return sorted(name for name, queue in store.queues.items() if queue.paused or queue.entries)\n",
        "    found = {name for name, queue in store.queues.items() if queue.paused or queue.entries}\n"
        "    return sorted(found.union(store.schedule_places))\n",
    ),
    in_theme(
        "schedules",
        "schedules of a paused queue are not due",
        "schedules",
        "        places = store.schedule_places.get(queue, [])\n",
        "        known = store.queues.get(queue)\n"
        "        places = [] if known and known.paused else store.schedule_places.get(queue, [])\n",
    ),
    in_theme(
        "races",
        "compared first, changed then",
        "driver",
        LOCK + CALL,
        "        rows = dict(self.store.schedules)\n"
        "        if any(change.expect and change.expect != rows[change.name].revision for change in changes):\n"
        "            return [False for _ in changes]\n"
        "        import asyncio\n"
        "        from msgspec.structs import replace\n"
        "        await asyncio.sleep(0)\n" + LOCK + "            changes = [\n"
        "                replace(change, expect=known.revision if known else None)\n"
        "                for change in changes\n"
        "                for known in [self.store.schedules.get(change.name)]\n"
        "            ]\n" + CALL,
    ),
)

JOBS = (
    jobs("jobs before the compare", COMPARE, ENQUEUE + COMPARE),
    jobs("a repeat stores its jobs again", REPEAT, "    " + ENQUEUE + REPEAT),
    jobs("a change stores no job", ENQUEUE, ""),
    jobs("a change stores one job", ENQUEUE, "    enqueue(store, change.jobs[:1], now, max_payload)\n"),
    jobs("jobs are stored one by one, the last first", ENQUEUE, ENQUEUE.replace("change.jobs", "change.jobs[::-1]")),
    jobs(
        "a known job refuses the change",
        ENQUEUE,
        "    if any(each.existed for each in enqueue(store, change.jobs, now, max_payload)):\n        return False\n",
    ),
    jobs(
        "jobs of a known id keep the row",
        ENQUEUE,
        "    if any(each.existed for each in enqueue(store, change.jobs, now, max_payload)):\n        return True\n",
    ),
    jobs("what is out of bounds is stored", "    check_schedule_changes(changes, max_payload)\n", ""),
    jobs(
        "bounds are checked one by one",
        "    check_schedule_changes(changes, max_payload)\n"
        "    return [_change(store, change, now, max_payload) for change in changes]\n",
        "    results = []\n"
        "    for change in changes:\n"
        "        check_schedule_changes([change], max_payload)\n"
        "        results.append(_change(store, change, now, max_payload))\n"
        "    return results\n",
    ),
    in_theme(
        "schedule_jobs",
        "a change wakes no wait",
        "driver",
        LOCK + CALL,
        "        with self.store.lock:\n" + CALL.replace("(store", "(self.store"),
    ),
)

DUE_NOW = "bisect_right(places, wanted.now, key=itemgetter(0))"
AHEAD = "        if last < len(places):\n"
FOUND = "islice(merge(*lines), wanted.limit + 1)"

PAGES = (
    pages(
        "names in the order of arrival", "insort(store.schedule_names, row.name)", "store.schedule_names += [row.name]"
    ),
    pages("the queue is ignored", "if wanted.queue in (None, row.queue)", "if True"),
    pages("names are ignored", "if wanted.names is None else wanted.names", "if True else []"),
    pages("the last row again", "bisect_right(names, wanted.after)", "bisect_left(names, wanted.after)"),
    pages("a row is left out between pages", "encode_schedule(found[-2].name)", "encode_schedule(found[-1].name)"),
    pages("a full page is the last", "len(found) <= wanted.limit:", "len(found) <= wanted.limit + 1:"),
    pages("all are due", DUE_NOW, "len(places)"),
    pages("due a millisecond late", DUE_NOW, DUE_NOW.replace("bisect_right", "bisect_left")),
    pages("due in the order of arrival", ADD_PLACE, ADD_PLACE.replace("insort(", "list.append(")),
    pages("due queue after queue", FOUND, FOUND.replace("merge(*lines)", "sum(lines, [])")),
    pages(
        "of one moment the last name first",
        f"list({FOUND})",
        f"sorted({FOUND}, key=lambda place: (place[0], [-ord(letter) for letter in place[1]]))",
    ),
    pages("the last due row again", "bisect_right(places, wanted.after)", "bisect_left(places, wanted.after)"),
    pages(
        "behind a moment instead of a row",
        "bisect_right(places, wanted.after)",
        "bisect_right(places, wanted.after[0], key=itemgetter(0))",
    ),
    pages(
        "a full page of due rows is the last",
        "    if len(found) > wanted.limit:\n",
        "    if len(found) > wanted.limit + 1:\n",
    ),
    pages(
        "a row without next_at is due",
        "    if row.next_at is not None:\n        " + ADD_PLACE,
        "    if True:\n"
        "        from taskharbor.model.job import EPOCH\n"
        "        " + ADD_PLACE.replace("row.next_at", "row.next_at or EPOCH"),
    ),
    pages("the last that comes next", "places[last][0] if upcoming is None", "places[-1][0] if upcoming is None"),
    pages("the last queue's next", "min(upcoming, places[last][0])", "max(upcoming, places[last][0])"),
    pages("nothing comes next behind a cursor", AHEAD, "        if last < len(places) and wanted.after is None:\n"),
    pages("nothing comes next beside what is due", AHEAD, "        if last == 0 and places:\n"),
    verbs(
        "a page of any size",
        "ScheduleQuery(asked, queue, after, min(limit, MAX_SCHEDULES_PER_PAGE))",
        "ScheduleQuery(asked, queue, after, limit)",
    ),
    verbs(
        "a page of any size of due rows",
        "DueQuery(asked, now, after, min(limit, MAX_SCHEDULES_PER_PAGE))",
        "DueQuery(asked, now, after, limit)",
    ),
    verbs("a naive moment is taken", '        check_moment(now, "now")\n', ""),
    verbs("names are not sorted", "tuple(sorted(set(storable(names))))", "tuple(set(storable(names)))"),
    verbs("a queue that is named twice", "tuple(dict.fromkeys(storable(queues)))", "tuple(storable(queues))"),
)

ALL = (*CHANGES, *JOBS, *PAGES)

# Those that fire a slot twice or not at all.
_LOSES = {
    "the revision is not compared",
    "what must be absent is not compared",
    "a name is unique in its queue only",
    "the place in the old queue stays",
    "jobs before the compare",
    "a repeat stores its jobs again",
    "a repeat is refused",
    "all are due",
    "due a millisecond late",
    "nothing comes next behind a cursor",
    "behind a moment instead of a row",
}
FOR_THE_MACHINE = tuple(each.mutant for each in ALL if each.mutant.name in _LOSES)
assert len(FOR_THE_MACHINE) == len(_LOSES)
