"""Living together with the published clients omniq 1.7.0 and 4.0.0, which run as processes of their own."""

import json
import signal
import subprocess
import threading
from itertools import permutations
from typing import Any

import pytest

from taskharbor.omniq import Job, OmniQ, OmniQError, now_ms
from tests.omniq.conftest import DATABASE, url
from tests.omniq.peers import PROGRAM, VERSIONS, Refused, Side, python_of
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("omniq-interop")


PAIRS = [pair for pair in permutations(("ours", *VERSIONS), 2) if "ours" in pair]
both_ways = pytest.mark.parametrize(("one", "other"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])


@pytest.fixture
def pair(sides, server, one, other) -> tuple[Side, Side]:
    return sides[one], sides[other]


def taken(side: Side, now: int) -> Job:
    job = side.reserve("jobs", now)
    assert isinstance(job, Job)
    return job


@both_ways
def test_one_publishes_the_other_reserves_beats_and_acks(pair, store):
    a, b = pair
    now = now_ms() + 1000
    job_id = a.publish("jobs", {"to": "zoë", "n": 1}, gid="g", timeout_ms=5000)
    job = taken(b, now)
    assert (job.job_id, json.loads(job.payload), job.attempt, job.gid) == (job_id, {"to": "zoë", "n": 1}, 1, "g")
    assert job.lock_until_ms == now + 5000
    assert b.held("heartbeat", "jobs", job, now + 4000) >= now + 9000
    assert store.wrong() == []
    b.held("ack_success", "jobs", job, now + 4001)
    assert store.where(job_id) == ["completed"]
    assert a.reserve("jobs", now + 5000) is None
    assert store.wrong() == []


@both_ways
def test_a_lease_that_one_granted_the_other_can_keep_and_end(pair, store):
    a, b = pair
    now = now_ms() + 1000
    for number in range(3):
        a.publish("jobs", {"n": number}, job_id=str(number), gid="g", group_limit=3, backoff_ms=500)
    first, second, third = (taken(b, now) for _ in range(3))
    assert a.held("heartbeat", "jobs", first, now + 10) > now
    a.held("ack_success", "jobs", first, now + 20)
    assert a.held("ack_fail", "jobs", second, now + 20, error="no") == ("RETRY", now + 520)
    with pytest.raises((Refused, OmniQError), match="TOKEN_MISMATCH"):
        a.held("ack_success", "jobs", Job(**{**_fields(third), "lease_token": "x"}), now + 20)
    a.held("ack_success", "jobs", third, now + 20)
    assert store.wrong() == []
    assert store.number("g:g:inflight") in (None, 0)


def _fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__struct_fields__}


@both_ways
def test_one_fails_reaps_and_promotes_what_the_other_published(pair, store):
    a, b = pair
    now = now_ms() + 1000
    a.publish("jobs", {}, job_id="a", max_attempts=2, backoff_ms=100, timeout_ms=1000, gid="g")
    a.publish("jobs", {}, job_id="later", due_ms=now + 50)
    job = taken(b, now)
    assert b.verb("reap_expired", "jobs", max_reap=9, now_ms_override=now + 999) == 0
    assert b.verb("reap_expired", "jobs", max_reap=9, now_ms_override=now + 1000) == 1
    assert store.where("a") == ["delayed"]
    assert store.wrong() == []
    with pytest.raises((Refused, OmniQError)):
        b.held("ack_success", "jobs", job, now + 1001)
    assert a.verb("promote_delayed", "jobs", max_promote=9, now_ms_override=now + 1099) == 1
    assert b.verb("promote_delayed", "jobs", max_promote=9, now_ms_override=now + 1100) == 1
    again = [taken(a, now + 1100), taken(b, now + 1101)]
    assert sorted((job.job_id, job.attempt) for job in again) == [("a", 2), ("later", 1)]
    last = next(job for job in again if job.job_id == "a")
    assert b.held("ack_fail", "jobs", last, now + 1102, error="x") == ("FAILED", None)
    assert store.where("a") == ["failed"]
    assert store.job("a")["last_error"] == "x"
    a.verb("retry_failed", "jobs", job_id="a", now_ms_override=now + 1103)
    assert taken(b, now + 1104).attempt == 1
    assert store.wrong() == []


@both_ways
def test_a_pause_by_one_holds_for_the_other(pair, store):
    a, b = pair
    now = now_ms() + 1000
    b.publish("jobs", {}, job_id="a")
    assert a.verb("pause", "jobs") in ("OK", True)
    assert b.verb("is_paused", "jobs") is True
    assert b.reserve("jobs", now) == "PAUSED"
    assert b.verb("resume", "jobs") == 1
    assert taken(a, now).job_id == "a"


@both_ways
def test_group_limits_and_turns_hold_across_clients(pair, store):
    a, b = pair
    now = now_ms() + 1000
    for number in range(6):
        (a if number % 2 else b).publish("jobs", {}, job_id=f"g{number}", gid="g", group_limit=2)
        (b if number % 2 else a).publish("jobs", {}, job_id=f"u{number}")
    seen = [taken(a if step % 2 else b, now + step) for step in range(4)]
    assert [job.gid for job in seen] == ["g", "", "g", ""]
    assert taken(a, now + 5).gid == taken(b, now + 5).gid == ""
    assert store.number("g:g:inflight") == 2
    a.held("ack_success", "jobs", seen[0], now + 6)
    assert "g2" in (taken(b, now + 7).job_id, taken(b, now + 8).job_id)
    assert store.wrong() == []


@both_ways
def test_children_are_counted_across_clients(sides, server, one, other):
    a, b = sides[one]._client, sides[other]._client
    ours, peer = (a, b) if one == "ours" else (b, a)
    if one == "ours":
        ours.childs_init("batch", 2)
    else:
        peer.call("childs_init", key="batch", expected=2)
    assert ours.child_ack("batch", "x") == 1
    assert peer.call("child_ack", key="batch", child_id="x") == 1
    assert peer.call("child_ack", key="batch", child_id="y") == 0


def test_removal_by_one_of_what_another_published(sides, server, store):
    now = now_ms()
    for publisher in sides.values():
        for remover in sides.values():
            publisher.publish("jobs", {}, job_id="w")
            publisher.publish("jobs", {}, job_id="g", gid="g")
            publisher.publish("jobs", {}, job_id="d", due_ms=now + 10**6)
            for job_id, lane in (("w", "wait"), ("g", "gwait"), ("d", "delayed")):
                remover.verb("remove_job", "jobs", job_id=job_id, lane=lane)
            assert store.lanes() == [], (publisher, remover)
            assert store.wrong() == []


def test_the_monitors_numbers_are_right_after_each_of_our_moves(sides, server, store):
    """What 1.7.0 leaves behind in 4.0's index and statistics is mended by the next thing we do to the job."""
    now = now_ms() + 1000
    sides["4.0.0"].publish("jobs", {}, job_id="a", gid="g")
    job = taken(sides["1.7.0"], now)
    assert set(store.scores("idx:wait")) == {"a"}
    sides["ours"].held("ack_success", "jobs", job, now)
    assert {lane: set(store.scores(f"idx:{lane}")) for lane in ("wait", "active", "completed")} == {
        "wait": set(), "active": set(), "completed": {"a"}
    }  # fmt: skip
    stats = {name.decode(): value.decode() for name, value in store.client.hgetall(store.key("stats")).items()}
    assert (stats["active"], stats["completed_kept"], stats["waiting"]) == ("0", "1", "0")


def test_mixed_consumers_drain_500_jobs_in_20_groups_with_order_and_limits_kept(sides, server, raw, store):
    groups = [f"g{number:02}" for number in range(20)]
    limits = {gid: 1 + index % 3 for index, gid in enumerate(groups)}
    names = list(sides.values())
    for number in range(500):
        gid = groups[number * 7 % 20]
        names[number % 3].publish("jobs", {"n": number}, gid=gid, group_limit=limits[gid], timeout_ms=60_000)
    consumers = [
        subprocess.Popen(
            [python_of(version), "-I", str(PROGRAM), "127.0.0.1", str(server.port), str(DATABASE), "jobs"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for version in VERSIONS
    ]
    own = [OmniQ(url(server)) for _ in range(2)]
    threads = [threading.Thread(target=q.consume, args=("jobs", _noting(raw))) for q in own]
    try:
        for process in consumers:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for thread in threads:
            thread.start()
        servers.until(lambda: not store.scores("active") and not raw.keys(store.key("g:*:wait")), "an empty queue")
    finally:
        for process in consumers:
            process.send_signal(signal.SIGTERM)
        for q in own:
            q.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        for process in consumers:
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()
        for q in own:
            q.close()
    who = set()
    for gid in groups:
        runs = [json.loads(line) for line in raw.lrange(f"log:{gid}", 0, -1)]
        who |= {each[2] for each in runs}
        started = [each[0] for each in runs]
        assert len(started) == 25
        assert sorted(started) == [number for number in range(500) if groups[number * 7 % 20] == gid]
        assert max(each[1] for each in runs) <= limits[gid]
        # In order; with a limit above 1, those that run at the same time may note it in any order.
        if limits[gid] == 1:
            assert started == sorted(started)
        for at, each in enumerate(started):
            assert sum(1 for later in started[at:] if later < each) < limits[gid]
    assert who == {"peer", "ours"}
    assert store.wrong() == []


def _noting(raw: Any) -> Any:
    def handler(ctx: Any) -> None:
        raw.rpush("began:ours", 1)
        raw.execute_command("BRPOPLPUSH", "began:peer", "began:peer", 60)  # until the other side runs a job, too
        running = raw.incr(f"running:{ctx.gid}")
        raw.rpush(f"log:{ctx.gid}", json.dumps([ctx.payload["n"], running, "ours"]))
        raw.decr(f"running:{ctx.gid}")

    return handler
