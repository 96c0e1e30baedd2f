"""The decisions of a consumer, step by step: no server, no thread, no time but the one that is given."""

from typing import Any

import pytest

from taskharbor import BackendUnavailable
from taskharbor.omniq import PAUSED, Job, JobContext, LeaseLost, NotActive, Stopped, TokenMismatch
from taskharbor.omniq.consumer import (
    STOP,
    ConsumeCall,
    Ended,
    Interrupt,
    RunOperation,
    Start,
    Wait,
    consumer_steps,
)


def job(payload='{"n":1}', lease_ms=30_000):
    return Job(job_id="a", payload=payload, lock_until_ms=9, attempt=1, gid="", lease_token="t", lease_ms=lease_ms)


class Run:
    """A consumer that is led by hand."""

    def __init__(self, **options):
        self.now = 1000.0
        self.steps = consumer_steps(ConsumeCall("jobs", print, **options), lambda: self.now)
        self.at: Any = next(self.steps)

    def answer(self, value=None):
        """What came of the step; the next one, or None at the end."""
        try:
            self.at = self.steps.throw(value) if isinstance(value, Exception) else self.steps.send(value)
        except StopIteration:
            self.at = None
        return self.at

    @property
    def asks(self) -> str:
        return self.at.operation.script if isinstance(self.at, RunOperation) else type(self.at).__name__

    def idle(self):
        """Up to the reserve, through the upkeep."""
        while self.asks in ("promote_delayed", "reap_expired"):
            self.answer(0)
        assert self.asks == "reserve"
        return self

    def running(self, **options):
        self.idle().answer(job(**options))
        assert self.at == Wait(0)
        self.answer(None)
        assert isinstance(self.at, Start)
        assert isinstance(self.at.context, JobContext)
        self.context = self.at.context
        self.answer()
        return self

    def beat(self):
        """Past the next heartbeat: up to its call."""
        assert isinstance(self.at, Wait)
        for _ in range(9):
            waits = type(self.at) is Wait
            self.now += self.at.seconds if waits else 0
            self.answer(None if waits else 0)
            if self.asks == "heartbeat":
                return self
        self.now += 60
        self.answer(None)
        return self


def test_it_promotes_and_reaps_before_it_reserves_and_each_second_again():
    run = Run()
    assert run.asks == "promote_delayed"
    run.answer(0)
    assert run.asks == "reap_expired"
    run.answer(0)
    assert run.asks == "reserve"
    assert run.answer(None) == Wait(0.05)
    run.answer(None)
    assert run.asks == "reserve"
    run.answer(PAUSED)
    assert run.at == Wait(0.5)
    run.now += 1
    run.answer(None)
    assert run.asks == "promote_delayed"


def test_a_success_is_acked_and_a_failure_too():
    run = Run().running()
    assert run.context.payload == {"n": 1}
    assert run.context.payload_raw == '{"n":1}'
    run.answer(Ended(None))
    assert run.asks == "ack_success"
    run.answer()
    run.running().answer(Ended(KeyError("x")))
    assert run.asks == "ack_fail"
    assert "KeyError: 'x'" in run.at.operation.arguments


def test_a_payload_that_is_not_json_fails_without_a_handler():
    run = Run().idle()
    run.answer(job(payload="{"))
    run.answer(None)
    assert run.asks == "ack_fail"
    assert "ValueError: the payload is not JSON: DecodeError" in run.at.operation.arguments


@pytest.mark.parametrize("lease_ms", [300, 30_000])
def test_hazard_1_it_beats_three_times_in_a_lease_however_short(lease_ms):
    run = Run(promote_interval_s=600, reap_interval_s=600).running(lease_ms=lease_ms)
    begin = run.now
    for number in range(1, 4):
        run.now += run.at.seconds
        run.answer(None)
        assert run.asks == "heartbeat"
        assert run.now - begin == pytest.approx(number * lease_ms / 3000)
        run.answer(99)
        assert run.context.lock_until_ms == 99


@pytest.mark.parametrize("error", [TokenMismatch("TOKEN_MISMATCH"), NotActive("NOT_ACTIVE")])
def test_hazard_23_a_lost_lease_interrupts_the_handler_and_nothing_is_acked(error):
    run = Run().running().beat()
    run.answer(error)
    assert isinstance(run.at, Interrupt)
    assert isinstance(run.at.error, LeaseLost)
    run.answer()
    assert isinstance(run.at, Wait)
    run.answer(Ended(None))
    assert run.asks in ("promote_delayed", "reap_expired", "reserve")


def test_hazard_23_a_lease_that_cannot_be_renewed_in_its_time_counts_as_lost():
    run = Run(promote_interval_s=600, reap_interval_s=600).running(lease_ms=30_000)
    for _ in range(2):
        run.now += run.at.seconds
        run.answer(None)
        run.answer(BackendUnavailable("gone"))
        assert isinstance(run.at, Wait)
    run.now += run.at.seconds
    run.answer(None)
    run.answer(BackendUnavailable("gone"))
    assert isinstance(run.at, Interrupt)


def test_a_handler_that_does_not_end_is_left_behind_after_its_grace():
    run = Run(grace_s=2).running().beat()
    run.answer(NotActive("NOT_ACTIVE"))
    run.answer()
    assert run.at == Wait(2)
    run.now += 2
    run.answer(None)
    run.idle()


def test_drain_finishes_the_current_job_and_then_ends():
    run = Run().running()
    run.answer(STOP)
    assert isinstance(run.at, Wait)
    run.answer(Ended(None))
    assert run.asks == "ack_success"
    while run.answer(0) is not None:
        assert run.asks in ("promote_delayed", "reap_expired")


def test_hazard_24_without_drain_the_handler_is_interrupted_and_its_job_given_back():
    run = Run(drain=False).running()
    run.answer(STOP)
    assert isinstance(run.at, Interrupt)
    assert isinstance(run.at.error, Stopped)
    run.answer()
    run.answer(Ended(Stopped()))
    assert run.asks == "give_back"
    assert run.answer() is None


@pytest.mark.parametrize("drain", [True, False])
def test_hazard_24_a_job_that_was_just_reserved_is_given_back(drain):
    run = Run(drain=drain).idle()
    run.answer(job())
    run.answer(STOP)
    assert run.asks == "give_back"
    assert run.answer(BackendUnavailable("gone")) is None


def test_a_second_stop_does_not_drain():
    run = Run().running()
    run.answer(STOP)
    run.answer(STOP)
    assert isinstance(run.at, Interrupt)


def test_a_stop_while_idle_or_while_the_server_is_away_ends_it():
    run = Run().idle()
    run.answer(None)
    assert run.answer(STOP) is None
    run = Run().idle()
    run.answer(BackendUnavailable("gone"))
    assert run.at == Wait(0.2)
    assert run.answer(STOP) is None


def test_it_tries_again_and_again_while_the_server_is_away():
    run = Run().idle()
    for pause in (0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
        assert run.answer(BackendUnavailable("gone")) == Wait(pause)
        run.answer(None)
        run.idle()


def test_an_ack_is_sent_again_as_long_as_the_lease_lasts():
    run = Run(promote_interval_s=600, reap_interval_s=600).running(lease_ms=1000)
    run.answer(Ended(None))
    first = run.at.operation
    run.answer(BackendUnavailable("gone"))
    assert run.at == Wait(0.2)
    run.answer(None)
    assert run.at.operation is first  # the very same call: if it was done, it is only answered
    run.now += 5
    run.answer(BackendUnavailable("gone"))
    assert run.asks == "reserve"


def test_a_refused_ack_ends_nothing():
    run = Run().running()
    run.answer(Ended(None))
    run.answer(NotActive("NOT_ACTIVE"))
    run.idle()


@pytest.mark.parametrize(
    ("name", "value"), [("poll_interval_s", 0), ("grace_s", -1), ("heartbeat_interval_s", 0), ("reap_interval_s", "1")]
)
def test_settings_are_checked_at_once(name, value):
    with pytest.raises((TypeError, ValueError), match=f"{name}: expected"):
        ConsumeCall("jobs", print, **{name: value})
