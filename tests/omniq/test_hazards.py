"""The hazards of the published clients, by their numbers: none of them exists here.

Consumers (23, 24) have a file of their own. 11, 15, 19 and 28 belong to the format; docs/omniq.md has a paragraph each.
"""

import time

import pytest
import redis

from taskharbor.omniq import Job, OmniQError, now_ms, operations, queue_base
from tests.omniq.store import Store
from tests.servers.redis import shared_cluster

NOW = 1_800_000_000_000


def taken(q, now=NOW) -> Job:
    job = q.reserve("jobs", now_ms_override=now)
    assert isinstance(job, Job)
    return job


def publish(q, job_id, now=NOW, **options):
    return q.publish("jobs", {"id": job_id}, job_id=job_id, now_ms_override=now, **options)


def complete(q, number, now=NOW):
    for each in range(number):
        publish(q, f"filler{each}", now)
    for _ in range(number):
        job = taken(q, now)
        q.ack_success("jobs", job.job_id, job.lease_token, now_ms_override=now)


def test_hazard_1_a_lease_never_grows_by_being_renewed_often(q, store):
    publish(q, "a", timeout_ms=60_000)
    job = taken(q)
    for second in range(10, 3600, 10):
        lock = q.heartbeat("jobs", "a", job.lease_token, now_ms_override=NOW + second * 1000)
        assert lock == NOW + second * 1000 + 60_000
    # A beat by a clock that is behind takes nothing away.
    assert q.heartbeat("jobs", "a", job.lease_token, now_ms_override=NOW) == lock
    assert store.wrong() == []


def test_hazard_2_a_live_id_is_not_published_twice_so_no_group_place_is_lost(q, store):
    for _ in range(2):
        assert publish(q, "a", gid="g", group_limit=2) == "a"
    assert store.lines("g:g:wait") == ["a"]
    job = taken(q)
    assert publish(q, "a", gid="g") == "a"
    assert q.reserve("jobs", now_ms_override=NOW) is None
    q.ack_success("jobs", "a", job.lease_token, now_ms_override=NOW)
    assert store.number("g:g:inflight") is None
    publish(q, "b", due_ms=NOW + 9)
    assert publish(q, "b") == "b"
    assert store.where("b") == ["delayed"]
    assert store.wrong() == []


def test_hazard_3_publishing_the_id_of_a_running_job_changes_nothing(q, store):
    publish(q, "a")
    job = taken(q)
    before = store.job("a")
    assert q.publish("jobs", {"other": 1}, job_id="a", now_ms_override=NOW + 5) == "a"
    assert store.job("a") == before
    q.ack_success("jobs", "a", job.lease_token, now_ms_override=NOW + 6)
    assert q.reserve("jobs", now_ms_override=NOW + 7) is None
    assert store.wrong() == []


def test_hazard_4_an_id_that_begins_anew_has_nothing_of_its_old_life(q, store):
    publish(q, "holder", gid="g")
    taken(q)
    publish(q, "a", gid="other")
    job = taken(q)
    q.ack_fail("jobs", "a", job.lease_token, now_ms_override=NOW, error="old")
    q.promote_delayed("jobs", now_ms_override=NOW + 5000)
    job = taken(q, NOW + 5000)
    q.ack_success("jobs", "a", job.lease_token, now_ms_override=NOW + 5000)
    publish(q, "a", now=NOW + 6000)
    assert store.where("a") == ["wait"]
    assert {"gid", "last_error", "completed_ms", "due_ms"} - store.job("a").keys() == {
        "gid",
        "last_error",
        "completed_ms",
        "due_ms",
    }
    again = taken(q, NOW + 6000)
    assert (again.gid, again.attempt) == ("", 1)
    q.ack_success("jobs", "a", again.lease_token, now_ms_override=NOW + 6000)
    assert store.number("g:g:inflight") == 1
    assert store.wrong() == []


def test_hazard_5_trimming_completed_never_deletes_a_job_that_lives_again(q, store):
    complete(q, 1)
    publish(q, "filler0", due_ms=NOW + 50)
    assert store.where("filler0") == ["delayed"]
    for number in range(120):
        publish(q, f"more{number}")
        job = taken(q)
        q.ack_success("jobs", job.job_id, job.lease_token, now_ms_override=NOW)
    assert len(store.lines("completed")) == 100
    assert len(store.names("job:*")) == 101
    # A peer that published the id again left it in the list: trimming goes by the state, not by the list.
    store.client.rpush(store.key("completed"), "filler0")
    publish(q, "last")
    job = taken(q)
    q.ack_success("jobs", "last", job.lease_token, now_ms_override=NOW)
    q.promote_delayed("jobs", now_ms_override=NOW + 50)
    assert taken(q, NOW + 50).payload == '{"id":"filler0"}'
    assert store.wrong() == []


def test_hazard_6_ids_without_a_payload_are_skipped_not_delivered(q, store):
    publish(q, "sound", now=NOW)
    store.client.lpush(store.key("wait"), "ghost")
    store.client.hset(store.key("job:stub"), mapping={"state": "wait", "attempt": "0"})
    store.client.lpush(store.key("wait"), "stub")
    store.client.zadd(store.key("delayed"), {"phantom": NOW, "shade": NOW})
    store.client.hset(store.key("job:shade"), mapping={"state": "delayed", "due_ms": str(NOW)})
    assert q.promote_delayed("jobs", now_ms_override=NOW) == 0
    assert taken(q).job_id == "sound"
    assert q.reserve("jobs", now_ms_override=NOW) is None
    assert store.names("job:*") == {"job:sound"}
    assert store.wrong() == []


def test_hazard_6_a_ghost_in_a_group_takes_no_group_place(q, store):
    publish(q, "a", gid="g")
    publish(q, "b", gid="g")
    store.client.delete(store.key("job:a"))
    assert taken(q).job_id == "b"
    assert store.wrong() == []


def test_hazard_7_reaping_an_id_without_a_record_frees_its_group_place(q, store):
    publish(q, "lost", gid="g", timeout_ms=10)
    publish(q, "next", gid="g")
    publish(q, "other", gid="h")
    for _ in range(2):
        taken(q)
    store.client.delete(store.key("job:lost"))
    assert q.reserve("jobs", now_ms_override=NOW) is None
    assert q.reap_expired("jobs", now_ms_override=NOW + 10) == 1
    assert taken(q, NOW + 10).job_id == "next"
    assert store.number("g:h:inflight") == 1
    assert store.wrong() == []


def test_hazard_8_a_reserve_whose_reply_was_lost_gives_the_same_job_again(q, store):
    publish(q, "a", max_attempts=1)
    call = operations.reserve("jobs", NOW)
    first, again = q._runner.run(call), q._runner.run(call)
    assert first == again
    assert store.job("a")["attempt"] == "1"
    q.ack_success("jobs", "a", again.lease_token, now_ms_override=NOW)
    assert store.where("a") == ["completed"]


def test_hazard_8_a_lost_lease_is_not_a_recorded_failure_and_has_a_reason(q, store):
    publish(q, "a", max_attempts=1, timeout_ms=10)
    taken(q)
    q.reap_expired("jobs", now_ms_override=NOW + 10)
    job = store.job("a")
    assert (job["state"], job["th_fail"], job["th_lost"]) == ("failed", "0", "1")
    assert job["last_error"] == "LeaseExpired: the lease ended without an ack"
    publish(q, "b", max_attempts=2)
    b = taken(q, NOW + 10)
    q.ack_fail("jobs", "b", b.lease_token, now_ms_override=NOW + 10, error="x")
    assert (store.job("b")["th_fail"], store.job("b")["attempt"]) == ("1", "1")


def test_hazard_9_a_wrong_clock_of_a_client_changes_nothing(q, store, monkeypatch):
    q.publish("jobs", {}, job_id="a", timeout_ms=60_000)
    job = q.reserve("jobs")
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 120)
    assert now_ms() > right() * 1000 + 100_000
    assert q.reap_expired("jobs") == 0
    lock = q.heartbeat("jobs", "a", job.lease_token)
    seconds, _ = store.client.time()
    assert seconds * 1000 + 50_000 < lock < seconds * 1000 + 62_000
    monkeypatch.setattr(time, "time", lambda: right() - 120)
    q.publish("jobs", {}, job_id="b", timeout_ms=60_000, due_ms=int(right() * 1000) + 3_600_000)
    q.publish("jobs", {}, job_id="c", timeout_ms=60_000)
    assert q.reserve("jobs").lock_until_ms > right() * 1000 + 50_000
    assert store.where("b") == ["delayed"]


def test_hazard_10_a_busy_group_keeps_its_turn(q, store):
    for number in range(40):
        publish(q, f"b{number}", gid="b", group_limit=99)
    seen = []
    for number in range(40):
        publish(q, f"a{number}", now=NOW + number, gid="a", group_limit=99)
        seen.append(taken(q, NOW + number).gid)
    assert 18 <= seen.count("a") <= 22


def test_hazard_12_stale_and_full_groups_do_not_hide_work(q, store):
    store.client.zadd(store.key("groups:ready"), {f"stale{number}": 1 for number in range(30)})
    publish(q, "only", gid="z")
    assert taken(q).job_id == "only"
    assert store.scores("groups:ready") == {}
    for number in range(12):
        for each in range(3):
            publish(q, f"full{number}-{each}", gid=f"full{number}", group_limit=2)
    for _ in range(12):
        taken(q)
    for number in range(12):
        store.client.set(store.key(f"g:full{number}:limit"), "1")
    publish(q, "more", gid="y")
    assert taken(q).job_id == "more"
    assert q.reserve("jobs", now_ms_override=NOW) is None


@pytest.mark.parametrize("limit", ["0", "-3", "x"])
def test_hazard_13_a_limit_that_is_not_positive_counts_as_one_everywhere(q, store, limit):
    store.client.set(store.key("g:g:limit"), limit)
    for each in ("a", "b"):
        publish(q, each, gid="g")
    job = taken(q)
    assert q.reserve("jobs", now_ms_override=NOW) is None
    q.ack_success("jobs", job.job_id, job.lease_token, now_ms_override=NOW)
    assert taken(q).job_id == "b"


def test_hazard_13b_a_limit_brought_by_a_delayed_job_counts_at_once(q, store):
    publish(q, "a", gid="g")
    publish(q, "b", gid="g")
    taken(q)
    assert q.reserve("jobs", now_ms_override=NOW) is None
    publish(q, "later", gid="g", group_limit=3, due_ms=NOW + 5000)
    assert taken(q).job_id == "b"
    assert store.wrong() == []


def test_hazard_14_a_raised_limit_counts_at_once_and_a_lowered_one_too(q, store):
    for each in ("a", "b", "c"):
        publish(q, each, gid="g")
    taken(q)
    q.set_group_limit("jobs", "g", 2)
    b = taken(q)
    assert b.job_id == "b"
    q.set_group_limit("jobs", "g", 1)
    q.ack_success("jobs", "b", b.lease_token, now_ms_override=NOW)
    assert q.reserve("jobs", now_ms_override=NOW) is None
    for bad in (0, -1, True, 2**31):
        with pytest.raises((ValueError, TypeError)):
            q.set_group_limit("jobs", "g", bad)
    with pytest.raises(ValueError, match="gid"):
        q.set_group_limit("jobs", " ", 1)


def test_hazard_16_an_error_is_cut_between_characters(q, store):
    publish(q, "a")
    q.ack_fail("jobs", "a", taken(q).lease_token, now_ms_override=NOW, error="x" + "é" * 4000 + "\x00\ud800")
    raw = store.client.hget(store.key("job:a"), "last_error")
    assert len(raw) == 4095
    assert raw.decode() == "x" + "é" * 2047
    publish(q, "b")
    q.ack_fail("jobs", "b", taken(q).lease_token, now_ms_override=NOW, error="a\x00b\ud800")
    assert store.job("b")["last_error"] == "a\ufffdb\ufffd"


def test_hazard_16_a_text_client_reads_what_a_peer_cut(server, q, store):
    publish(q, "a")
    store.client.hset(store.key("job:a"), mapping={"payload": b'{"x":"\xc3', "last_error": b"\xc3"})
    with redis.Redis(host="127.0.0.1", port=server.port, db=9, decode_responses=True) as text_client:
        from taskharbor.omniq import OmniQ

        other = OmniQ(text_client)
        job = other.reserve("jobs", now_ms_override=NOW)
        assert isinstance(job, Job)
        assert job.payload.encode("utf-8", "surrogateescape") == b'{"x":"\xc3'
        with pytest.raises(ValueError, match="not JSON"):
            job.json()
        other.ack_success("jobs", job.job_id, job.lease_token, now_ms_override=NOW)


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout_ms", 10**12 + 1), ("timeout_ms", 0), ("backoff_ms", 10**12 + 1), ("backoff_ms", -1), ("due_ms", 10**14),
     ("due_ms", -1), ("max_attempts", 0), ("max_attempts", 2**31), ("group_limit", -1), ("now_ms_override", 10**14),
     ("timeout_ms", 2**200)],
)  # fmt: skip
def test_hazard_17_numbers_that_lua_would_print_as_1e14_are_refused(q, store, name, value):
    with pytest.raises(ValueError, match=f"{name}: expected"):
        q.publish("jobs", {}, **{name: value})
    with pytest.raises(TypeError, match=f"{name}: expected a whole number"):
        q.publish("jobs", {}, **{name: 1.5})
    assert store.names() == set()


def test_hazard_17_the_longest_numbers_are_kept_exactly(q, store):
    late = 10**14 - 1
    publish(q, "a", timeout_ms=10**12, backoff_ms=10**12)
    job = taken(q)
    assert job.lock_until_ms == NOW + 10**12
    assert q.heartbeat("jobs", "a", job.lease_token, now_ms_override=late) == late + 10**12
    assert q.ack_fail("jobs", "a", job.lease_token, now_ms_override=late) == ("RETRY", late + 10**12)
    assert store.job("a")["due_ms"] == str(late + 10**12)
    publish(q, "b", due_ms=late)
    assert store.job("b")["due_ms"] == str(late)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_hazard_18_what_is_not_json_is_refused(q, store, value):
    for payload in ({"n": value}, [value], {"deep": [{"n": value}]}):
        with pytest.raises(ValueError, match="which JSON cannot hold"):
            q.publish("jobs", payload)
    with pytest.raises(TypeError, match="a key of type int"):
        q.publish("jobs", {1: "a"})
    with pytest.raises(ValueError, match="surrogate"):
        q.publish("jobs", {"a": "\ud800"})
    assert store.names() == set()


def test_hazard_20_the_same_call_sent_again_returns_and_does_nothing_twice(q, store):
    run = q._runner.run
    again = operations.publish(
        "jobs", {}, job_id="a", timeout_ms=1000, max_attempts=2, backoff_ms=0, now_ms_override=NOW
    )
    assert run(again) == run(again) == "a"
    job = taken(q)
    assert run(again) == "a"
    fail = operations.ack_fail("jobs", "a", job.lease_token, NOW + 1, "x")
    assert run(fail) == run(fail) == ("RETRY", NOW + 1)
    assert store.job("a")["th_fail"] == "1"
    q.promote_delayed("jobs", now_ms_override=NOW + 1)
    job = taken(q, NOW + 1)
    final = operations.ack_fail("jobs", "a", job.lease_token, NOW + 2, "x")
    assert run(final) == run(final) == ("FAILED", None)
    retry = operations.retry_failed("jobs", "a", NOW + 3)
    assert run(retry) is run(retry) is None
    job = taken(q, NOW + 3)
    back = operations.give_back("jobs", "a", job.lease_token, NOW + 4)
    assert run(back) is run(back) is None
    job = taken(q, NOW + 4)
    ack = operations.ack_success("jobs", "a", job.lease_token, NOW + 5)
    assert run(ack) is run(ack) is None
    assert store.lines("completed") == ["a"]
    # The call that published it comes once more, late: the job is not run again.
    assert (
        run(
            operations.publish(
                "jobs", {}, job_id="b", timeout_ms=1000, max_attempts=2, backoff_ms=0, now_ms_override=NOW
            )
        )
        == "b"
    )
    assert store.wrong() == []


def test_hazard_20_a_publish_that_comes_again_after_the_job_ended_does_not_run_it_again(q, store):
    again = operations.publish(
        "jobs", {}, job_id="a", timeout_ms=1000, max_attempts=2, backoff_ms=0, now_ms_override=NOW
    )
    q._runner.run(again)
    job = taken(q)
    q.ack_success("jobs", "a", job.lease_token, now_ms_override=NOW)
    assert q._runner.run(again) == "a"
    assert store.where("a") == ["completed"]
    # Another call with that id is another job.
    publish(q, "a")
    assert store.where("a") == ["wait"]


def test_hazard_20_another_ack_with_the_same_token_is_refused(q):
    publish(q, "a")
    job = taken(q)
    q.ack_success("jobs", "a", job.lease_token, now_ms_override=NOW)
    with pytest.raises(OmniQError, match="NOT_ACTIVE"):
        q.ack_success("jobs", "a", job.lease_token, now_ms_override=NOW)
    with pytest.raises(OmniQError, match="NOT_ACTIVE"):
        q.ack_fail("jobs", "a", job.lease_token, now_ms_override=NOW)


def test_hazard_21_nothing_grows_without_bound(q, store):
    for number in range(300):
        publish(q, f"job{number}", gid=f"g{number}")
    for _ in range(300):
        job = taken(q)
        q.ack_success("jobs", job.job_id, job.lease_token, now_ms_override=NOW)
    assert store.names("g:*") == set()
    assert len(store.names("job:*")) == len(store.lines("completed")) == len(store.scores("idx:completed")) == 100
    assert {name for name in store.names() if not name.startswith("job:")} == {
        "completed", "idx:completed", "stats", "has_groups", "lane:rr", "th:seq"
    }  # fmt: skip


def test_hazard_21_failed_jobs_can_be_purged(q, store):
    for number in range(5):
        publish(q, f"f{number}", max_attempts=1)
        q.ack_fail("jobs", f"f{number}", taken(q).lease_token, now_ms_override=NOW + number)
    assert q.purge_failed("jobs", before_ms=NOW + 3, max_purge=2) == 2
    assert store.lines("failed") == ["f4", "f3", "f2"]
    assert q.purge_failed("jobs", before_ms=NOW + 3) == 1
    assert store.lines("failed") == ["f4", "f3"]
    assert store.names("job:*") == {"job:f3", "job:f4"}
    assert set(store.scores("idx:failed")) == {"f3", "f4"}


def test_a_purge_takes_the_entry_that_it_found_at_the_end(q, store):
    """Of jobs that failed in the same millisecond, too: searching from the other end is what takes long."""
    publish(q, "twice", max_attempts=1)
    q.ack_fail("jobs", "twice", taken(q).lease_token, now_ms_override=NOW)
    store.client.lpush("{jobs}:failed", *["other"] * 1000, "twice")
    assert q.purge_failed("jobs", before_ms=NOW + 1, max_purge=1) == 1
    assert store.lines("failed") == ["twice", *["other"] * 1000]


def test_a_key_of_another_program_is_left_alone(q, store):
    store.client.set("{jobs}:meta", "theirs")
    publish(q, "one")
    taken(q)
    assert store.client.get("{jobs}:meta") in ("theirs", b"theirs")


def test_hazard_21_child_counters_end_by_themselves(q, raw):
    q.childs_init("batch", 2, ttl_ms=50_000)
    q.child_ack("batch", "a")
    for key in ("{cc:batch}:count", "{cc:batch}:done"):
        assert 0 < raw.pttl(key) <= 50_000
    q.child_ack("batch", "b")
    left = set(raw.keys("{cc:batch}*"))
    assert left == {b"{cc:batch}:th:over"}
    assert 0 < raw.pttl("{cc:batch}:th:over") <= 86_400_000


def test_hazard_22_the_end_of_a_fan_in_is_returned_again(q):
    q.childs_init("batch", 2)
    assert q.child_ack("batch", "a") == 1
    assert q.child_ack("batch", "a") == 1
    assert q.child_ack("batch", "b") == 0
    assert q.child_ack("batch", "b") == 0  # its worker died before it acted on the first answer
    with pytest.raises(OmniQError, match="NO_COUNTER"):
        q.child_ack("batch", "stranger")
    q.childs_init("batch", 1)
    assert q.child_ack("batch", "b") == 0


def test_hazard_22_a_lost_connection_is_an_error_not_minus_one(server):
    from taskharbor import BackendUnavailable
    from taskharbor.omniq import OmniQ

    with OmniQ("redis://127.0.0.1:1/0") as nobody, pytest.raises(BackendUnavailable):
        nobody.child_ack("batch", "a")


def test_hazard_25_a_failed_id_that_is_published_again_leaves_the_failed_list(q, store):
    for _ in range(2):
        publish(q, "a", max_attempts=1)
        q.ack_fail("jobs", "a", taken(q).lease_token, now_ms_override=NOW)
    assert store.lines("failed") == ["a"]
    publish(q, "a")
    assert store.where("a") == ["wait"]
    assert store.wrong() == []


@pytest.mark.parametrize("name", ["}{", "{}", "a{}", "}a{", "a}b{c"])
def test_hazard_26_names_without_a_hash_tag_are_refused(q, name):
    for call in (lambda: queue_base(name), lambda: q.publish(name, {}), lambda: q.reserve(name), lambda: q.pause(name)):
        with pytest.raises(ValueError, match="hash tag"):
            call()


def test_hazard_26_every_accepted_name_works_on_a_cluster():
    from taskharbor.omniq import OmniQ

    cluster = shared_cluster()
    cluster.empty()
    with OmniQ(cluster.url) as q, cluster.client() as raw:
        for number in range(30):
            name = f"{{q:{number}}}" if number % 2 else f"q:{number}é"
            q.publish(name, {}, job_id="a", gid="g", group_limit=2)
            job = q.reserve(name)
            assert isinstance(job, Job)
            q.ack_success(name, "a", job.lease_token)
            assert Store(raw, name).wrong() == []


def test_hazard_27_a_removal_that_is_refused_changes_nothing(q, store):
    publish(q, "a", gid="g")
    publish(q, "b", gid="g")
    taken(q)
    store.client.zrem(store.key("active"), "a")
    store.client.hset(store.key("job:a"), "state", "wait")
    before = store.number("g:g:inflight")
    with pytest.raises(OmniQError, match="NOT_IN_LANE"):
        q.remove_job("jobs", "a", "gwait")
    assert store.number("g:g:inflight") == before == 1
    assert store.job("a")["state"] == "wait"
