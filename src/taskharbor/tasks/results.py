"""Results of finished jobs as their dependents receive them: the result of a job, or for a join a nested list.

Reading takes one call for all plain jobs (in slices, so that at most one slice too much is in memory) and one for each
join among them, or, if there are many, a listing of the flow's joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from taskharbor.drivers.base import Driver
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import JobRecord
from taskharbor.tasks.flow_metadata import JOIN_TYPE, Shape, may_be_join, shape_of, taken

Tree: TypeAlias = bytes | list[Any] | None
"""Encoded results, nested as they are received."""

SLICE_JOBS = 1000
_MAX_INSPECTED_JOINS = 4  # with more of them a listing is cheaper


class TooMuch(Exception):
    """The results are larger than the limit of the reader."""


class NoResult(JobNotFound):
    """A job whose result is needed is not done, or its record is gone: `job_id`."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the result of job {job_id} is not there: its record is gone, or it is not done")
        self.job_id = job_id


class Results:
    """The results that were read so far: of `joins` their edges, of all others their bytes.

    What the store left out is not there, and asking for it raises NoResult: None is what a job returned.

    `limit`: the most bytes to read. Loading more raises TooMuch, at most one slice later.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._read = 0
        self.found: dict[str, bytes | None] = {}
        self.joins: dict[str, tuple[Shape, tuple[str, ...]]] = {}

    async def load(self, driver: Driver, ids: Iterable[str], now: datetime, flow_id: str | None = None) -> None:
        """Read the results of these jobs, and of those behind the joins among them, as far as the store has them."""
        wanted = self._unread(ids)
        while wanted:
            plain = [id for id in wanted if not may_be_join(id)]
            behind: dict[str, None] = {}
            records = await _records(driver, [id for id in wanted if may_be_join(id)], now, flow_id)
            for id, record in records.items():
                if record is not None and record.type == JOIN_TYPE:
                    behind.update(dict.fromkeys(self.join(record)))
                else:
                    plain.append(id)  # its id only looks like a join's, or its record is gone
            for start in range(0, len(plain), SLICE_JOBS):
                self._keep(await driver.results(plain[start : start + SLICE_JOBS]))
            wanted = self._unread(behind)

    def join(self, record: JobRecord) -> tuple[str, ...]:
        """Add a join; returns the jobs whose results it stands for."""
        shape = shape_of(record)
        members = record.depends_on[: taken(shape)]
        self.joins[record.id] = shape, members
        return members

    def _unread(self, ids: Iterable[str]) -> list[str]:
        return [id for id in dict.fromkeys(ids) if id not in self.found and id not in self.joins]

    def _keep(self, found: dict[str, bytes | None]) -> None:
        self.found.update(found)
        if self._limit is not None:
            self._read += sum(len(result) for result in found.values() if result is not None)
            if self._read > self._limit:
                raise TooMuch(f"more than {self._limit} bytes")

    def tree(self, shape: Shape, ids: Sequence[str]) -> Tree:
        """The results of these jobs, nested as the shape says; NoResult if one of them is not there."""
        return self._nest(shape, iter(ids))

    def _nest(self, shape: Any, ids: Iterator[str]) -> Tree:
        if shape is None:
            return self.of(next(ids))
        if isinstance(shape, int):
            return [self.of(next(ids)) for _ in range(shape)]
        return [self._nest(each, ids) for each in shape]

    def of(self, id: str) -> Tree:
        """The result of one job, or NoResult."""
        if (join := self.joins.get(id)) is not None:
            return self._nest(join[0], iter(join[1]))
        if id not in self.found:
            raise NoResult(id)
        return self.found[id]


async def _records(driver: Driver, ids: list[str], now: datetime, flow_id: str | None) -> dict[str, JobRecord | None]:
    """The records of jobs that may be joins: many by a listing of their flow, the others one by one.

    None for a record that is gone: it was deleted by force, because a store keeps what a job waits for.
    """
    records: dict[str, JobRecord | None] = {}
    if len(ids) > _MAX_INSPECTED_JOINS and flow_id is not None:
        cursor: str | None = None
        while True:
            page = await driver.list(flow_id=flow_id, type=JOIN_TYPE, cursor=cursor, limit=SLICE_JOBS, now=now)
            records.update((info.job.id, info.job) for info in page.items)
            cursor = page.cursor
            if cursor is None:
                break
    for id in ids:
        if id not in records:
            try:
                records[id] = (await driver.inspect(id, now)).job
            except JobNotFound:
                records[id] = None
    return {id: records[id] for id in ids}


def compose(codec: Codec, tree: Tree) -> bytes:
    """The results as one encoded value. JSON is concatenated from its pieces without decoding them."""
    return _json(tree) if type(codec) is JsonCodec else codec.encode(_value(codec, tree))


def complete(codec: Codec, payload: bytes, into: str, tree: Tree) -> bytes:
    """A payload with one more parameter; ValueError if it is not an object."""
    if type(codec) is not JsonCodec:
        given = codec.decode(payload)
        if not isinstance(given, dict):
            raise ValueError(f"the payload: expected an object, got {type(given).__name__}")
        return codec.encode({**given, into: _value(codec, tree)})
    text = payload.strip()
    if not (text.startswith(b"{") and text.endswith(b"}")):
        raise ValueError("the payload: expected an object, got something else")
    known = text[1:-1].strip()
    return b"{" + known + (b"," if known else b"") + codec.encode(into) + b":" + _json(tree) + b"}"


def _json(tree: Tree) -> bytes:
    if tree is None:
        return b"null"
    return tree if isinstance(tree, bytes) else b"[" + b",".join(map(_json, tree)) + b"]"


def _value(codec: Codec, tree: Tree) -> Any:
    if tree is None:
        return None
    return codec.decode(tree) if isinstance(tree, bytes) else [_value(codec, each) for each in tree]
