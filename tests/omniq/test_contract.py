"""Every MUST of the OmniQ contract, on every kind of client and server. Time is passed in; nothing here waits."""

import json
import re

import pytest

from taskharbor.omniq import PAUSED, Job, NotActive, OmniQError, TokenMismatch, now_ms, queue_base, ulid
from tests.omniq.conftest import KINDS, Both

NOW = 1_800_000_000_000
every = pytest.mark.parametrize("both", KINDS, indirect=True)


def taken(both: Both, now: int = NOW) -> Job:
    job = both.q.reserve("jobs", now_ms_override=now)
    assert isinstance(job, Job)
    return job


# Names, time, ids


def test_queue_base_wraps_a_name_unless_it_is_wrapped():
    assert queue_base("emails") == "{emails}"
    assert queue_base("{emails}") == "{emails}"
    assert queue_base("a:b.c-d_é") == "{a:b.c-d_é}"


@pytest.mark.parametrize("name", ["", "}{", "{}", "{", "}", "a{b", "{{a}}", "{a}{b}", "a\nb", "\ud800", "x" * 256])
def test_queue_base_refuses_a_name_without_a_usable_hash_tag(name):
    with pytest.raises(ValueError, match="queue: expected"):
        queue_base(name)
    with pytest.raises(TypeError, match="queue: expected text"):
        queue_base(7)  # type: ignore[arg-type]  # wrong on purpose


def test_now_ms_is_milliseconds_since_1970_and_ulids_are_in_order():
    assert 1_700_000_000_000 < now_ms() < 10**14
    made = [ulid() for _ in range(1000)]
    assert made == sorted(set(made))
    assert all(re.fullmatch("[0-9A-HJKMNP-TV-Z]{26}", each) for each in made)


@every
def test_a_wrapped_name_is_the_same_queue(both):
    job_id = both.q.publish("{jobs}", {"n": 1})
    assert taken(both).job_id == job_id


# Publish


@every
def test_publish_stores_json_text_and_returns_the_id(both):
    job_id = both.q.publish("jobs", {"to": "zoë", "n": [1, 2.5, None, True]}, now_ms_override=NOW)
    assert re.fullmatch("[0-9A-HJKMNP-TV-Z]{26}", job_id)
    job = both.store.job(job_id)
    assert job["payload"] == '{"to":"zoë","n":[1,2.5,null,true]}'
    assert {name: job[name] for name in ("id", "state", "attempt", "max_attempts", "timeout_ms", "backoff_ms")} == {
        "id": job_id, "state": "wait", "attempt": "0", "max_attempts": "3", "timeout_ms": "30000", "backoff_ms": "5000"
    }  # fmt: skip
    assert both.store.lines("wait") == [job_id]
    assert both.q.publish("jobs", [], job_id="mine") == "mine"
    assert both.store.job("mine")["payload"] == "[]"
    assert both.store.wrong() == []


@every
@pytest.mark.parametrize("payload", ["text", '{"a":1}', b"{}", 1, None, (1, 2), {1}])
def test_publish_takes_an_object_or_an_array_only(both, payload):
    with pytest.raises(TypeError, match="expected a dict or a list"):
        both.q.publish("jobs", payload)
    assert both.store.names() == set()


@every
def test_publish_takes_the_options_of_the_contract(both):
    both.q.publish("jobs", {}, job_id="a", timeout_ms=1000, max_attempts=7, backoff_ms=0, now_ms_override=NOW)
    job = both.store.job("a")
    assert (job["timeout_ms"], job["max_attempts"], job["backoff_ms"]) == ("1000", "7", "0")
    assert taken(both).lock_until_ms == NOW + 1000


@every
def test_a_job_with_a_future_due_ms_waits_in_delayed(both):
    both.q.publish("jobs", {}, job_id="later", due_ms=NOW + 1, now_ms_override=NOW)
    both.q.publish("jobs", {}, job_id="now", due_ms=NOW, now_ms_override=NOW)
    assert both.store.scores("delayed") == {"later": NOW + 1}
    assert both.store.lines("wait") == ["now"]
    assert both.store.job("later")["state"] == "delayed"


@every
def test_group_limit_initializes_the_limit_if_it_is_missing(both):
    both.q.publish("jobs", {}, gid="g", now_ms_override=NOW)
    assert both.store.number("g:g:limit") is None
    both.q.publish("jobs", {}, gid="g", group_limit=2, now_ms_override=NOW)
    both.q.publish("jobs", {}, gid="g", group_limit=5, now_ms_override=NOW)
    assert both.store.number("g:g:limit") == 2
    assert both.store.job(taken(both).job_id)["gid"] == "g"


@every
def test_a_blank_gid_means_no_group(both):
    both.q.publish("jobs", {}, job_id="a", gid="  ")
    both.q.publish("jobs", {}, job_id="b", gid=" g ")
    assert both.store.lines("wait") == ["a"]
    assert both.store.lines("g:g:wait") == ["b"]


# Reserve


@every
def test_reserve_returns_none_paused_or_a_job(both):
    assert both.q.reserve("jobs", now_ms_override=NOW) is None
    both.q.publish("jobs", {"a": 1}, job_id="one", timeout_ms=500, gid="g", now_ms_override=NOW)
    both.q.pause("jobs")
    paused = both.q.reserve("jobs", now_ms_override=NOW)
    assert paused is PAUSED
    assert PAUSED.status == "PAUSED"
    both.q.resume("jobs")
    job = taken(both)
    assert (job.status, job.job_id, job.lock_until_ms, job.attempt, job.gid) == ("JOB", "one", NOW + 500, 1, "g")
    assert json.loads(job.payload) == {"a": 1}
    assert job.lease_token
    assert both.store.job("one")["lease_token"] == job.lease_token
    assert both.store.scores("active") == {"one": NOW + 500}
    assert both.q.reserve("jobs", now_ms_override=NOW) is None
    assert both.store.wrong() == []


@every
def test_gid_is_empty_when_ungrouped_and_every_lease_has_a_token_of_its_own(both):
    for _ in range(5):
        both.q.publish("jobs", {}, now_ms_override=NOW)
    jobs = [taken(both) for _ in range(5)]
    assert {job.gid for job in jobs} == {""}
    assert len({job.lease_token for job in jobs}) == 5


@every
def test_the_ungrouped_lane_and_each_group_are_first_in_first_out(both):
    for number in range(4):
        for gid in ("", "a", "b"):
            both.q.publish("jobs", {}, job_id=f"{gid}{number}", gid=gid, now_ms_override=NOW + number)
    seen: dict[str, list[str]] = {"": [], "a": [], "b": []}
    for step in range(12):
        job = taken(both, NOW + 10 + step)
        seen[job.gid].append(job.job_id)
        both.q.ack_success("jobs", job.job_id, job.lease_token, now_ms_override=NOW + 10 + step)
    assert seen == {gid: [f"{gid}{number}" for number in range(4)] for gid in seen}
    assert both.q.reserve("jobs", now_ms_override=NOW + 30) is None
    assert both.store.wrong() == []


@every
def test_lanes_and_groups_take_turns(both):
    for number in range(6):
        for gid in ("", "a", "b"):
            both.q.publish("jobs", {}, job_id=f"{gid}-{number}", gid=gid, group_limit=9, now_ms_override=NOW)
    order = [taken(both, NOW + step).gid for step in range(12)]
    assert [gid == "" for gid in order] == [False, True] * 6
    assert {order.count("a"), order.count("b")} == {3}


@every
def test_a_group_never_has_more_active_jobs_than_its_limit(both):
    for number in range(5):
        both.q.publish("jobs", {}, job_id=str(number), gid="g", group_limit=2, now_ms_override=NOW)
    first, second = taken(both), taken(both)
    assert both.q.reserve("jobs", now_ms_override=NOW) is None
    both.q.ack_fail("jobs", first.job_id, first.lease_token, now_ms_override=NOW)
    assert taken(both).job_id == "2"
    assert both.q.reserve("jobs", now_ms_override=NOW) is None
    both.q.ack_success("jobs", second.job_id, second.lease_token, now_ms_override=NOW)
    assert taken(both).job_id == "3"
    assert both.q.reap_expired("jobs", now_ms_override=NOW + 30_000) == 2
    assert taken(both, NOW + 30_000).job_id == "4"
    assert both.store.wrong() == []


# Heartbeat


@every
def test_heartbeat_extends_a_lease_only_with_its_token(both):
    both.q.publish("jobs", {}, timeout_ms=1000, now_ms_override=NOW)
    job = taken(both)
    assert both.q.heartbeat("jobs", job.job_id, job.lease_token, now_ms_override=NOW + 400) == NOW + 1400
    with pytest.raises(TokenMismatch) as caught:
        both.q.heartbeat("jobs", job.job_id, "0" * 40, now_ms_override=NOW + 500)
    assert caught.value.code == "TOKEN_MISMATCH"
    assert both.store.scores("active") == {job.job_id: NOW + 1400}
    assert both.store.wrong() == []


@every
def test_heartbeat_of_an_expired_lease_that_was_not_reaped_succeeds(both):
    both.q.publish("jobs", {}, timeout_ms=1000, now_ms_override=NOW)
    job = taken(both)
    assert both.q.heartbeat("jobs", job.job_id, job.lease_token, now_ms_override=NOW + 5000) == NOW + 6000


# What all three refuse

VERBS = ("heartbeat", "ack_success", "ack_fail", "give_back")


@every
@pytest.mark.parametrize("verb", VERBS)
def test_not_active_is_surfaced(both, verb):
    both.q.publish("jobs", {}, job_id="waiting", now_ms_override=NOW)
    both.q.publish("jobs", {}, job_id="reaped", now_ms_override=NOW)
    call = getattr(both.q, verb)
    done = taken(both)
    both.q.ack_success("jobs", done.job_id, done.lease_token, now_ms_override=NOW)
    reaped = taken(both)
    both.q.reap_expired("jobs", now_ms_override=NOW + 30_000)
    before = both.store.lanes()
    for job_id, token in ((done.job_id, done.lease_token), (reaped.job_id, reaped.lease_token), ("unknown", "x")):
        with pytest.raises(NotActive) as caught:
            call("jobs", job_id, token, now_ms_override=NOW + 30_000)
        assert caught.value.code == "NOT_ACTIVE"
    assert both.store.lanes() == before


@every
@pytest.mark.parametrize("verb", VERBS)
def test_token_mismatch_is_surfaced_and_an_empty_token_refused(both, verb):
    both.q.publish("jobs", {}, job_id="a", timeout_ms=10, backoff_ms=0, now_ms_override=NOW)
    call = getattr(both.q, verb)
    first = taken(both)
    both.q.reap_expired("jobs", now_ms_override=NOW + 10)
    both.q.promote_delayed("jobs", now_ms_override=NOW + 10)
    second = taken(both, NOW + 10)
    assert second.attempt == 2
    before = both.store.job("a")
    with pytest.raises(TokenMismatch) as caught:
        call("jobs", "a", first.lease_token, now_ms_override=NOW + 10)
    assert caught.value.code == "TOKEN_MISMATCH"
    with pytest.raises(OmniQError) as refused:
        call("jobs", "a", "", now_ms_override=NOW + 10)
    assert refused.value.code == "TOKEN_REQUIRED"
    assert both.store.job("a") == before


# Acks


@every
def test_ack_success_completes_the_job(both):
    both.q.publish("jobs", {}, job_id="a", gid="g", now_ms_override=NOW)
    job = taken(both)
    assert both.q.ack_success("jobs", "a", job.lease_token, now_ms_override=NOW + 1) is None
    assert both.store.where("a") == ["completed"]
    assert both.store.job("a")["state"] == "completed"
    assert both.store.number("g:g:inflight") is None
    assert both.store.wrong() == []


@every
def test_a_late_ack_succeeds_until_the_lease_is_reaped(both):
    both.q.publish("jobs", {}, job_id="a", timeout_ms=10, now_ms_override=NOW)
    job = taken(both)
    both.q.ack_success("jobs", "a", job.lease_token, now_ms_override=NOW + 99_999)
    assert both.store.where("a") == ["completed"]


@every
def test_ack_fail_returns_retry_with_the_due_time_then_failed(both):
    both.q.publish("jobs", {}, job_id="a", max_attempts=2, backoff_ms=700, now_ms_override=NOW)
    job = taken(both)
    said = both.q.ack_fail("jobs", "a", job.lease_token, now_ms_override=NOW + 5, error="no luck")
    assert said == ("RETRY", NOW + 705)
    assert both.store.scores("delayed") == {"a": NOW + 705}
    assert both.store.job("a")["last_error"] == "no luck"
    assert both.q.promote_delayed("jobs", now_ms_override=NOW + 704) == 0
    assert both.q.promote_delayed("jobs", now_ms_override=NOW + 705) == 1
    again = taken(both, NOW + 705)
    assert again.attempt == 2
    assert both.q.ack_fail("jobs", "a", again.lease_token, now_ms_override=NOW + 706) == ("FAILED", None)
    assert both.store.where("a") == ["failed"]
    assert both.store.job("a")["last_error"] == "no luck"
    assert both.store.wrong() == []


@every
def test_a_backoff_of_zero_still_waits_for_a_promotion(both):
    both.q.publish("jobs", {}, job_id="a", backoff_ms=0, now_ms_override=NOW)
    assert both.q.ack_fail("jobs", "a", taken(both).lease_token, now_ms_override=NOW) == ("RETRY", NOW)
    assert both.q.reserve("jobs", now_ms_override=NOW) is None
    assert both.q.promote_delayed("jobs", now_ms_override=NOW) == 1
    assert taken(both).job_id == "a"


# Upkeep


@every
def test_promote_delayed_moves_what_is_due_in_order_and_no_more_than_asked(both):
    for name, due in (("c", 3), ("a", 1), ("b", 2), ("g", 2), ("later", 9)):
        both.q.publish("jobs", {}, job_id=name, due_ms=NOW + due, gid="g" if name == "g" else "", now_ms_override=NOW)
    assert both.q.promote_delayed("jobs", max_promote=2, now_ms_override=NOW + 5) == 2
    assert both.q.promote_delayed("jobs", now_ms_override=NOW + 5) == 2
    assert both.q.promote_delayed("jobs", now_ms_override=NOW + 5) == 0
    assert both.store.lines("wait") == ["a", "b", "c"]
    assert both.store.lines("g:g:wait") == ["g"]
    assert both.store.where("later") == ["delayed"]
    assert both.store.wrong() == []


@every
def test_promotion_appends(both):
    both.q.publish("jobs", {}, job_id="late", due_ms=NOW + 1, now_ms_override=NOW)
    both.q.publish("jobs", {}, job_id="first", now_ms_override=NOW + 50)
    both.q.promote_delayed("jobs", now_ms_override=NOW + 60)
    assert both.store.lines("wait") == ["first", "late"]


@every
def test_the_order_is_that_of_entering_also_when_a_clock_goes_back(both):
    both.q.publish("jobs", {}, job_id="a", now_ms_override=NOW + 50)
    both.q.publish("jobs", {}, job_id="b", now_ms_override=NOW)
    both.q.publish("jobs", {}, job_id="c", gid="g", now_ms_override=NOW + 50)
    both.q.publish("jobs", {}, job_id="d", gid="g", now_ms_override=NOW)
    assert both.store.lines("wait") == ["a", "b"]
    assert both.store.lines("g:g:wait") == ["c", "d"]


@every
def test_a_promoted_job_may_run_whatever_the_time_of_a_reserve(both):
    due = now_ms() + 3_600_000
    both.q.publish("jobs", {}, job_id="a", due_ms=due)
    assert both.q.promote_delayed("jobs", now_ms_override=due) == 1
    job = both.q.reserve("jobs")
    assert isinstance(job, Job)
    assert job.job_id == "a"
    assert both.q.reap_expired("jobs", now_ms_override=due) == 1
    assert both.q.promote_delayed("jobs", now_ms_override=due + 5000) == 1
    again = both.q.reserve("jobs")
    assert isinstance(again, Job)
    assert again.attempt == 2


@every
def test_reap_expired_ends_leases_that_are_over_oldest_first(both):
    for name, timeout in (("b", 20), ("a", 10), ("kept", 100)):
        both.q.publish("jobs", {}, job_id=name, timeout_ms=timeout, max_attempts=2, backoff_ms=7, now_ms_override=NOW)
    for _ in range(3):
        taken(both)
    assert both.q.reap_expired("jobs", now_ms_override=NOW + 9) == 0
    assert both.q.reap_expired("jobs", max_reap=1, now_ms_override=NOW + 20) == 1
    assert both.store.scores("delayed") == {"a": NOW + 27}
    assert both.q.reap_expired("jobs", now_ms_override=NOW + 20) == 1
    assert both.store.where("kept") == ["active"]
    assert both.store.wrong() == []


@every
def test_reap_of_the_last_attempt_fails_the_job(both):
    both.q.publish("jobs", {}, job_id="a", max_attempts=1, timeout_ms=10, now_ms_override=NOW)
    taken(both)
    assert both.q.reap_expired("jobs", now_ms_override=NOW + 10) == 1
    assert both.store.where("a") == ["failed"]
    assert both.store.wrong() == []


# Pause


@every
def test_pause_is_a_flag_that_stops_new_leases_and_nothing_else(both):
    for name in ("running", "waiting"):
        both.q.publish("jobs", {}, job_id=name, now_ms_override=NOW)
    both.q.publish("jobs", {}, job_id="delayed", due_ms=NOW + 5, now_ms_override=NOW)
    running = taken(both)
    before = both.store.lanes()
    assert both.q.pause("jobs") == "OK"
    assert both.q.is_paused("jobs") is True
    assert both.store.lanes() == before
    assert both.q.reserve("jobs", now_ms_override=NOW) is PAUSED
    both.q.publish("jobs", {}, job_id="new", now_ms_override=NOW)
    assert both.q.heartbeat("jobs", "running", running.lease_token, now_ms_override=NOW + 9) == NOW + 30_009
    assert both.q.promote_delayed("jobs", now_ms_override=NOW + 9) == 1
    assert both.q.reap_expired("jobs", now_ms_override=NOW + 9) == 0
    both.q.ack_success("jobs", "running", running.lease_token, now_ms_override=NOW + 9)
    assert both.q.reserve("jobs", now_ms_override=NOW + 9) is PAUSED
    assert both.q.resume("jobs") == 1
    assert both.q.resume("jobs") == 0
    assert both.q.is_paused("jobs") is False
    assert [taken(both, NOW + 9).job_id for _ in range(3)] == ["waiting", "new", "delayed"]


@every
def test_the_presence_of_the_key_means_paused_whatever_its_value(both):
    both.store.client.set(both.store.key("paused"), "")
    assert both.q.is_paused("jobs") is True
    assert both.q.reserve("jobs", now_ms_override=NOW) is PAUSED
    assert both.q.reserve("other", now_ms_override=NOW) is None
