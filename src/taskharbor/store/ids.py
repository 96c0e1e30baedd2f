"""Ids that a person types: the whole id, or a prefix of it that no other job has.

Only ids that TaskHarbor generated may be shortened. An id of the application's own is taken as it is typed: `order-17`
may be an id as well as the beginning of `order-170`, and a command must not change a job that was not meant.

A prefix costs two calls: one for a job with exactly this id, one for the few ids that follow it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from taskharbor.drivers.base import Driver
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.model.errors import FeatureMissing, JobNotFound
from taskharbor.model.job import JobInfo
from taskharbor.tasks.flow_metadata import JOIN_SUFFIX

MIN_PREFIX_CHARS = 4
MAX_CANDIDATES = 5  # that the error for an ambiguous prefix names
SHORTEST_SHOWN_CHARS = 12  # of an id in a table: 10 of them are its millisecond
SPARE_CHARS = 2  # shown beyond what tells the ids of a page apart, because the store holds others

_CHARS = "0-9A-HJKMNP-TV-Z"
_GENERATED = re.compile(rf"[{_CHARS}]{{26}}({re.escape(JOIN_SUFFIX)})?").fullmatch
_TOO_SHORT = re.compile(rf"0[{_CHARS}]{{0,{MIN_PREFIX_CHARS - 2}}}", re.ASCII | re.IGNORECASE).fullmatch
_PREFIX = re.compile(rf"[{_CHARS}]{{{MIN_PREFIX_CHARS},25}}", re.ASCII | re.IGNORECASE).fullmatch


class AmbiguousId(JobNotFound):
    """Several jobs or flows begin with what was typed."""


def is_prefix(text: str) -> bool:
    """Whether a text can be a shortened id.

    >>> is_prefix("01M7HG69PC"), is_prefix("01M"), is_prefix("order-17")
    (True, False, False)
    """
    return _PREFIX(text) is not None


async def find_job(driver: Driver, typed: str, now: datetime) -> JobInfo:
    """The job with this id, or the only one whose generated id begins with it; JobNotFound, AmbiguousId."""
    try:
        return await driver.inspect(typed, now)
    except JobNotFound as error:
        if _TOO_SHORT(typed):
            raise JobNotFound(f"{error}; a prefix of an id has at least {MIN_PREFIX_CHARS} characters") from None
        if not is_prefix(typed):
            raise
    found = await _jobs_from(driver, typed.upper(), now)
    if not found:
        raise JobNotFound(f"no job {typed}, and no job whose id begins with it")
    if len(found) > 1:
        raise _ambiguous(typed, "jobs", [f"{info.job.id} ({info.job.type}, {info.state})" for info in found])
    return await driver.inspect(found[0].job.id, now)


async def job_id(driver: Driver, typed: str, now: datetime) -> str:
    """The id that was meant. A text that cannot be a shortened id is not looked up: what uses it will say so."""
    return (await find_job(driver, typed, now)).job.id if is_prefix(typed) else typed


async def flow_id(driver: Driver, typed: str, now: datetime) -> str:
    """The id of the flow that was meant: by its own id, by that of a job in it, or by a prefix of either.

    A flow and its jobs are created together, so their ids begin alike. That is not ambiguous; two flows are.
    """
    page = await driver.list(flow_id=typed, now=now, limit=1, payloads=False)
    if page.items:
        return typed
    try:
        info = await driver.inspect(typed, now)
    except JobNotFound:
        info = None
    if info is not None:
        return _flow_of(info)
    found = await _flows_from(driver, typed.upper(), now) if is_prefix(typed) else {}
    if len(found) > 1:
        raise _ambiguous(typed, "flows", list(found))
    for id in found:
        return id
    also = ", and none whose id begins with it" if is_prefix(typed) else ""
    raise JobNotFound(f"no flow and no job has the id {typed}{also}")


def short_ids(ids: Sequence[str]) -> list[str]:
    """Ids as a narrow table shows them: prefixes that tell them apart. Ids of the application's own stay whole.

    >>> short_ids(["01M7HG69P849N38WGBK6M8KYDV", "01M7HG69PE168053F4SBDEHQSJ", "order-17"])
    ['01M7HG69P849', '01M7HG69PE16', 'order-17']
    """
    generated = sorted({id for id in ids if _GENERATED(id)})
    alike = max((_common(a, b) for a, b in pairwise(generated)), default=0)
    length = max(SHORTEST_SHOWN_CHARS, alike + 1 + SPARE_CHARS)
    return [id if length >= 26 or not _GENERATED(id) else id[:length] for id in ids]


async def _jobs_from(driver: Driver, prefix: str, now: datetime) -> list[JobInfo]:
    """The first jobs whose generated ids begin with a prefix: at most one more than an error names."""
    page = await driver.list(now=now, cursor=encode_cursor(prefix), limit=MAX_CANDIDATES + 1, payloads=False)
    return [info for info in page.items if info.job.id.startswith(prefix) and _GENERATED(info.job.id)]


async def _flows_from(driver: Driver, prefix: str, now: datetime) -> dict[str, None]:
    """The flows that a prefix may mean, by their own ids or by those of their jobs."""
    try:
        flows = (await driver.flows(now=now, cursor=encode_cursor(prefix), limit=MAX_CANDIDATES + 1)).items
    except FeatureMissing:
        flows = ()
    found = {flow.id: None for flow in flows if flow.id.startswith(prefix) and _GENERATED(flow.id)}
    jobs = await _jobs_from(driver, prefix, now)
    found |= {info.job.flow_id: None for info in jobs if info.job.flow_id is not None}
    if not found and len(jobs) == 1:
        _flow_of(jobs[0])
    return found


def _flow_of(info: JobInfo) -> str:
    if info.job.flow_id is None:
        raise JobNotFound(f"job {info.job.id} does not belong to a flow")
    return info.job.flow_id


def _ambiguous(typed: str, what: str, candidates: list[str]) -> AmbiguousId:
    more = ", …" if len(candidates) > MAX_CANDIDATES else ""
    named = ", ".join(candidates[:MAX_CANDIDATES])
    return AmbiguousId(f"{typed} is ambiguous; {what} that begin with it: {named}{more}")


def _common(a: str, b: str) -> int:
    """How many characters two ids begin with alike."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
