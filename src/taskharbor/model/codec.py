"""Codecs: values to bytes and back, with the types that a handler's annotations name.

`JsonCodec`, the default, writes JSON that any language reads. It refuses what JSON cannot hold (NaN, infinities, keys
that are numbers, structures that contain themselves) instead of changing it. It never imports or builds anything that
the data names. Its errors name types and places, never the values themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

import msgspec

from taskharbor.model.arrival import Comparison, Loss
from taskharbor.model.json_hooks import adapted, from_plain, to_plain

_FLAT = frozenset({str, int, bool, bytes, type(None)})
# JSON text that may differ from the value: a null (which a NaN becomes), a NaN of a Decimal, a key that was a number.
# One search costs 0.8 µs; flat values skip it.
_SUSPECT = re.compile(rb'null|NaN|Infinity|"-?(?:[\d.][^"]*|nan|inf)":').search


@runtime_checkable
class Codec(Protocol):
    """How arguments and results become bytes. Give your own as `codec=`."""

    def encode(self, value: Any) -> bytes:
        """The value as bytes, or TypeError / ValueError if it cannot be written without loss."""

    def decode(self, data: bytes, type: Any = Any) -> Any:
        """The value of that `type`, or ValueError if the bytes do not hold one.

        For a handler's arguments the type is a TypedDict of its parameters.
        """


class JsonCodec:
    """JSON through msgspec. pydantic models are supported where the annotations name them.

    >>> JsonCodec().encode({"to": "ada", "at": 1.5})
    b'{"to":"ada","at":1.5}'
    >>> JsonCodec().encode([float("nan")])
    Traceback (most recent call last):
    ...
    ValueError: $[0] is nan, which JSON cannot hold; send None or a string instead
    """

    def __init__(self) -> None:
        self._write = msgspec.json.Encoder(enc_hook=to_plain).encode
        self._readers: dict[Any, Callable[[bytes], Any]] = {}
        self._form = Comparison(self._again)

    def __repr__(self) -> str:
        return "JsonCodec()"

    def encode(self, value: Any) -> bytes:
        """The value as JSON; TypeError or ValueError if it cannot be written without loss."""
        data = self.encode_as(value, Any)
        if not _is_flat(value):
            loss = self._form.own_loss(value)
            if loss is not None:
                raise TypeError(loss.sentence("$"))
        return data

    def loss(self, value: Any, back: Any) -> Loss | None:
        """What a value loses on its way: `back` is decoded from its bytes. None if nothing is lost."""
        return self._form.loss(value, back)

    def _again(self, value: Any) -> Any:
        return self.reader(type(value))(self._write(value))

    def encode_as(self, value: Any, type: Any) -> bytes:
        """The value as JSON, in which dicts may have numbers as keys where decoding as `type` brings them back. Whether
        a record has all its fields there is for the caller to compare."""
        try:
            data: bytes = self._write(value)
            if _is_flat(value) or _SUSPECT(data) is None:
                return data
            _refuse_changes(_builtins(value), self._back(data, type), "$")
            return data
        except RecursionError:
            raise ValueError("the value is nested too deeply for JSON, or contains itself") from None
        except UnicodeEncodeError:
            raise ValueError("the text holds a lone surrogate, which UTF-8 cannot; replace it") from None

    def _back(self, data: bytes, type: Any) -> Any:
        """The value as it will be decoded, in plain types; None if that is not known."""
        try:
            return None if type is Any else _builtins(self.reader(type)(data))
        except Exception:
            return None

    def decode(self, data: bytes, type: Any = Any) -> Any:
        """The value of that `type`; ValueError if the JSON does not hold one."""
        try:
            return self.reader(type)(data)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None

    def reader(self, type: Any) -> Callable[[bytes], Any]:
        """The decoder of one type, made once; TypeError if JSON cannot be read as such a type."""
        try:
            found = self._readers.get(type)
        except TypeError:  # an unhashable annotation
            return msgspec.json.Decoder(readable(type), dec_hook=from_plain).decode
        if found is None:
            if len(self._readers) > 1000:  # types that are made at run time must not fill the memory
                self._readers.clear()
            found = self._readers[type] = msgspec.json.Decoder(readable(type), dec_hook=from_plain).decode
        return found


def readable(annotation: Any) -> Any:
    """The annotation in a form that the JSON decoder accepts, or TypeError with the reason."""
    try:
        msgspec.json.Decoder(annotation, dec_hook=from_plain)
    except TypeError as error:
        marker = adapted(annotation)
        if marker is not None:
            return marker
        raise TypeError(
            f"{type_name(annotation)} cannot be read from JSON ({str(error).split(' - ')[0]}); annotate with plain "
            "types, dataclasses, msgspec structs or pydantic models"
        ) from None
    return annotation


def type_name(annotation: Any) -> str:
    """A type as error messages show it."""
    return annotation.__name__ if type(annotation) is type else str(annotation).replace("typing.", "")


def _is_flat(value: Any) -> bool:
    if type(value) is dict:
        for key, item in value.items():  # noqa: SIM110 - a generator for all() costs twice as much
            if type(key) is not str or type(item) not in _FLAT:
                return False
        return True
    return type(value) in _FLAT


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=to_plain, str_keys=False, builtin_types=(Decimal,))


def _refuse_changes(value: Any, back: Any, path: str) -> None:
    """Refuse numbers that JSON cannot hold, and keys that are not text, unless `back`, the value as it will be decoded,
    has them too."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path} is {value}, which JSON cannot hold; send None or a string instead")
    elif isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{path} is a Decimal {value}, which is not a number; send None or a string instead")
    elif isinstance(value, dict):
        known = back if isinstance(back, dict) else {}
        for key, item in value.items():
            inside = f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[…]"
            _refuse_changes(item, known.get(key), inside)
            if not isinstance(key, str):
                _refuse_changes(key, None, f"a key of {path}")
                if key not in known:
                    raise TypeError(
                        f"{path} has a key of type {type(key).__name__}, which would come back as text; make the keys "
                        f"text, or annotate with dict[{type(key).__name__}, …]"
                    )
    elif isinstance(value, list | tuple):
        known_items = back if isinstance(back, list | tuple) and len(back) == len(value) else (None,) * len(value)
        for index, (item, known_item) in enumerate(zip(value, known_items, strict=True)):
            _refuse_changes(item, known_item, f"{path}[{index}]")
