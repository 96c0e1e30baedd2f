"""What a workflow writes into its jobs, so that a worker knows what to do without knowing the workflow.

`taskharbor.bind` on a step: which parameter receives the results of what came before, and how they are nested.
`taskharbor.shape` on a join: the same for the list that a join stands for. `taskharbor.depth` on a job that a running
job brought into being: how many of them stand above it. Results are taken from `depends_on`, from the left.
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

JOIN_SUFFIX = ".join"
"""How the id of a join ends: who reads results need not ask the store about all others."""

MAX_DEPTH = 100
"""How deep workflows nest: parts inside parts, and jobs that return workflows whose jobs return workflows."""

MAX_BOUND = 16 * 1024 * 1024
"""How many bytes of results one job may receive."""

Shape: TypeAlias = int | list[Any] | None
"""One result (None), a list of so many (a number), or a list of shapes."""


class Bind(msgspec.Struct, frozen=True, array_like=True):
    """The mark of a step that receives results."""

    into: str
    shape: Any = None


T = TypeVar("T")

_bind: msgspec.json.Decoder[Bind] = msgspec.json.Decoder(Bind)
_shape: msgspec.json.Decoder[int | list[Any] | None] = msgspec.json.Decoder(int | list[Any] | None)


def check_type(name: str) -> None:
    """InvalidJob for a type that no task and no request may have: a worker would take the job for one of core's own."""
    check_name(name, "type")
    if name.startswith(RESERVED):
        raise InvalidJob(f"type: names that begin with {RESERVED!r} belong to the core, got {name!r}; give another")


def read_mark(decoder: msgspec.json.Decoder[T], text: str) -> T:
    """What a mark says, or ValueError. Another program may have written it: without an end, or larger than memory."""
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except MemoryError:
        raise ValueError("it is too large") from None


def may_be_join(id: str) -> bool:
    """Whether this may be the id of a join. Ids may be given by anybody, so only the type of its record says that."""
    return id.endswith(JOIN_SUFFIX)


def write_bind(into: str, shape: Shape) -> str:
    """The mark as text.

    >>> write_bind("rows", [2, None])
    '["rows",[2,null]]'
    """
    return msgspec.json.encode(Bind(into, shape)).decode()


def read_bind(text: str) -> Bind:
    """The mark that `write_bind` wrote, or ValueError."""
    return read_mark(_bind, text)


def write_shape(shape: Shape) -> str:
    """A shape as text."""
    return msgspec.json.encode(shape).decode()


def shape_of(join: JobRecord) -> Shape:
    """The shape of a join's result; without a mark that can be read, the list of all that it waited for."""
    text = join.metadata.get(SHAPE_KEY, "")
    try:
        shape = read_mark(_shape, text)
        if taken(shape) <= len(join.depends_on):
            return shape
    except ValueError:  # there is none, or another program wrote it
        pass
    return len(join.depends_on)


def depth_of(job: JobRecord) -> int:
    """How many jobs that returned a workflow stand above this one."""
    text = job.metadata.get(DEPTH_KEY, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else MAX_DEPTH


def taken(shape: Any, depth: int = 0) -> int:
    """How many results a shape takes; ValueError if it is none."""
    if shape is None:
        return 1
    if isinstance(shape, int) and not isinstance(shape, bool) and shape >= 0:
        return shape
    if isinstance(shape, list):
        if depth > MAX_DEPTH:
            raise ValueError(f"shape: expected lists nested at most {MAX_DEPTH} deep")
        return sum(taken(each, depth + 1) for each in shape)
    raise ValueError("shape: expected null, a number or a list of shapes")
