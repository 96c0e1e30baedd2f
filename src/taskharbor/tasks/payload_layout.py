"""The payload of a signature: its parameters with resolved annotations, and the functions that encode and decode them.

Made once for each handler and used for every job. JSON is decoded straight into a struct of the annotated types.
Another codec receives a TypedDict of them, which every typed library knows.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from types import GenericAlias
from typing import Any, NotRequired, Required, TypedDict

import msgspec

from taskharbor.model.codec import Codec, JsonCodec, readable
from taskharbor.tasks.annotations import Unresolved, hints_of, is_context
from taskharbor.tasks.injected import marker_of
from taskharbor.tasks.payload_check import Trust, check_of, trust_of

_EMPTY = inspect.Parameter.empty
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_IMMUTABLE = (str, int, float, bool, bytes, type(None))


class Field(msgspec.Struct, frozen=True):
    """One parameter as the payload holds it. `make` returns its default; None: it is required."""

    name: str
    type: Any
    make: Callable[[], Any] | None


class Layout:
    """The parameters of one function: their names by kind, and how their values are encoded and decoded."""

    def __init__(self, function: Callable[..., Any], codec: Codec, name: str, raw: bool = False) -> None:
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            raise TypeError(f"{name}: its parameters cannot be read; wrap it in a Python function") from None
        hints, self.order = hints_of(function, signature), tuple(signature.parameters.values())
        self.contexts = frozenset(p.name for p in self.order if is_context(hints.get(p.name)))
        markers = ((p.name, marker_of(p.default, hints.get(p.name))) for p in self.order)
        self.injected = frozenset(each for each, marker in markers if marker is not None)
        self.from_worker = self.contexts | self.injected  # no part of the payload
        own = [parameter for parameter in self.order if parameter.name not in self.from_worker]
        for each in ("return", *(parameter.name for parameter in own)):
            if isinstance(hint := hints.get(each), Unresolved):
                raise hint.refusal(name) from None
        self.return_type = _result(hints.get("return", Any))
        trust = trust_of(self.return_type)
        self.trust_in_result = Trust(trust.types - {list, dict}, trust.by_equality)  # nobody has looked inside those
        self.shown = inspect.Signature([p.replace(annotation=hints.get(p.name, _EMPTY)) for p in own])
        self.names = tuple(p.name for p in own)
        self.positional = tuple(p.name for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        self.positional_only = frozenset(p.name for p in own if p.kind is p.POSITIONAL_ONLY)
        self.by_name = frozenset(p.name for p in own if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        self.var_positional = next((p.name for p in own if p.kind is _VAR_POSITIONAL), None)
        self.var_keyword = next((p.name for p in own if p.kind is _VAR_KEYWORD), None)
        fields = [_field(p, hints) for p in own]
        self.required = frozenset(field.name for field in fields if field.make is None)
        self.sole = self._sole()
        self.write: Callable[[dict[str, Any]], bytes]
        self.read: Callable[[bytes], tuple[Any, ...]]
        self.read_back: Callable[[bytes], Any]  # `read`, or a struct of the same values
        self.read_partial: Callable[[bytes], Any]
        self.read_any: Callable[[bytes], Any]
        self.checks: tuple[tuple[str, Callable[[Any, str], None]], ...] = ()  # for parameters with untyped places
        # By parameter: types whose values arrive as they are. Values of others are compared. Empty: the codec's matter.
        self.trusted: dict[str, frozenset[type]] = {}
        self.safe: frozenset[str] = frozenset()  # the parameters for which == is comparison enough
        if raw:
            self._as_it_is(own, hints, name)
        elif type(codec) is JsonCodec:
            self._through_structs(codec, fields, name)
        else:
            self._through_dicts(codec, fields)

    def _sole(self) -> str | None:
        """The parameter for a payload that is not an object: the only required one, or else the first."""
        if len(self.required) > 1:
            return None
        names = list(self.required) or [name for name in self.names if name != self.var_keyword]
        return names[0] if names else None

    def only_argument(self, value: Any) -> dict[str, Any]:
        """The arguments for a payload that is not an object: it is the only one; none if there is no place for it."""
        if self.sole is None:
            return {}
        return {self.sole: [value] if self.sole == self.var_positional else value}

    def only_value(self, value: Any) -> tuple[Any, ...] | None:
        """The values for a payload that is not an object, if it already has the type of the only argument."""
        if self.sole is None or self.names != (self.sole,) or self.sole == self.var_positional:
            return None
        kind = self.shown.parameters[self.sole].annotation
        fits = kind in (_EMPTY, Any) or (isinstance(kind, type) and isinstance(value, kind))
        return (value,) if fits else None

    def _as_it_is(self, own: list[inspect.Parameter], hints: dict[str, Any], name: str) -> None:
        """The payload is the only argument, as the bytes that are stored. No codec sees it."""
        takes = [hints.get(parameter.name, bytes) for parameter in own]
        if self.positional != self.names or takes not in ([bytes], [Any]):
            raise TypeError(
                f"{name}: raw=True: expected one parameter for the payload, such as payload: bytes; the context is "
                "known by its annotation, ctx: JobContext"
            )

        def write(arguments: dict[str, Any]) -> bytes:
            (payload,) = arguments.values() or (None,)
            if type(payload) is not bytes:
                raise TypeError(f"raw=True: expected the payload as bytes, got {type(payload).__name__}")
            return payload

        def read(payload: bytes) -> tuple[Any, ...]:
            return (payload,)

        self.write, self.read, self.read_back = write, read, read
        self.read_partial = lambda payload: dict(zip(self.names, (payload,), strict=True))
        self.read_any = read

    def _through_structs(self, codec: JsonCodec, fields: list[Field], name: str) -> None:
        whole: list[tuple[str, Any, Any]] = []
        some: list[tuple[str, Any, Any]] = []
        for index, field in enumerate(fields):
            try:
                kind = readable(field.type)
            except TypeError as error:
                raise TypeError(f"{name}: parameter {field.name!r}: {error}") from None
            # The struct's fields have our own names: a parameter may have one that no struct can have, such as `__x`.
            whole.append((f"f{index}", kind, _struct_field(field)))
            some.append((f"f{index}", kind, msgspec.field(default=msgspec.UNSET, name=field.name)))
        partial = msgspec.defstruct("Arguments", some, forbid_unknown_fields=True, kw_only=True)
        decode = codec.reader(msgspec.defstruct("Arguments", whole, forbid_unknown_fields=True, kw_only=True))
        astuple = msgspec.structs.astuple
        self.write = functools.partial(codec.encode_as, type=partial)
        self.read, self.read_back = (lambda data: astuple(decode(data))), decode
        self.read_partial = codec.reader(partial)
        self.read_any = codec.reader(Any)
        checks = ((field.name, check_of(field.type)) for field in fields)
        self.checks = tuple((name, check) for name, check in checks if check is not None)
        trusts = {field.name: trust_of(field.type) for field in fields}
        self.trusted = {name: trust.types for name, trust in trusts.items()}
        self.safe = frozenset(name for name, trust in trusts.items() if trust.by_equality)

    def _through_dicts(self, codec: Codec, fields: list[Field]) -> None:
        kinds = {
            field.name: Required[field.type] if field.make is None else NotRequired[field.type] for field in fields
        }
        whole: Any = TypedDict("Arguments", kinds)  # type: ignore[misc]  # its fields are known at run time only
        some: Any = TypedDict("Arguments", {field.name: field.type for field in fields}, total=False)  # type: ignore[misc]  # names known at run time only
        self.write = codec.encode
        self.read = self.read_back = lambda data: _complete(codec.decode(data, whole), fields)
        self.read_partial = lambda data: codec.decode(data, some)
        self.read_any = codec.decode


def _complete(given: Any, fields: list[Field]) -> tuple[Any, ...]:
    """What another codec decoded, in order and with the defaults. The errors have the texts of msgspec's."""
    if not isinstance(given, dict):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(given).__name__}`")
    values = []
    for field in fields:
        if field.name in given:
            values.append(given[field.name])
        elif field.make is not None:
            values.append(field.make())
        else:
            raise msgspec.ValidationError(f"Object missing required field `{field.name}`")
    unknown = given.keys() - {field.name for field in fields}
    if unknown:
        raise msgspec.ValidationError(f"Object contains unknown field `{min(unknown, key=str)}`")
    return tuple(values)


def _field(parameter: inspect.Parameter, hints: dict[str, Any]) -> Field:
    annotation: Any = hints.get(parameter.name, Any)
    if parameter.kind is _VAR_POSITIONAL:
        return Field(parameter.name, GenericAlias(list, (annotation,)), list)
    if parameter.kind is _VAR_KEYWORD:
        return Field(parameter.name, GenericAlias(dict, (str, annotation)), dict)
    default = parameter.default
    return Field(parameter.name, annotation, None if default is _EMPTY else _maker(default))


def _maker(default: Any) -> Callable[[], Any]:
    """The function that returns a default. Each job gets its own copy of a list, a dict or a set: what one handler puts
    into it must not be there for the next job."""
    if type(default) in (list, dict, set):
        try:
            copy.deepcopy(default)
        except Exception:
            return lambda: default
        return lambda: copy.deepcopy(default)
    return lambda: default


def _struct_field(field: Field) -> Any:
    if field.make is None:
        return msgspec.field(name=field.name)
    default = field.make()
    if type(default) in _IMMUTABLE:
        return msgspec.field(default=default, name=field.name)
    return msgspec.field(default_factory=field.make, name=field.name)


def _result(annotation: Any) -> Any:
    """The type of a result; Any where JSON cannot be decoded as the annotation (a workflow, a custom class)."""
    try:
        readable(annotation)
    except TypeError:
        return Any
    return annotation
