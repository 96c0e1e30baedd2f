"""A handler's parameters, from a call to bytes and back: a call is bound to them and encoded as one JSON object by
name; a payload is decoded and bound to the args and kwargs of the handler.

The parameter annotated `JobContext` and injected ones are not among them. `*args` is stored as a list and `**kwargs`
as an object, each under its own name. Annotations are resolved at the first use, so that they may name what is defined
further down.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from taskharbor.model.arrival import PLAIN, Comparison
from taskharbor.model.codec import Codec, type_name
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.migration_hints import OF_OPTIONS
from taskharbor.tasks.payload_check import Changed
from taskharbor.tasks.payload_errors import PayloadMismatch, describe
from taskharbor.tasks.payload_layout import Layout

_STRICT, _OF_JSON = Comparison(), Comparison(reads=True)

Bound: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""The args and kwargs to call a handler with."""

Assemble: TypeAlias = Callable[[tuple[Any, ...], JobContext, Mapping[str, Any]], Bound]
"""From the decoded payload, the context and injected values by name to the args and kwargs."""

_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


class Signature:
    """The parameters of one function, as jobs carry them."""

    def __init__(
        self, function: Callable[..., Any], codec: Codec, name: str | None = None, *, raw: bool = False
    ) -> None:
        self.function = function
        self.raw = raw  # whether its only argument is the payload's bytes
        self.codec = codec
        self.name: str = name or str(getattr(function, "__qualname__", type(function).__name__))
        self._layout: Layout | None = None
        self._comparison = _STRICT

    def of_json(self) -> Signature:
        """The same, for arguments that a person typed as JSON: bytes are base64 text there, and every key is text."""
        found = copy.copy(self)
        found._comparison = _OF_JSON
        return found

    @property
    def layout(self) -> Layout:
        """The parameters with their resolved types; made at the first use."""
        if self._layout is None:
            self._layout = Layout(self.function, self.codec, self.name, self.raw)
        return self._layout

    @property
    def return_type(self) -> Any:
        """What the function returns (for a coroutine: the awaited value); Any if it has no annotation."""
        return self.layout.return_type

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, partial: bool = False) -> dict[str, Any]:
        """The arguments of a call by name, or TypeError. `partial`: required ones may be left out."""
        layout = self._layout or self.layout
        if args:
            if layout.var_positional is None and len(args) > len(layout.positional):
                count = len(layout.positional)
                raise self._refuse(
                    f"expected at most {count} positional argument{'' if count == 1 else 's'}, got {len(args)}"
                )
            given = dict(zip(layout.positional, args, strict=False))
            if layout.var_positional is not None and len(args) > len(layout.positional):
                given[layout.var_positional] = list(args[len(layout.positional) :])
            if kwargs:
                if not given.keys().isdisjoint(kwargs):
                    twice = next(name for name in given if name in kwargs)
                    if twice not in layout.positional_only and twice != layout.var_positional:
                        raise self._refuse(f"parameter {twice!r} is given twice, by position and by name")
                given = self._by_name(layout, given, kwargs)
        else:
            given = self._by_name(layout, {}, kwargs) if kwargs else {}
        if not partial and not layout.required <= given.keys():
            self.complete(given)
        return given

    def complete(self, arguments: dict[str, Any]) -> None:
        """TypeError if a required parameter has no argument."""
        lacking = self.lacking(arguments)
        if lacking:
            raise self._refuse(f"missing parameter {', '.join(map(repr, lacking))}")

    def lacking(self, arguments: dict[str, Any]) -> tuple[str, ...]:
        """The required parameters that are not among the arguments, in the order of the signature."""
        layout = self.layout
        return tuple(name for name in layout.names if name in layout.required and name not in arguments)

    def encode(self, arguments: dict[str, Any], *, partial: bool = False) -> bytes:
        """The arguments as bytes, after a check that they arrive as they are, in the annotated types."""
        layout = self._layout or self.layout
        if partial and self.raw:
            raise self._refuse("raw=True: give the payload as bytes; it cannot receive the result of another step")
        try:
            data = layout.write(arguments)
            if layout.checks:
                self._check(layout, arguments)
            back: Any = (layout.read_partial if partial else layout.read_back)(data)
            trusted = layout.trusted
            if trusted:
                for name, value in arguments.items():
                    if type(value) not in trusted[name]:
                        self._compare(layout, arguments, msgspec.structs.astuple(back))
                        break
        except Changed as error:
            raise TypeError(f"{self.name}: {error}") from None
        except Exception as error:
            raise self._unfit(arguments, error) from None
        return data

    def decode(self, payload: bytes) -> dict[str, Any]:
        """The arguments of the annotated types by name, defaults filled in; PayloadMismatch if they do not fit."""
        values = self.values(payload)
        return dict(zip(self.layout.names, values, strict=True))

    def decode_partial(self, payload: bytes) -> dict[str, Any]:
        """The arguments of a payload that still lacks a parameter, by name: of a step that waits for results."""
        layout = self.layout
        try:
            given = layout.read_partial(payload)
        except Exception as error:
            raise PayloadMismatch(f"{self.name}: {describe(error, layout.names)}") from None
        if isinstance(given, dict):
            return given
        pairs = zip(layout.names, msgspec.structs.astuple(given), strict=True)
        return {name: value for name, value in pairs if value is not msgspec.UNSET}

    def values(self, payload: bytes) -> tuple[Any, ...]:
        """The same, as a tuple in the order of the signature."""
        layout = self._layout or self.layout
        try:
            return layout.read(payload)
        except Exception as error:
            return self.values_of_other_shape(payload, error)

    def checked_values(self, payload: bytes) -> tuple[Any, ...]:
        """The same; PayloadMismatch also for a value that **kwargs would put in the place of what the worker gives."""
        values, layout = self.values(payload), self.layout
        if layout.var_keyword is not None:
            rest = values[layout.names.index(layout.var_keyword)]
            for name in layout.from_worker:
                if name in rest:
                    raise PayloadMismatch(f"{self.name}: {self._taken(name)}")
        return values

    def values_of_other_shape(self, payload: bytes, error: Exception) -> tuple[Any, ...]:
        """The values of a payload that is not an object of the parameters: the only argument, or names that **kwargs
        collects; otherwise PayloadMismatch."""
        layout = self.layout
        try:
            raw = layout.read_any(payload)
        except Exception as unreadable:
            raise PayloadMismatch(f"{self.name}: the payload is {describe(unreadable, layout.names)}") from None
        try:
            if not isinstance(raw, dict):
                if (values := layout.only_value(raw)) is not None:
                    return values  # a codec for opaque bytes could not encode it by its name
                if layout.sole is not None:
                    return layout.read(self.codec.encode(layout.only_argument(raw)))
                if raw is None and not layout.required:
                    return layout.read(self.codec.encode({}))
                raise PayloadMismatch(
                    f"{self.name}: expected an object with {', '.join(map(repr, layout.names)) or 'no fields'}, "
                    f"got {type_name(type(raw))}"
                ) from None
            if layout.var_keyword is not None and layout.var_keyword not in raw:
                own = {name: value for name, value in raw.items() if name in layout.names}
                rest = {name: value for name, value in raw.items() if name not in layout.names}
                return layout.read(self.codec.encode({**own, layout.var_keyword: rest}))
        except PayloadMismatch:
            raise
        except Exception as again:
            error = again
        raise PayloadMismatch(f"{self.name}: {describe(error, layout.names)}") from None

    def _taken(self, name: str) -> str:
        """Why a caller cannot give a parameter which the worker gives."""
        how = "it receives the context" if name in self.layout.contexts else "it is injected"
        return f"unexpected parameter {name!r}: {how} when a worker runs the job, and a caller cannot give it"

    def _check(self, layout: Layout, arguments: dict[str, Any]) -> None:
        """Changed if a value at a place without a type would come back as another type."""
        for name, check in layout.checks:
            value = arguments.get(name)
            if type(value) not in PLAIN:
                try:
                    check(value, f"$.{name}")
                except Changed as error:
                    raise Changed(f"parameter {name!r}: {error}") from None

    def _compare(self, layout: Layout, arguments: dict[str, Any], back: tuple[Any, ...]) -> None:
        """Changed if a value would arrive as another one."""
        for name, arrived in zip(layout.names, back, strict=True):
            value = arguments.get(name)
            if type(value) in layout.trusted[name]:
                continue
            try:
                loss = None if name in layout.safe and value == arrived else self._comparison.loss(value, arrived)
            except Exception as error:
                why = "nested too deeply" if isinstance(error, RecursionError) else f"== raised {type(error).__name__}"
                raise Changed(f"parameter {name!r}: {why}; send a simpler value") from None
            if loss is not None:
                raise Changed(f"parameter {name!r}: {loss.sentence(f'$.{name}')}")

    def _by_name(self, layout: Layout, given: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        if layout.by_name.issuperset(kwargs):
            return {**given, **kwargs}
        known = {name: value for name, value in kwargs.items() if name in layout.by_name}
        rest = {name: value for name, value in kwargs.items() if name not in layout.by_name}
        if not layout.from_worker.isdisjoint(rest):
            raise self._refuse(self._taken(next(name for name in rest if name in layout.from_worker)))
        if layout.var_keyword is None:
            name = next(iter(rest))
            if name in layout.positional_only:
                raise self._refuse(f"parameter {name!r} is given by name, but is positional-only")
            raise self._refuse(f"unexpected parameter {name!r}{self._option(name)}")
        return {**given, **known, layout.var_keyword: rest}

    def _unfit(self, arguments: dict[str, Any], error: Exception) -> Exception:
        """The error for a call whose arguments cannot be encoded; it names the first wrong parameter."""
        layout = self.layout
        for name, value in arguments.items():
            data = None
            try:
                data = layout.write({name: value})
                layout.read_partial(data)
            except Exception as cause:
                error = cause
                break
        else:
            return self._refuse(describe(error, layout.names))
        if isinstance(error, msgspec.ValidationError):
            return self._refuse(describe(error, layout.names))
        if isinstance(error, RecursionError):
            return ValueError(f"{self.name}: parameter {name!r}: nested too deeply, or contains itself")
        if data is not None:  # the user's own check: its text may quote the value
            return self._refuse(f"parameter {name!r}: refused with {type(error).__name__}")
        kind = TypeError if isinstance(error, TypeError) else ValueError
        return kind(f"{self.name}: parameter {name!r}: {error}")

    def _refuse(self, what: str) -> TypeError:
        layout = self.layout
        text = str(layout.shown)
        error = f"{self.name}: {what}; its signature is {text if len(text) <= 300 else text[:299] + '…'}"
        first = layout.names[0] if layout.names else ""
        if first in ("ctx", "context") and layout.shown.parameters[first].annotation is inspect.Parameter.empty:
            error += f"; is {first!r} to receive the context? Then annotate it: {first}: JobContext"
        return TypeError(error)

    def _option(self, name: str) -> str:
        """Advice for an unknown parameter that is an option of the call."""
        from taskharbor.tasks.options import KNOWN  # here: options import handlers, which import this module

        called = getattr(self.function, "__name__", "task")
        if name in KNOWN:
            return f"; it is an option: {called}.options({name}=…).enqueue(…)"
        return f"; {OF_OPTIONS[name]} (options: {called}.options(…).enqueue(…))" if name in OF_OPTIONS else ""


def binder(signature: Signature) -> Callable[[bytes, JobContext], Bound]:
    """The cheapest closure for a signature: plain cases cost 0.3 µs, inspect.Signature.bind 6 µs."""
    layout = signature.layout
    if layout.injected:
        return _refuse_to_bind(signature)
    if not layout.names:
        return _bind_nothing(signature)
    read, otherwise = layout.read, signature.values_of_other_shape
    if layout.contexts == {layout.order[0].name} and layout.positional == layout.names:

        def bind_context_first(payload: bytes, context: JobContext) -> Bound:
            try:
                return (context, *read(payload)), {}
            except Exception as error:
                return (context, *otherwise(payload, error)), {}

        return bind_context_first
    if not layout.contexts and layout.positional == layout.names:

        def bind_positional(payload: bytes, context: JobContext) -> Bound:
            try:
                return read(payload), {}
            except Exception as error:
                return otherwise(payload, error), {}

        return bind_positional
    return _bind_any(signature)


def _bind_any(signature: Signature) -> Callable[[bytes, JobContext], Bound]:
    """For every other signature: parameter by parameter."""
    values = signature.checked_values if signature.layout.var_keyword is not None else signature.values
    assemble, nothing = assembler(signature), dict[str, Any]()

    def bind(payload: bytes, context: JobContext) -> Bound:
        return assemble(values(payload), context, nothing)

    return bind


def assembler(signature: Signature) -> Assemble:
    """The function that puts decoded values, the context and injected values in their places."""
    layout = signature.layout
    order = tuple(
        (parameter.name, parameter.kind, parameter.name in layout.injected, parameter.name in layout.contexts)
        for parameter in layout.order
    )

    def assemble(values: tuple[Any, ...], context: JobContext, injected: Mapping[str, Any]) -> Bound:
        given = iter(values)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, kind, is_injected, is_context in order:
            value: Any = injected[name] if is_injected else context if is_context else next(given)
            if kind is _VAR_POSITIONAL:
                args.extend(value)
            elif kind is _VAR_KEYWORD:
                kwargs.update(value)
            elif kind is _KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return tuple(args), kwargs

    return assemble


def _refuse_to_bind(signature: Signature) -> Callable[[bytes, JobContext], Bound]:
    def bind(payload: bytes, context: JobContext) -> Bound:
        raise RuntimeError(f"{signature.name}: has injected parameters, which only a worker's injector can give")

    return bind


def _bind_nothing(signature: Signature) -> Callable[[bytes, JobContext], Bound]:
    layout = signature.layout
    positional = sum(1 for parameter in layout.order if parameter.kind is not _KEYWORD_ONLY)
    named = tuple(parameter.name for parameter in layout.order if parameter.kind is _KEYWORD_ONLY)

    def bind(payload: bytes, context: JobContext) -> Bound:
        if payload != b"{}":
            signature.values(payload)
        return (context,) * positional, dict.fromkeys(named, context)

    return bind
