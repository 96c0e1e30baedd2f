"""From a payload to the args and kwargs of a handler: one closure for each signature, called for every job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from taskharbor.tasks.context import JobContext
from taskharbor.tasks.signature import Signature

Bound: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""The args and kwargs to call a handler with."""

Assemble: TypeAlias = Callable[[tuple[Any, ...], JobContext, Mapping[str, Any]], Bound]
"""From the decoded payload, the context and injected values by name to the args and kwargs."""

_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


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

    def bind_empty(payload: bytes, context: JobContext) -> Bound:
        if payload != b"{}":
            signature.values(payload)
        return (), {}

    return bind if layout.contexts else bind_empty
