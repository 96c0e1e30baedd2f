"""One odd ending: everything that happens to a job between its handler's end and its outcome, drawn as plain data."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from hypothesis import strategies as st

from taskharbor.events import Event
from taskharbor.policy.retry import RETRY_KEY, UNRECOVERABLE_KEY
from taskharbor.tasks.failure_step import ON_FAILURE_KEY
from taskharbor.tasks.flow_metadata import BIND_KEY, DEPTH_KEY, ROLE_KEY, SHAPE_KEY
from tests.odd_endings.hostile import ANSWERS, ERRORS, Thing, build, build_class, exceptions, values, words

EVENTS = words(
    "JobReserved JobStarted JobProgress JobFailed PolicyFailed JobSucceeded JobRetried JobDeadLettered JobSnoozed "
    "JobCancelled OutcomeRefused WorkerStarted WorkerStopping WorkerStopped"
)
TROUBLES = words("begin commit rollback abort")
MARKS = (RETRY_KEY, UNRECOVERABLE_KEY, ON_FAILURE_KEY, BIND_KEY, SHAPE_KEY, DEPTH_KEY, ROLE_KEY)


class Layer(msgspec.Struct, frozen=True):
    """Middleware: it raises `error` before or after the rest, or passes it on, or returns `value` in its place."""

    before: Thing | None = None
    after: Thing | None = None
    value: Thing | None = None


class Around(msgspec.Struct, frozen=True):
    """Call middleware: the errors that it raises before and after the call; nothing: none."""

    enter: str = ""
    exit: str = ""


class Ending(msgspec.Struct, frozen=True):
    """What the handler does, and what the code around it does."""

    colour: str = "coroutine"
    returns: Thing | None = None
    inside: str = "bare"  # what the returned value is in: bare, a list, a dict or a tuple
    raises: Thing | None = None
    layers: tuple[Layer, ...] = ()
    around: tuple[Around, ...] = ()
    opens: bool = False  # a transaction, and holds it to its end
    troubles: dict[str, str] = {}  # begin, commit, rollback, abort → the error that the transaction raises then
    observer: dict[str, str] = {}  # event → the error that the observer raises for it
    wants: str = ""  # the error that it raises when the worker reads what it wants
    policy: str = ""  # `raise X`, `answer X` (returns X), or nothing: an hour
    answers: Thing | None = None  # what the policy returns
    unrecoverable: Thing | None = None  # a class
    callback: str = ""  # what a function given to ctx.cancelled.subscribe raises, when the job times out
    progress: Thing | None = None  # what ctx.progress gets
    marks: dict[str, str] = {}


class Observer:
    """Raises when it gets an event, or when the worker reads what it wants."""

    def __init__(self, ending: Ending) -> None:
        self._raises = ending.observer
        self._wants = ending.wants

    def wants(self, event_type: type[Event]) -> bool:
        if self._wants:
            raise ERRORS[self._wants]("c4n4ry")
        return True

    def __call__(self, event: Event) -> None:
        name = self._raises.get(type(event).__name__)
        if name is not None:
            raise ERRORS[name]("c4n4ry")


def retry_of(ending: Ending) -> Any:
    """The retry policy of the worker."""

    def policy(attempts: int, error: BaseException) -> Any:
        what, _, which = ending.policy.partition(" ")
        if what == "raise":
            raise ERRORS[which]("c4n4ry")
        if ending.answers is not None:
            return build(ending.answers)
        return ANSWERS[which] if what == "answer" else 3600

    return policy


def kinds_of(ending: Ending) -> tuple[type[BaseException], ...]:
    """What the handler declares as unrecoverable."""
    if ending.unrecoverable is None:
        return ()
    try:
        return (build_class(ending.unrecoverable),)
    except BaseException:  # not every mixture is a class
        return ()


def middleware_of(layer: Layer) -> Any:
    """A coroutine around the execution."""

    async def middleware(ctx: Any, call_next: Any) -> Any:
        if layer.before is not None:
            raise build(layer.before)
        result = await call_next(ctx)
        if layer.after is not None:
            raise build(layer.after)
        return result if layer.value is None else build(layer.value)

    return middleware


def call_middleware_of(around: Around) -> Any:
    """A context manager around the call."""

    @contextmanager
    def middleware(ctx: Any) -> Iterator[None]:
        if around.enter:
            raise ERRORS[around.enter]("c4n4ry")
        try:
            yield
        finally:
            if around.exit:
                raise ERRORS[around.exit]("c4n4ry")

    return middleware


def subscribe(ending: Ending, ctx: Any) -> None:
    """Leave a function behind that the worker calls when the job's time is over."""

    def callback() -> None:
        raise ERRORS[ending.callback]("c4n4ry")

    ctx.cancelled.subscribe(callback)


def end(ending: Ending, ctx: Any) -> Any:
    """What the handler does, as a coroutine or as a function."""
    if ending.progress is not None:
        ctx.progress(build(ending.progress), build(ending.progress), build(ending.progress))
    if ending.raises is not None:
        raise build(ending.raises)
    if ending.returns is None:
        return None
    value = build(ending.returns)
    return {"bare": value, "list": [value], "dict": {"key": value}, "tuple": (value, value)}[ending.inside]


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


def _maybe_not(strategy: st.SearchStrategy[Any], field: str) -> st.SearchStrategy[Any]:
    """A drawn value for a field, or its usual one."""
    default = next(each.default for each in msgspec.structs.fields(Ending) if each.name == field)
    return st.one_of(st.just({} if default is msgspec.NODEFAULT else default), strategy)


_errors = st.sampled_from(sorted(ERRORS))
_maybe_error = st.one_of(st.just(""), _errors)
NESTED = {
    BIND_KEY: '["x",…]',
    RETRY_KEY: '{"type":"Fixed","delay":1,"x":…}',
    ON_FAILURE_KEY: '[{"id":"x","type":"t","queue":"q","x":…}]',
    SHAPE_KEY: "…",
}
"""Where a mark may hold more than it should: the decoder goes on into it."""


def deep(depth: int) -> str:
    """JSON lists inside each other."""
    return "[" * depth + "]" * depth


_nested = st.builds(
    lambda key, depth: {key: NESTED[key].replace("…", deep(depth))},
    st.sampled_from(sorted(NESTED)),
    st.sampled_from([1, 99, 101, 1100, 2500]),
)
_texts = st.one_of(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
        max_leaves=5,
    ).map(lambda value: msgspec.json.encode(value).decode()),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20),
)

PARTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "result": {"returns": values, "inside": st.sampled_from(["bare", "list", "dict", "tuple"])},
    "exception": {"raises": exceptions},
    "middleware": {
        "layers": st.lists(st.builds(Layer, _maybe(exceptions), _maybe(exceptions), _maybe(values)), max_size=2).map(
            tuple
        )
    },
    "observer": {
        "observer": st.dictionaries(st.sampled_from(EVENTS), _errors, max_size=3),
        "wants": _maybe_error,
        "progress": _maybe(values),
    },
    "policy": {
        "raises": exceptions,
        "policy": st.one_of(_errors.map("raise {}".format), st.sampled_from(sorted(ANSWERS)).map("answer {}".format)),
        "answers": _maybe(values),
    },
    "unrecoverable": {"raises": exceptions, "unrecoverable": exceptions},
    "callback": {"callback": _errors},
    "call middleware": {
        "raises": _maybe(exceptions),
        "around": st.lists(st.builds(Around, _maybe_error, _maybe_error), min_size=1, max_size=2).map(tuple),
    },
    "transaction": {
        "opens": st.just(True),
        "troubles": st.dictionaries(st.sampled_from(TROUBLES), _errors, max_size=2),
        "returns": _maybe(values),
        "raises": _maybe(exceptions),
        "callback": _maybe_error,  # with one the job times out, in the middle of its transaction
    },
    "marks": {
        "raises": st.just(Thing("ValueError")),
        "marks": st.one_of(_nested, st.dictionaries(st.sampled_from(MARKS), _texts, min_size=1, max_size=1)),
    },
}
"""What may be odd, one part at a time. (All at once they hide each other: a handler behind middleware that raises is
never called.)"""

_colours = st.sampled_from(["coroutine", "function"])
parts = {name: st.builds(Ending, colour=_colours, **drawn) for name, drawn in PARTS.items()}
endings: st.SearchStrategy[Ending] = st.builds(
    Ending,
    colour=_colours,
    # A field of several parts is drawn as the first of them draws it: the later ones only need one of some kind.
    **{field: _maybe_not(drawn, field) for part in reversed(PARTS.values()) for field, drawn in part.items()},
)
