"""Replacing arguments of a stored payload: what stays, what is checked, and for which codecs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord
from taskharbor.tasks.flow_metadata import BIND_KEY, write_bind
from taskharbor.tasks.payload_edit import edit_payload
from taskharbor.tasks.signature import Signature


def mail(to: str, times: int = 1, *rest: int, at: datetime | None = None, **more: str) -> None: ...


def plain(to: str, times: int = 1) -> None: ...


def positional(to: str, /, times: int = 1) -> None: ...


class Swapped:
    """A codec of a user's own: JSON, back to front."""

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()[::-1]

    def decode(self, data: bytes, type: Any = Any) -> Any:
        return json.loads(data[::-1])


def edited(
    payload: bytes,
    given: dict[str, Any],
    function: Callable[..., Any] | None = None,
    codec: Codec | None = None,
    **job: Any,
) -> bytes:
    codec = codec or JsonCodec()
    signature = None if function is None else Signature(function, codec, "mail")
    return edit_payload(JobRecord(id="j", type="mail", payload=payload, **job), given, codec, signature)


def test_what_is_not_named_stays_byte_for_byte() -> None:
    stored = b'{"a": 1.100, "big": 123456789012345678901234567890, "text": "\\u00e9", "b": 2}'
    kept = b'"a":1.100,"big":123456789012345678901234567890,"text":"\\u00e9"'
    assert edited(stored, {"b": [1]}) == b"{" + kept + b',"b":[1]}'
    assert edited(b'{"to": "ada", "times":  2}', {"to": "eve"}, plain) == b'{"to":"eve","times":2}'


def test_new_arguments_are_encoded_by_the_annotations() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert edited(b'{"to":"ada"}', {"at": at}, mail) == b'{"to":"ada","at":"2030-01-01T00:00:00Z"}'
    assert edited(b'{"to":"ada"}', {"to": "eve"}, positional) == b'{"to":"eve"}'
    assert edited(b'{"to":"ada","rest":[1]}', {"rest": [2, 3]}, mail) == b'{"to":"ada","rest":[2,3]}'


def test_names_that_kwargs_collects_are_merged_among_themselves() -> None:
    stored = b'{"to":"ada","more":{"a":"1","b":"2"}}'
    assert edited(stored, {"b": "x", "c": "y"}, mail) == b'{"to":"ada","more":{"a":"1","b":"x","c":"y"}}'
    # as another language may have written them
    assert edited(b'{"to":"ada","a":"1"}', {"c": "y"}, mail) == b'{"to":"ada","more":{"a":"1","c":"y"}}'
    assert edited(b'{"to":"ada","a":"1"}', {"to": "eve"}, mail) == b'{"to":"eve","more":{"a":"1"}}'


def test_stored_arguments_that_the_function_no_longer_has_are_left_out() -> None:
    assert edited(b'{"recipient":"ada","times":2}', {"to": "eve"}, plain) == b'{"times":2,"to":"eve"}'


@pytest.mark.parametrize(
    ("payload", "given", "kind", "told"),
    [
        (b"{}", {"times": 2}, InvalidJob, "mail: parameter 'to' is missing in the stored payload; give it too"),
        (
            b'{"to":5}',
            {"times": 2},
            InvalidJob,
            r"a stored argument does not fit: parameter 'to': expected str, got int",
        ),
        (b'{"to":"ada"}', {"two": 2}, TypeError, r"mail: unexpected parameter 'two'; its signature is \(to: str"),
        (b'{"to":"ada"}', {"times": "CANARY"}, TypeError, "mail: parameter 'times': expected int, got str"),
        (b'{"to":"ada"}', {"times": float("nan")}, (TypeError, ValueError), "mail: parameter 'times'"),
    ],
)
def test_what_does_not_fit_is_refused_without_its_value(
    payload: bytes, given: dict[str, Any], kind: Any, told: str
) -> None:
    with pytest.raises(kind, match=told) as caught:
        edited(payload, given, plain)
    assert "CANARY" not in str(caught.value)


def test_a_step_that_waits_for_a_result_may_lack_its_parameter() -> None:
    waits = {BIND_KEY: write_bind("to", None)}
    assert edited(b'{"times":1}', {"times": 2}, plain, metadata=waits) == b'{"times":2}'
    with pytest.raises(InvalidJob, match="parameter 'to' is missing"):
        edited(b'{"times":1}', {"times": 2}, plain, metadata={BIND_KEY: "damaged"})


@pytest.mark.parametrize("payload", [b"[1]", b'"ada"', b"\xff", b"{", b'{"a":' * 5000])
def test_without_a_task_a_payload_that_is_not_an_object_is_replaced(payload: bytes) -> None:
    assert edited(payload, {"a": 1}) == b'{"a":1}'


def test_through_a_task_a_payload_that_is_not_an_object_is_the_only_argument() -> None:
    assert edited(b'"ada"', {"times": 2}, plain) == b'{"to":"ada","times":2}'
    with pytest.raises(InvalidJob, match="parameter 'to' is missing"):
        edited(b"{", {"times": 2}, plain)
    assert edited(b"{", {"to": "ada"}, plain) == b'{"to":"ada"}'


def test_another_codec_decodes_and_encodes_the_whole() -> None:
    codec = Swapped()
    stored = codec.encode({"to": "ada", "times": 2})
    assert codec.decode(edited(stored, {"to": "eve"}, codec=codec)) == {"to": "eve", "times": 2}
    assert codec.decode(edited(stored, {"to": "eve"}, plain, codec)) == {"to": "eve", "times": 2}
    more = codec.encode({"to": "ada", "more": {"a": "1"}})
    assert codec.decode(edited(more, {"b": "2"}, mail, codec)) == {"to": "ada", "more": {"a": "1", "b": "2"}}


def test_without_a_task_only_what_json_can_hold_is_taken() -> None:
    with pytest.raises(ValueError, match=r"\$.a is nan, which JSON cannot hold"):
        edited(b"{}", {"a": float("nan")})
