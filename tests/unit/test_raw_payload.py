"""Handlers that receive the payload's bytes, and codecs that know nothing but bytes."""

from __future__ import annotations

from typing import Any

import pytest

from taskharbor import Client, Harbor, JobContext, JobRequest, Worker
from taskharbor.flow import chain

STORED = b'{"a":1,  "b":[2]}'  # a codec would write it without the spaces


class Opaque:
    """A codec that passes bytes on."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"expected bytes, got {type(value).__name__}")
        return value

    def decode(self, data: bytes, type: Any = Any) -> Any:
        return data


def test_a_raw_task_receives_the_bytes_as_they_are_stored() -> None:
    received: list[Any] = []
    with Harbor("memory://") as harbor:

        @harbor.task(name="context first", raw=True)
        def first(ctx: JobContext, payload: bytes) -> int:
            received.append((ctx.job.type, payload))
            return len(payload)

        @harbor.task(name="alone", raw=True)
        async def alone(payload):
            received.append(payload)

        jobs = [first.enqueue(STORED), alone.enqueue(b"\xff\x00"), harbor.enqueue_many([first.s(b"")])[0]]
        harbor.client.enqueue(JobRequest(type="alone", payload={"a": 1}))
        harbor.worker().run(until_empty=True)
        assert jobs[0].info().job.payload == STORED
        assert jobs[0].result() == len(STORED)
    assert sorted(map(repr, received)) == sorted(
        map(repr, [("context first", STORED), ("context first", b""), b"\xff\x00", b'{"a":1}'])
    )


def test_a_registered_handler_can_be_raw() -> None:
    received: list[bytes] = []
    with Client("memory://") as client:
        worker = Worker(client._store.driver)
        worker.register("t", received.append, raw=True)
        client.enqueue(JobRequest(type="t", payload=[1, 2]))
        worker.run(until_empty=True)
    assert received == [b"[1,2]"]


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda a, b: None, lambda *payload: None, lambda **payload: None, lambda *, payload: None],
)
def test_a_raw_handler_has_one_parameter(function: Any) -> None:
    harbor = Harbor("memory://")
    task = harbor.task(name="t", raw=True)(function)
    with pytest.raises(TypeError, match="raw=True: expected one parameter for the payload"):
        task.enqueue(b"")


def test_what_a_raw_task_refuses() -> None:
    harbor = Harbor("memory://")

    @harbor.task(name="t", raw=True)
    def task(payload: bytes) -> None: ...

    anything: Any = task
    declare: Any = harbor.task
    with pytest.raises(TypeError, match="raw=True: expected the payload as bytes, got str"):
        anything.enqueue("text")
    with pytest.raises(TypeError, match="unknown option 'raw'; it belongs to the declaration"):
        anything.options(raw=False)
    with pytest.raises(TypeError, match="raw: expected True or False"):
        declare(name="u", raw=1)(print)


def test_a_codec_for_opaque_bytes_has_the_payload_as_the_only_argument() -> None:
    received: list[Any] = []
    with Harbor("memory://", codec=Opaque()) as harbor:

        @harbor.task(name="t")
        def typed(payload: bytes) -> bytes:
            received.append(payload)
            return payload

        job = harbor.client.enqueue(JobRequest(type="t", payload=b"\xff\x00"))
        harbor.worker().run(until_empty=True)
        assert received == [b"\xff\x00"]
        assert job.result() == b"\xff\x00"


def test_an_amendment_replaces_the_whole_payload() -> None:
    harbor = Harbor("memory://")

    @harbor.task(raw=True)
    def received(payload: bytes) -> None: ...

    job = received.enqueue(b"abc")
    job.amend(payload={"payload": b"\xff"})
    assert job.info().job.payload == b"\xff"
    with pytest.raises(TypeError, match="expected the payload as bytes, got str"):
        job.amend(payload={"payload": "text"})
    assert job.info().job.payload == b"\xff"


def test_no_step_passes_its_result_to_a_raw_one() -> None:
    harbor = Harbor("memory://")

    @harbor.task
    def number() -> int:
        return 1

    @harbor.task(raw=True)
    def received(payload: bytes) -> None: ...

    with pytest.raises(TypeError, match=r"received: raw=True: .* cannot receive the result of another step"):
        chain(number.s(), received.s()).enqueue()
