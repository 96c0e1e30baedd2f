"""What published clients have beyond the contract: retry, removal, children; and what both clients have in common."""

import inspect

import pytest

import taskharbor.omniq
from taskharbor.omniq import AsyncOmniQ, BatchItem, Job, OmniQ, OmniQError
from tests.omniq.conftest import KINDS

NOW = 1_800_000_000_000
every = pytest.mark.parametrize("both", KINDS, indirect=True)


def fail(q, job_id, **options):
    q.publish("jobs", {}, job_id=job_id, max_attempts=1, now_ms_override=NOW, **options)
    job = q.reserve("jobs", now_ms_override=NOW)
    assert isinstance(job, Job)
    q.ack_fail("jobs", job.job_id, job.lease_token, now_ms_override=NOW, error="x")


def code_of(call):
    with pytest.raises(OmniQError) as caught:
        call()
    return caught.value.code


@every
def test_retry_failed_lets_a_job_begin_anew(both):
    fail(both.q, "a", gid="g")
    both.q.retry_failed("jobs", "a", now_ms_override=NOW + 1)
    job = both.store.job("a")
    assert (job["state"], job["attempt"], job["max_attempts"], job["last_error"]) == ("wait", "0", "1", "x")
    assert both.q.reserve("jobs", now_ms_override=NOW + 1).attempt == 1
    assert code_of(lambda: both.q.retry_failed("jobs", "a")) == "NOT_FAILED"
    assert code_of(lambda: both.q.retry_failed("jobs", "unknown")) == "NO_JOB"
    assert both.store.wrong() == []


@every
def test_retry_failed_batch_returns_a_result_for_each_id(both):
    for each in ("a", "b"):
        fail(both.q, each)
    both.q.publish("jobs", {}, job_id="waiting", now_ms_override=NOW)
    said = both.q.retry_failed_batch("jobs", ["a", "waiting", "unknown", "b"], now_ms_override=NOW)
    assert said == [("a", None), ("waiting", "NOT_FAILED"), ("unknown", "NO_JOB"), ("b", None)]
    assert isinstance(said[0], BatchItem)
    assert both.store.lines("wait") == ["waiting", "a", "b"]
    assert code_of(lambda: both.q.retry_failed_batch("jobs", [str(n) for n in range(101)])) == "BATCH_TOO_LARGE"
    assert code_of(lambda: both.q.retry_failed_batch("jobs", [])) == "BAD_ARGS"
    assert both.store.wrong() == []


@every
def test_remove_job_takes_a_job_from_its_lane(both):
    q, store = both
    fail(q, "failed")
    q.publish("jobs", {}, job_id="done", now_ms_override=NOW)
    done = q.reserve("jobs", now_ms_override=NOW)
    q.ack_success("jobs", "done", done.lease_token, now_ms_override=NOW)
    q.publish("jobs", {}, job_id="running", now_ms_override=NOW)
    q.reserve("jobs", now_ms_override=NOW)
    q.publish("jobs", {}, job_id="waiting", now_ms_override=NOW)
    q.publish("jobs", {}, job_id="grouped", gid="g", now_ms_override=NOW)
    q.publish("jobs", {}, job_id="delayed", due_ms=NOW + 9, now_ms_override=NOW)
    assert code_of(lambda: q.remove_job("jobs", "running", "wait")) == "ACTIVE"
    assert code_of(lambda: q.remove_job("jobs", "unknown", "wait")) == "NO_JOB"
    assert code_of(lambda: q.remove_job("jobs", "grouped", "wait")) == "LANE_MISMATCH"
    assert code_of(lambda: q.remove_job("jobs", "waiting", "gwait")) == "LANE_MISMATCH"
    assert code_of(lambda: q.remove_job("jobs", "waiting", "failed")) == "LANE_MISMATCH"
    assert code_of(lambda: q.remove_job("jobs", "waiting", "active")) == "BAD_LANE"
    for job_id, lane in (("waiting", "wait"), ("grouped", "gwait"), ("delayed", "delayed"), ("failed", "failed"),
                         ("done", "completed")):  # fmt: skip
        q.remove_job("jobs", job_id, lane)
    assert store.names("job:*") == {"job:running"}
    assert store.lanes() == [("active", "running")]
    assert store.scores("groups:ready") == {}
    assert store.wrong() == []


@every
def test_remove_jobs_batch_returns_a_result_for_each_id(both):
    for each in ("a", "b"):
        both.q.publish("jobs", {}, job_id=each, now_ms_override=NOW)
    said = both.q.remove_jobs_batch("jobs", "wait", ["a", "unknown", "b"])
    assert said == [("a", None), ("unknown", "NO_JOB"), ("b", None)]
    assert both.store.lanes() == []
    assert code_of(lambda: both.q.remove_jobs_batch("jobs", "wait", "ab")) == "BAD_ARGS"
    assert code_of(lambda: both.q.remove_jobs_batch("jobs", "nowhere", ["a"])) == "BAD_LANE"


@every
def test_children_are_counted_once_each(both):
    q = both.q
    q.childs_init(" batch ", 2)
    assert code_of(lambda: q.childs_init("batch", 2)) == "ALREADY_INIT"
    assert [q.child_ack("batch", child) for child in ("a", "a", "b", "a", "b")] == [1, 1, 0, 0, 0]
    assert code_of(lambda: q.child_ack("other", "a")) == "NO_COUNTER"
    assert code_of(lambda: q.child_ack("batch", " ")) == "CHILD_REQUIRED"
    assert code_of(lambda: q.childs_init("batch", None)) == "NO_EXPECTED"
    assert code_of(lambda: q.childs_init("batch", 0)) == "BAD_EXPECTED"
    for key in ("", "{a}", "x" * 129):
        with pytest.raises(ValueError, match="key"):
            q.childs_init(key, 1)


@every
def test_give_back_costs_no_attempt(both):
    q = both.q
    for each in ("a", "b"):
        q.publish("jobs", {}, job_id=each, gid="g", max_attempts=2, backoff_ms=0, now_ms_override=NOW)
    for _ in range(4):
        job = q.reserve("jobs", now_ms_override=NOW)
        q.give_back("jobs", job.job_id, job.lease_token, now_ms_override=NOW)
    assert both.store.lines("g:g:wait") == ["a", "b"]
    job = q.reserve("jobs", now_ms_override=NOW)
    assert (job.job_id, job.attempt) == ("a", 3)
    assert q.ack_fail("jobs", "a", job.lease_token, now_ms_override=NOW) == ("RETRY", NOW)
    q.remove_job("jobs", "b", "gwait")
    q.promote_delayed("jobs", now_ms_override=NOW)
    job = q.reserve("jobs", now_ms_override=NOW)
    assert q.ack_fail("jobs", "a", job.lease_token, now_ms_override=NOW) == ("FAILED", None)
    assert both.store.wrong() == []


@every
def test_a_script_that_the_server_forgot_is_loaded_again(both):
    both.q.publish("jobs", {}, job_id="a")
    both.store.client.script_flush()
    assert both.q.reserve("jobs").job_id == "a"


# Both clients


def test_both_clients_have_the_same_methods_with_the_same_signatures_and_help():
    def public(kind):
        found = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
        return {name: (str(inspect.signature(value)), inspect.getdoc(value)) for name, value in found.items()}

    assert public(OmniQ) == public(AsyncOmniQ)
    assert all(said for _, said in public(OmniQ).values())


def test_the_signature_of_a_method_is_that_of_its_operation_without_the_call():
    bound = inspect.signature(OmniQ("redis://localhost").retry_failed_batch)
    assert str(bound) == "(queue: 'str', job_ids: 'Sequence[str]', now_ms_override: 'int' = 0) -> 'list[BatchItem]'"
    assert inspect.iscoroutinefunction(AsyncOmniQ.publish)
    assert inspect.iscoroutinefunction(AsyncOmniQ.consume)


def test_public_names_are_documented():
    assert sorted(taskharbor.omniq.__all__) == sorted(set(taskharbor.omniq.__all__))
    for name in ("OmniQ", "AsyncOmniQ", "Job", "JobContext", "queue_base", "now_ms", "ulid", "OmniQError"):
        assert getattr(taskharbor.omniq, name).__doc__


@pytest.mark.parametrize("kind", [OmniQ, AsyncOmniQ])
@pytest.mark.parametrize("target", [None, 7, object(), "http://x", "localhost:6379", ""])
def test_an_invalid_address_is_refused_without_repeating_it(kind, target):
    with pytest.raises((TypeError, ValueError), match="expected a URL"):
        kind(target)


def test_an_asynchronous_client_is_refused_by_the_synchronous_face(server):
    import redis.asyncio

    with pytest.raises(TypeError, match="use AsyncOmniQ"):
        OmniQ(redis.asyncio.Redis(port=server.port))
