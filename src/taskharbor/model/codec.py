"""Codecs: values to bytes and back, with the types that a handler's annotations name.

`JsonCodec`, the default, writes JSON that any language reads. It refuses what JSON cannot hold (NaN, infinities)
instead of changing it, and never imports or builds anything that the data names.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import msgspec


@runtime_checkable
class Codec(Protocol):
    """How arguments and results become bytes. Give your own as `codec=`."""

    def encode(self, value: Any) -> bytes:
        """The value as bytes, or TypeError / ValueError if it cannot be written without loss."""

    def decode(self, data: bytes, type: Any = Any) -> Any:
        """The value of that type, or ValueError if the bytes do not hold one."""


class JsonCodec:
    """JSON through msgspec; pydantic models are honoured when they are what the annotations name.

    >>> JsonCodec().encode({"to": "ada", "at": 1.5})
    b'{"to":"ada","at":1.5}'
    >>> JsonCodec().encode(float("nan"))
    Traceback (most recent call last):
    ...
    ValueError: $ is nan, which JSON cannot hold; send None or a string instead
    """

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_to_plain)
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    def encode(self, value: Any) -> bytes:
        try:
            data = self._encoder.encode(value)
        except RecursionError:
            raise ValueError("the value is nested too deeply for JSON, or contains itself") from None
        if b"null" in data:  # msgspec writes NaN and infinities as null: look closer only where there is one
            _refuse_non_finite(msgspec.to_builtins(value, enc_hook=_to_plain), "$")
        return data

    def decode(self, data: bytes, type: Any = Any) -> Any:
        try:
            decoder = self._decoders.get(type)
            if decoder is None:
                decoder = self._decoders[type] = msgspec.json.Decoder(type, dec_hook=_from_plain)
        except TypeError:  # an unhashable annotation
            decoder = msgspec.json.Decoder(type, dec_hook=_from_plain)
        try:
            return decoder.decode(data)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None


def _to_plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(
        f"{type(value).__name__} cannot be written as JSON; use plain values, dataclasses, msgspec structs or pydantic "
        "models, or give your own codec="
    )


def _from_plain(type: Any, value: Any) -> Any:
    validate = getattr(type, "model_validate", None)
    if validate is not None:
        return validate(value)
    name = getattr(type, "__name__", repr(type))
    raise ValueError(f"{name} cannot be read from JSON; annotate with plain types, dataclasses, msgspec structs or pydantic models")


def _refuse_non_finite(value: Any, path: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path} is {value}, which JSON cannot hold; send None or a string instead")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{path}[{index}]")
