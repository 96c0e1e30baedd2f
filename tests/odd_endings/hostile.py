"""Objects that fail when code inspects them, described as plain data so that a test can draw, print and send them.

A `Thing` is a class that is made on the spot: what it derives from, which of its special methods misbehave and how, and
the same for its metaclass. Nothing of it exists before the handler builds it, so neither hypothesis nor pytest ever
touches one.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
from hypothesis import strategies as st

from taskharbor import Cancel, RetryLater, Snooze, Unrecoverable
from taskharbor.tasks.payload_errors import PayloadMismatch
from taskharbor.tasks.workflow import Workflow


class Unruly(BaseException):
    """An exception that no `except Exception` stops."""


def words(text: str) -> list[str]:
    """A list of names that is read more easily than one in quotes and commas."""
    return text.split()


ERRORS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        ValueError,
        AttributeError,
        RecursionError,
        MemoryError,
        StopIteration,
        Unruly,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        asyncio.CancelledError,
    )
}

ANSWERS: dict[str, Any] = {
    "None": None,
    "text": "c4n4ry",
    "number": -1,
    "NaN": float("nan"),
    "bytes": b"\xff",
    "list": [],
    "class": int,
    "object": SimpleNamespace(),
}

VALUES: dict[str, type] = {
    kind.__name__: kind for kind in (object, dict, list, tuple, set, str, bytes, int, float, timedelta, Workflow)
}

EXCEPTIONS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        Exception,
        BaseException,
        ValueError,
        OSError,
        StopIteration,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        asyncio.CancelledError,
        BaseExceptionGroup,
        Snooze,
        Cancel,
        RetryLater,
        Unrecoverable,
        PayloadMismatch,
    )
}

METHODS = words(
    "__getattr__ __getattribute__ __setattr__ __class__ __dict__ __doc__ __str__ __repr__ __format__ __len__ __iter__ "
    "__hash__ __eq__ __lt__ __gt__ __bool__ __int__ __float__ __index__ __bytes__ __contains__ __getitem__ __call__ "
    "__add__ __radd__ __neg__ __reduce__ __reduce_ex__ __getstate__ __await__ __next__ __enter__ __exit__ keys items "
    "total_seconds _compile model_dump __dataclass_fields__ __struct_fields__ __attrs_attrs__ __notes__ __cause__ "
    "__context__ __traceback__ __suppress_context__ exceptions args reason delay with_traceback add_note errors"
)

META_METHODS = words(
    "__getattribute__ __instancecheck__ __subclasscheck__ __hash__ __eq__ __name__ __qualname__ __module__ __mro__ "
    "__str__ __repr__ __format__ __bool__ __call__ mro"
)

ATTRIBUTES = words(
    "__class__ __dict__ __doc__ __notes__ __cause__ __context__ __traceback__ __suppress_context__ exceptions args "
    "reason delay __dataclass_fields__ __struct_fields__ __attrs_attrs__ __name__ __qualname__ __module__ "
    "__mro__"
)
"""What is read, not called: made properties, so that reading them fails."""


class Thing(msgspec.Struct, frozen=True):
    """A class to be made, and the one instance of it. `deeds`: method → `raise X` or `answer X`."""

    base: str = "object"
    deeds: dict[str, str] = {}
    meta: dict[str, str] = {}
    cause: "Thing | None" = None  # of an exception
    members: tuple["Thing", ...] = ()  # of a group


def build(thing: Thing, also: dict[str, Any] | None = None) -> Any:
    """The instance. What cannot be made (not every mixture is a class) is made without its metaclass, then plainly."""
    base = VALUES.get(thing.base) or EXCEPTIONS[thing.base]
    for deeds, meta in ((thing.deeds, thing.meta), (thing.deeds, {}), ({}, {})):
        try:
            return _connect(_instance(_class(base, deeds, meta, also or {}), thing), thing)
        except BaseException:
            continue
    raise AssertionError(f"{thing} cannot be built at all")


def build_class(thing: Thing) -> type[BaseException]:
    """The class of an exception, where types are expected and not instances."""
    made: type[BaseException] = _class(EXCEPTIONS[thing.base], thing.deeds, thing.meta, {})
    return made


def _class(base: type, deeds: dict[str, str], meta: dict[str, str], also: dict[str, Any]) -> Any:
    kind: Any = type(base)
    if meta:
        kind = type("Meta", (kind,), {name: _deed(name, deed) for name, deed in meta.items() if name != "mro"})
    return kind("Hostile", (base,), {**also, **{name: _deed(name, deed) for name, deed in deeds.items()}})


def _deed(name: str, deed: str) -> Any:
    what, _, which = deed.partition(" ")

    def act(*args: Any, **kwargs: Any) -> Any:
        if what == "raise":
            raise ERRORS[which]("c4n4ry")
        return ANSWERS[which]

    return property(act) if name in ATTRIBUTES else act


def _instance(kind: Any, thing: Thing) -> Any:
    """Past the metaclass and the class: both may refuse to be called."""
    base = VALUES.get(thing.base) or EXCEPTIONS[thing.base]
    if base is BaseExceptionGroup:
        members = [build(member) for member in thing.members] or [ValueError("c4n4ry")]
        return base.__new__(kind, "a group", members)
    if issubclass(base, BaseException):
        return base.__new__(kind, "c4n4ry")
    if base is timedelta:
        return timedelta.__new__(kind, seconds=90)
    return base.__new__(kind, 90) if base in (int, float) else base.__new__(kind)


def _connect(made: Any, thing: Thing) -> Any:
    if thing.cause is not None and issubclass(type(made), BaseException):
        BaseException.__dict__["__cause__"].__set__(made, build(thing.cause))
    return made


def deeds(names: list[str]) -> st.SearchStrategy[dict[str, str]]:
    """Some of these methods, each with something to do."""
    acts = st.one_of(
        st.sampled_from(sorted(ERRORS)).map(lambda name: f"raise {name}"),
        st.sampled_from(sorted(ANSWERS)).map(lambda name: f"answer {name}"),
    )
    return st.dictionaries(st.sampled_from(names), acts, max_size=4)


def _things(bases: list[str]) -> Callable[..., st.SearchStrategy[Thing]]:
    def made(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Thing]:
        meta: st.SearchStrategy[dict[str, str]] = st.one_of(st.just({}), deeds(META_METHODS))
        return st.builds(Thing, base=st.sampled_from(bases), deeds=deeds(METHODS), meta=meta, **parts)

    return made


values: st.SearchStrategy[Thing] = _things(sorted(VALUES))()
_plain_exceptions = _things(sorted(EXCEPTIONS))()
exceptions: st.SearchStrategy[Thing] = _things(sorted(EXCEPTIONS))(
    cause=st.one_of(st.none(), _plain_exceptions), members=st.lists(_plain_exceptions, max_size=2).map(tuple)
)
