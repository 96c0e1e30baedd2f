"""A flow as lines of text: a tree of steps, and under a dead step why it died."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias

from taskharbor.cli.output import GAP, cut_front, display_width, in_colour, style
from taskharbor.drivers.base import CANCELLED_REASON, FLOW_CANCELLED_REASON
from taskharbor.model.job import JobInfo, State
from taskharbor.ops.flow_view import FlowRow
from taskharbor.ops.job_view import tries_of
from taskharbor.store.ids import short_ids
from taskharbor.store.redaction import HIDDEN
from taskharbor.store.text import first_line, format_duration, one_line

MAX_ROWS = 100
MAX_DEPTH = 8  # to which steps are indented
MAX_REASONS = 3  # under a row of several jobs
MAX_REASON_LINES = 3
MIN_NAME_CHARS = 8
MIN_TEXT_CHARS = 20
STATE_WIDTH = len("cancelled")

Branch: TypeAlias = tuple[str, str]
"""What stands before a step, and before what is said about it below."""


def tree_lines(rows: Sequence[FlowRow], took: dict[str, timedelta | None], width: int | None) -> list[str]:
    """The tree, fitted to a terminal of this width; None: for a pipe, with whole ids."""
    shown = rows[:MAX_ROWS]
    named = [info.job.id for row in shown for info in (*row.jobs[:1], *row.failed[:MAX_REASONS])]
    branches = _branches(shown)
    for ids in (dict(zip(named, named, strict=True)), dict(zip(named, short_ids(named), strict=True))):
        cells = [_cells(row, took, ids) for row in shown]
        sizes = [max((len(line[at]) for line in cells), default=0) for at in range(3)]
        room = None if width is None else width - STATE_WIDTH - sum(sizes) - 4 * len(GAP)
        names = [_name(row, branch[0], None) for row, branch in zip(shown, branches, strict=True)]
        widest = max(map(display_width, names), default=0)
        if room is None or widest <= room:
            break
    else:
        names = [_name(row, branch[0], room) for row, branch in zip(shown, branches, strict=True)]
        widest = max(map(display_width, names), default=0)
    lines: list[str] = []
    for row, name, branch, (tries, span, id) in zip(shown, names, branches, cells, strict=True):
        padded = name + " " * (widest - display_width(name))
        if len(row.jobs) > 1:
            lines.append(GAP.join((padded, ", ".join(_count(state, n) for state, n in row.states.items()))))
        else:
            state = row.jobs[0].state.value
            gap = " " * (STATE_WIDTH - len(state))
            facts = (padded, in_colour(state) + gap, f"{tries:<{sizes[0]}}", f"{span:>{sizes[1]}}", style(id, dim=True))
            lines.append(GAP.join(facts).rstrip())
        for text in _below(row, ids):
            lines += [style(line, dim=True) for line in _wrapped(branch[1], text, width)]
    return lines


def _cells(row: FlowRow, took: dict[str, timedelta | None], ids: dict[str, str]) -> tuple[str, str, str]:
    if len(row.jobs) > 1:
        return "", "", ""
    (info,) = row.jobs
    span = took.get(info.job.id)
    limit = f"/{info.job.max_attempts}" if info.job.max_attempts else ""
    return f"{tries_of(info)}{limit}", "" if span is None else format_duration(span), ids[info.job.id]


def _name(row: FlowRow, before: str, room: int | None) -> str:
    number = f"{len(row.jobs)} × " if len(row.jobs) > 1 else ""
    note = " (on failure)" if row.is_failure_step else ""
    name = one_line(row.name)
    if room is not None:
        name = cut_front(name, max(room - display_width(before + number + note), MIN_NAME_CHARS))
    return f"{before}{number}{name}{note}"


def _below(row: FlowRow, ids: dict[str, str]) -> list[str]:
    """What is said below a row: what it waits for if that is several steps, and why it failed."""
    lines = []
    if row.after and any(info.state is State.BLOCKED for info in row.jobs):
        lines.append(f"waits for {', '.join(map(one_line, row.after))}")
    reasons = [(info, _why(info)) for info in row.failed]
    reasons = [(info, why) for info, why in reasons if why]
    for info, why in reasons[:MAX_REASONS]:
        lines.append(f"{ids[info.job.id]} {why}" if len(row.jobs) > 1 else why)
    left = len(reasons) - MAX_REASONS
    if left > 0:
        lines.append(f"and {left} more like these")
    return lines


def _why(info: JobInfo) -> str:
    """Why a job died or was cancelled; empty where that says no more than its state."""
    if info.state is State.DLQ:
        return HIDDEN.why(info.job) or "no reason is shown"
    reason = first_line(HIDDEN.errors(info.job)[0])
    return "" if reason in ("", CANCELLED_REASON, FLOW_CANCELLED_REASON) else reason


def _count(state: State, number: int) -> str:
    return in_colour(f"{number} {state.value}", state.value)


def _wrapped(before: str, text: str, width: int | None) -> list[str]:
    """A text below a row; on a terminal over a few lines, if it is long."""
    if width is None:
        return [before + text]
    room = max(width - len(before), MIN_TEXT_CHARS)
    lines = textwrap.wrap(text, room, max_lines=MAX_REASON_LINES, placeholder=" …", break_on_hyphens=False)
    return [before + line for line in lines]


def _branches(rows: Sequence[FlowRow]) -> list[Branch]:
    """The lines of the tree before each row and before what is said below it."""
    found: list[Branch] = []
    later: set[int] = set()  # the depths of the rows below that nothing less deep comes before
    for row in reversed(rows):
        depth = min(row.depth, MAX_DEPTH)
        child = "│  " if depth + 1 in later else "   "
        later = {each for each in later if each <= depth}
        rails = "".join("│  " if each in later else "   " for each in range(1, depth))
        own, under = ("", "") if not depth else ("├─ ", "│  ") if depth in later else ("└─ ", "   ")
        found.append((rails + own, rails + under + child))
        later.add(depth)
    return found[::-1]
