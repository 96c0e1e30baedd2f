"""Replacing some arguments of a stored payload, and keeping the others byte for byte.

JSON is merged as raw pieces: a number that another language wrote with more digits than a float has stays as it is.
Through a task the new arguments are checked against its signature and encoded by it, and the whole must fit in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord
from taskharbor.tasks.flow_metadata import BIND_KEY, read_bind
from taskharbor.tasks.payload_errors import describe
from taskharbor.tasks.signature import Signature

_read_pieces = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_write_pieces = msgspec.json.Encoder().encode


def edit_payload(job: JobRecord, given: Mapping[str, Any], codec: Codec, signature: Signature | None) -> bytes:
    """The payload of a job with these arguments replaced; TypeError or ValueError if they do not fit.

    Without a signature the new arguments are merged as they are. With one, stored arguments that it does not know are
    left out: the function was changed since, and could not be called with them.

    >>> job = JobRecord(id="01J", type="t", payload=b'{"to":"ada","n":1.10}')
    >>> edit_payload(job, {"to": "eve"}, JsonCodec(), None)
    b'{"to":"eve","n":1.10}'
    """
    if signature is not None and signature.raw:
        return signature.encode(_by_name(given, signature))
    stored = _pieces(job.payload, codec)
    if signature is None:
        new = _pieces(codec.encode(dict(given)), codec) or {}
        return _joined({**(stored or {}), **new}, codec)
    layout = signature.layout
    if stored is None:
        stored = _only_argument(job.payload, signature)
    new = _pieces(signature.encode(_by_name(given, signature), partial=True), codec) or {}
    rest = layout.var_keyword
    if rest is not None:
        # Names that **kwargs collects: a program in another language may have written them beside the others.
        beside = {name: value for name, value in stored.items() if name not in layout.names}
        collected = {**beside, **_piece(stored, rest, codec), **_piece(new, rest, codec)}
        if collected:
            new[rest] = msgspec.Raw(_joined(collected, codec)) if type(codec) is JsonCodec else collected
    merged = {name: value for name, value in stored.items() if name in layout.names}
    data = _joined({**merged, **new}, codec)
    _check_whole(job, data, {**merged, **new}, signature)
    return data


def _by_name(given: Mapping[str, Any], signature: Signature) -> dict[str, Any]:
    """The arguments by parameter, positional-only ones too; TypeError for an unknown name."""
    layout = signature.layout
    named = {name: value for name, value in given.items() if name in layout.names}
    others = {name: value for name, value in given.items() if name not in layout.names}
    if others:
        bound = signature.bind((), others, partial=True)
        if layout.var_keyword is not None:
            named[layout.var_keyword] = {**named.get(layout.var_keyword, {}), **bound[layout.var_keyword]}
    return named


def _check_whole(job: JobRecord, data: bytes, merged: Mapping[str, Any], signature: Signature) -> None:
    """InvalidJob unless a worker can call the function with this payload."""
    layout = signature.layout
    into = _receives(job)
    lacking = [name for name in signature.lacking(dict(merged)) if name != into]
    if lacking:
        raise InvalidJob(
            f"{signature.name}: parameter {', '.join(map(repr, lacking))} is missing in the stored payload; give it too"
        )
    try:
        (layout.read if into is None else layout.read_partial)(data)
    except Exception as error:
        raise InvalidJob(
            f"{signature.name}: a stored argument does not fit: {describe(error, layout.names)}; replace it, too"
        ) from None


def _receives(job: JobRecord) -> str | None:
    """The parameter that receives results of other jobs when the job runs."""
    text = job.metadata.get(BIND_KEY)
    try:
        return None if text is None else read_bind(text).into
    except ValueError:  # another program wrote it
        return None


def _only_argument(payload: bytes, signature: Signature) -> dict[str, Any]:
    """A payload that is not an object is the only argument, if there is one; an unreadable one holds none."""
    layout, codec = signature.layout, signature.codec
    try:
        value = layout.read_any(payload)
    except Exception:
        return {}
    return {} if isinstance(value, dict) else _pieces(codec.encode(layout.only_argument(value)), codec) or {}


def _pieces(data: bytes, codec: Codec) -> dict[str, Any] | None:
    """The values of an object by name, JSON as raw pieces; None if the data is not an object."""
    try:
        value = _read_pieces(data) if type(codec) is JsonCodec else codec.decode(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _piece(pieces: Mapping[str, Any], name: str, codec: Codec) -> dict[str, Any]:
    """The values inside one of the pieces, by name."""
    piece = pieces.get(name)
    if isinstance(piece, msgspec.Raw):
        return _pieces(bytes(piece), codec) or {}
    return piece if isinstance(piece, dict) else {}


def _joined(pieces: dict[str, Any], codec: Codec) -> bytes:
    return _write_pieces(pieces) if type(codec) is JsonCodec else codec.encode(pieces)
