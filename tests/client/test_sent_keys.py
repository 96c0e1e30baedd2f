"""An idempotency key that comes with other arguments: the first job stays, and the mistake is reported."""

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor import Harbor, JobRequest
from taskharbor.drivers import Enqueued, JobRecord
from taskharbor.events import Event, KeyConflict
from taskharbor.store.enqueue import MAX_REMEMBERED_KEYS, SentKeys

pytestmark = pytest.mark.usefixtures("each_way")


def record(key: str | None, payload: bytes, queue: str = "q", type: str = "t") -> JobRecord:
    return JobRecord(id="new", type=type, queue=queue, payload=payload, idempotency_key=key)


@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from([None, "a", "b"]),
            st.sampled_from(["q", "r"]),
            st.sampled_from(["t", "u"]),
            st.binary(max_size=1),
        )
    ),
    forgets=st.integers(2, 9),
)
def test_a_conflict_is_a_known_key_that_this_client_sent_with_another_payload(
    calls: list[tuple[str | None, str, str, bytes]], forgets: int
) -> None:
    """Against a store that keeps what came first and forgets everything now and then, as retention does."""
    keys, store = SentKeys(), dict[tuple[str, str], tuple[str, bytes]]()
    for number, (key, queue, type, payload) in enumerate(calls):
        if number % forgets == forgets - 1:
            store.clear()
        existed = key is not None and (queue, key) in store
        if key is not None:
            store.setdefault((queue, key), (type, payload))
        told = keys.conflicts([record(key, payload, queue, type)], [Enqueued("known", existed)])
        wanted = existed and key is not None and store[queue, key] != (type, payload)
        assert [id for _, id in told] == (["known"] if wanted else [])


def test_the_newest_keys_are_remembered_and_no_more() -> None:
    keys = SentKeys()
    for number in range(MAX_REMEMBERED_KEYS + 1):
        keys.conflicts([record(str(number), b"1")], [Enqueued("x", False)])
    assert len(keys._sent) == MAX_REMEMBERED_KEYS
    assert keys.conflicts([record("0", b"2")], [Enqueued("x", True)]) == [], "the oldest was forgotten"
    assert keys.conflicts([record("5", b"2")], [Enqueued("x", True)])


@pytest.mark.parametrize("way", ["task", "many", "request"])
def test_a_conflict_is_an_event_and_a_log_line_without_payload_or_key(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Event] = []
    with Harbor("memory://", observers=[seen.append]) as harbor:

        @harbor.task(name="welcome")
        def welcome(to: str) -> None: ...

        def send(to: str) -> Any:
            if way == "request":
                request = JobRequest(type="welcome", payload={"to": to}, idempotency_key="KEY-CANARY")
                return harbor.client.enqueue(request)
            keyed = welcome.options(idempotency_key="KEY-CANARY")
            return keyed.enqueue(to) if way == "task" else harbor.enqueue_many([keyed.s(to)])[0]

        with caplog.at_level(logging.WARNING, "taskharbor"):
            first, again = send("CANARY-one"), send("CANARY-one")
            assert again.existed
            assert not caplog.records
            other = send("CANARY-two")
        assert (other.id, other.existed) == (first.id, True)
        (event,) = [event for event in seen if isinstance(event, KeyConflict)]
        assert (event.job.id, event.job.type) == (first.id, "welcome")
        (line,) = caplog.records
        assert f"event=KeyConflict job_id={first.id} job_type=welcome" in line.getMessage()
        assert "came with other arguments before" in line.getMessage()
        assert "CANARY" not in line.getMessage() + repr(event)
