"""The metadata of the jobs of a workflow: from it a worker knows what to do without knowing the workflow.

`taskharbor.bind` on a step: which parameter receives the results of the jobs before it, and how they are nested.
`taskharbor.shape` on a join: how the list that the join stands for is nested. `taskharbor.depth` on a job that a
returned workflow created: how many such jobs stand above it. Results are taken from `depends_on`, from the left.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import msgspec

from taskharbor.model.bounds import check_name
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord

RESERVED = "taskharbor."
"""Job types and metadata keys that begin with this belong to core."""

BIND_KEY = "taskharbor.bind"
SHAPE_KEY = "taskharbor.shape"
DEPTH_KEY = "taskharbor.depth"
ROLE_KEY = "taskharbor.role"
ON_FAILURE_ROLE = "on_failure"

JOIN_TYPE = "taskharbor.join"
"""The built-in type of the job that closes what ends in several jobs. Nothing runs, and no result is stored."""

LAUNCH_TYPE = "taskharbor.launch"
"""The built-in type of the job that starts a scheduled workflow."""

JOIN_SUFFIX = ".join"
"""The end of a join's id: a reader of results need not inspect jobs with other ids."""

MAX_DEPTH = 100
"""How deep workflows nest: parts inside parts, and jobs that return workflows whose jobs return workflows."""

MAX_RESULTS_BYTES = 16 * 1024 * 1024
"""Bytes of results that one job may receive."""

Shape: TypeAlias = int | list[Any] | None
"""One result (None), a list of that many results (a number), or a list of shapes."""


class Bind(msgspec.Struct, frozen=True, array_like=True):
    """The metadata of a step that receives results."""

    into: str
    shape: Any = None


T = TypeVar("T")

_bind: msgspec.json.Decoder[Bind] = msgspec.json.Decoder(Bind)
_shape: msgspec.json.Decoder[int | list[Any] | None] = msgspec.json.Decoder(int | list[Any] | None)


def check_type(name: str) -> None:
    """InvalidJob for a reserved type: a worker would take the job for one of core's own."""
    check_name(name, "type")
    if name.startswith(RESERVED):
        raise InvalidJob(f"type: names that begin with {RESERVED!r} belong to the core, got {name!r}; give another")


def read_metadata(decoder: msgspec.json.Decoder[T], text: str) -> T:
    """Decode an entry, or ValueError. Another program may have written it: nested too deeply, or larger than memory."""
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except MemoryError:
        raise ValueError("it is too large") from None


def may_be_join(id: str) -> bool:
    """Whether this may be the id of a join. A caller may choose any id, so only the type of the record is certain."""
    return id.endswith(JOIN_SUFFIX)


def write_bind(into: str, shape: Shape) -> str:
    """The entry as text.

    >>> write_bind("rows", [2, None])
    '["rows",[2,null]]'
    """
    return msgspec.json.encode(Bind(into, shape)).decode()


def read_bind(text: str) -> Bind:
    """The entry that `write_bind` wrote, or ValueError."""
    return read_metadata(_bind, text)


def write_shape(shape: Shape) -> str:
    """A shape as text."""
    return msgspec.json.encode(shape).decode()


def shape_of(join: JobRecord) -> Shape:
    """The shape of a join's result; without a readable entry, the list of all jobs that it waited for."""
    text = join.metadata.get(SHAPE_KEY, "")
    try:
        shape = read_metadata(_shape, text)
        if taken(shape) <= len(join.depends_on):
            return shape
    except ValueError:  # there is none, or another program wrote it
        pass
    return len(join.depends_on)


def depth_of(job: JobRecord) -> int:
    """The number of jobs above this one that returned a workflow."""
    text = job.metadata.get(DEPTH_KEY, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else MAX_DEPTH


def taken(shape: Any, depth: int = 0) -> int:
    """The number of results in a shape; ValueError if it is not a shape."""
    if shape is None:
        return 1
    if isinstance(shape, int) and not isinstance(shape, bool) and shape >= 0:
        return shape
    if isinstance(shape, list):
        if depth > MAX_DEPTH:
            raise ValueError(f"shape: expected lists nested at most {MAX_DEPTH} deep")
        return sum(taken(each, depth + 1) for each in shape)
    raise ValueError("shape: expected null, a number or a list of shapes")
