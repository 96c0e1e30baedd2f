"""Every operation as a value: its script, its arguments, how its reply is read. Pure; no I/O.

Both clients have these as methods, with these signatures and docstrings. Arguments are checked here, before anything
is sent: whole numbers within bounds that every client can print (a peer's Lua writes 1e+14 for larger ones), text that
every client can read.

Each call carries a random mark, which the scripts store with what they change. So the same call sent again (by redis-py
after a lost connection) returns the same reply, and does nothing twice.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from taskharbor.model.bounds import clean_error
from taskharbor.model.clock import StoreClock
from taskharbor.model.codec import JsonCodec
from taskharbor.model.ids import new_id
from taskharbor.model.safe_repr import shows
from taskharbor.model.times import to_ms
from taskharbor.omniq.values import LANES, PAUSED, AckFailResult, BatchItem, Job, Lane, ReserveResult, refusal

T = TypeVar("T")

TIMEOUT_MS, MAX_ATTEMPTS, BACKOFF_MS = 30_000, 3, 5_000  # defaults of publish
LONGEST_MS = 10**12  # 31 years: a duration
LATEST_MS = 10**14 - 1  # the year 5138: a moment
MAX_NUMBER = 2**31 - 1
MAX_BATCH_IDS = 100
MAX_PAYLOAD_BYTES = 500_000_000  # Redis closes the connection at 512 MB
MAX_ERROR_BYTES = 4096  # other clients cut longer ones, in the middle of a character
CHILDREN_TTL_MS = 30 * 24 * 3600 * 1000

_json = JsonCodec()


@shows("script", "base")
class OmniqCall(NamedTuple, Generic[T]):
    """One call of a script: its name, the base of its keys, its arguments (first the time, 0: by the server's clock),
    and a function that reads the reply."""

    script: str
    base: str
    arguments: tuple[Any, ...]
    read: Callable[[Any], T]


# Publish


def publish(
    queue: str,
    payload: dict[str, Any] | list[Any],
    *,
    job_id: str | None = None,
    timeout_ms: int = TIMEOUT_MS,
    max_attempts: int = MAX_ATTEMPTS,
    backoff_ms: int = BACKOFF_MS,
    due_ms: int | None = None,
    gid: str | None = None,
    group_limit: int | None = None,
    now_ms_override: int = 0,
) -> OmniqCall[str]:
    """Store a job and return its id. A job that is alive stays as it is; an id whose job has ended begins anew.

    Options:
        job_id: An id of your own. Default: a new one.
        timeout_ms: How long a lease of the job lasts, and so how long a handler may go without a heartbeat.
        max_attempts: The attempt that is the last one.
        backoff_ms: The pause before the next attempt.
        due_ms: Not before this moment, in milliseconds since 1970.
        gid: A group: its jobs start in order.
        group_limit: How many jobs of the group may run at once. Default: 1, unless an earlier job set another.
    """
    if not isinstance(payload, dict | list):
        raise TypeError(f"payload: expected a dict or a list, got {type(payload).__name__}; put it into a dict")
    group, data = _group(gid), _json.encode(payload)
    if len(data) > MAX_PAYLOAD_BYTES:
        limit = f"at most {MAX_PAYLOAD_BYTES} bytes of JSON"
        raise ValueError(f"payload: expected {limit}, got {len(data)}; store it elsewhere")
    arguments = (
        _moment(now_ms_override, "now_ms_override"),
        _mark(),
        ulid() if job_id is None else checked(job_id, "job_id"),
        data,
        _number(max_attempts, "max_attempts", 1, MAX_NUMBER),
        _number(timeout_ms, "timeout_ms", 1, LONGEST_MS),
        _number(backoff_ms, "backoff_ms", 0, LONGEST_MS),
        _moment(0 if due_ms is None else due_ms, "due_ms"),
        group,
        _number(0 if group_limit is None else group_limit, "group_limit", 0, MAX_NUMBER),
    )
    return OmniqCall("publish", queue_base(queue), arguments, _text)


# A lease


def reserve(queue: str, now_ms_override: int = 0) -> OmniqCall[ReserveResult]:
    """The next job under a lease of its `timeout_ms`; None if there is none; `PAUSED` if the queue is paused."""
    return OmniqCall("reserve", queue_base(queue), (_moment(now_ms_override, "now_ms_override"), _token()), _reserved)


def heartbeat(queue: str, job_id: str, lease_token: str, now_ms_override: int = 0) -> OmniqCall[int]:
    """Renew the lease: it ends a whole timeout from now. Returns when."""
    return _held("heartbeat", queue, job_id, lease_token, now_ms_override, int)


def ack_success(queue: str, job_id: str, lease_token: str, now_ms_override: int = 0) -> OmniqCall[None]:
    """The job is done."""
    return _held("ack_success", queue, job_id, lease_token, now_ms_override, _nothing)


def ack_fail(
    queue: str, job_id: str, lease_token: str, now_ms_override: int = 0, error: str | None = None
) -> OmniqCall[AckFailResult]:
    """The job failed: `("RETRY", due_ms)`, or `("FAILED", None)` when that was its last attempt. `error`: why."""
    text = "" if error is None else error
    if not isinstance(text, str):
        raise TypeError(f"error: expected text, got {type(error).__name__}")
    return _held("ack_fail", queue, job_id, lease_token, now_ms_override, _failed, cut(text if text.strip() else ""))


def give_back(queue: str, job_id: str, lease_token: str, now_ms_override: int = 0) -> OmniqCall[None]:
    """End the lease without an outcome: the job goes to the end of its queue, and no attempt is spent."""
    return _held("give_back", queue, job_id, lease_token, now_ms_override, _nothing)


def _held(
    script: str, queue: str, job_id: str, lease_token: str, now: int, read: Callable[[Any], T], *more: Any
) -> OmniqCall[T]:
    base = queue_base(queue)
    for value, what in ((job_id, "job_id"), (lease_token, "lease_token")):
        if not isinstance(value, str):
            raise TypeError(f"{what}: expected text, got {type(value).__name__}")
    if not lease_token:
        raise refusal("TOKEN_REQUIRED", script)
    arguments = (_moment(now, "now_ms_override"), _mark(), _id(job_id), _id(lease_token), *more)
    return OmniqCall(script, base, arguments, read)


# Upkeep


def promote_delayed(queue: str, max_promote: int = 1000, now_ms_override: int = 0) -> OmniqCall[int]:
    """Make due jobs ready, at most `max_promote`; returns how many."""
    count = _number(max_promote, "max_promote", 0, MAX_NUMBER)
    return OmniqCall("promote_delayed", queue_base(queue), (_moment(now_ms_override, "now_ms_override"), count), int)


def reap_expired(queue: str, max_reap: int = 1000, now_ms_override: int = 0) -> OmniqCall[int]:
    """End leases that are over, at most `max_reap`: jobs are retried after a backoff, or fail. Returns how many."""
    count = _number(max_reap, "max_reap", 0, MAX_NUMBER)
    return OmniqCall("reap_expired", queue_base(queue), (_moment(now_ms_override, "now_ms_override"), count), int)


def pause(queue: str) -> OmniqCall[str]:
    """Grant no more leases on this queue; nothing else changes. Returns "OK"."""
    return OmniqCall("pause", queue_base(queue), (0, "pause"), _text)


def resume(queue: str) -> OmniqCall[int]:
    """Grant leases again. Returns 1 if the queue was paused, else 0."""
    return OmniqCall("pause", queue_base(queue), (0, "resume"), int)


def is_paused(queue: str) -> OmniqCall[bool]:
    """Whether the queue is paused."""
    return OmniqCall("pause", queue_base(queue), (0, "ask"), bool)


# Beyond the contract


def retry_failed(queue: str, job_id: str, now_ms_override: int = 0) -> OmniqCall[None]:
    """Let a failed job begin anew."""
    return _retry(queue, [job_id], now_ms_override, partial(_raise_first, "retry_failed"))


def retry_failed_batch(queue: str, job_ids: Sequence[str], now_ms_override: int = 0) -> OmniqCall[list[BatchItem]]:
    """`retry_failed` for at most 100 ids in one call. A refused id carries the reason and does not affect the
    others."""
    return _retry(queue, _ids(job_ids, "retry_failed_batch"), now_ms_override, _batch)


def _retry(queue: str, ids: Sequence[str], now: int, read: Callable[[Any], T]) -> OmniqCall[T]:
    arguments = (_moment(now, "now_ms_override"), _mark(), [_id(each) for each in ids])
    return OmniqCall("retry_failed", queue_base(queue), arguments, read)


def remove_job(queue: str, job_id: str, lane: Lane) -> OmniqCall[None]:
    """Delete a job that is in this lane: wait, gwait (waiting in a group), delayed, failed or completed."""
    return _remove(queue, lane, [job_id], "remove_job", partial(_raise_first, "remove_job"))


def remove_jobs_batch(queue: str, lane: Lane, job_ids: Sequence[str]) -> OmniqCall[list[BatchItem]]:
    """`remove_job` for at most 100 ids in one call. A refused id carries the reason and does not affect the
    others."""
    return _remove(queue, lane, _ids(job_ids, "remove_jobs_batch"), "remove_jobs_batch", _batch)


def _remove(queue: str, lane: Lane, ids: Sequence[str], where: str, read: Callable[[Any], T]) -> OmniqCall[T]:
    if lane not in LANES:
        raise refusal("BAD_LANE", where)
    return OmniqCall("remove_jobs", queue_base(queue), (0, lane, [_id(each) for each in ids]), read)


def purge_failed(queue: str, before_ms: int, max_purge: int = 1000) -> OmniqCall[int]:
    """Delete jobs that failed before that moment, oldest first, at most `max_purge`; returns how many."""
    count = _number(max_purge, "max_purge", 0, MAX_NUMBER)
    return OmniqCall("purge_failed", queue_base(queue), (0, _moment(before_ms, "before_ms"), count), int)


def set_group_limit(queue: str, gid: str, limit: int, now_ms_override: int = 0) -> OmniqCall[None]:
    """Change how many jobs of a group run at once, and let those start for which there is room now."""
    group = _group(gid)
    if not group:
        raise ValueError("gid: expected the name of a group, got none; jobs without a group have no limit")
    arguments = (_moment(now_ms_override, "now_ms_override"), group, _number(limit, "limit", 1, MAX_NUMBER))
    return OmniqCall("set_group_limit", queue_base(queue), arguments, _nothing)


def childs_init(key: str, expected: int, *, ttl_ms: int = CHILDREN_TTL_MS) -> OmniqCall[None]:
    """Begin to count the children of a fan-in. The counter expires after `ttl_ms`."""
    if expected is None:
        raise refusal("NO_EXPECTED", "childs_init")
    if type(expected) is not int or not 1 <= expected <= MAX_NUMBER:
        raise refusal("BAD_EXPECTED", "childs_init")
    arguments = (0, _mark(), expected, _number(ttl_ms, "ttl_ms", 1, LONGEST_MS))
    return OmniqCall("childs_init", child_base(key), arguments, _nothing)


def child_ack(key: str, child_id: str) -> OmniqCall[int]:
    """One child is done; returns how many are left. The same child again changes nothing; 0 is remembered for a
    day."""
    if not isinstance(child_id, str):
        raise TypeError(f"child_id: expected text, got {type(child_id).__name__}")
    if not child_id.strip():
        raise refusal("CHILD_REQUIRED", "child_ack")
    return OmniqCall("child_ack", child_base(key), (0, _id(child_id)), int)


# Arguments


def cut(text: str) -> str:
    """Error text that every client can read: storable, and cut to 4096 bytes between two characters.

    >>> len(cut("é" * 4000).encode())
    4096
    """
    data = clean_error(text).encode()
    return data[:MAX_ERROR_BYTES].decode(errors="ignore")


def _mark() -> str:
    return secrets.token_hex(8)


def _token() -> str:
    """A lease token: 160 random bits in hex, as long as other clients make them."""
    return secrets.token_hex(20)


def _number(value: int, what: str, lowest: int, highest: int) -> int:
    if type(value) is not int:
        raise TypeError(f"{what}: expected a whole number, got {type(value).__name__}")
    if not lowest <= value <= highest:
        shown_value = value if value.bit_length() <= 64 else f"one of {value.bit_length()} bits"
        raise ValueError(f"{what}: expected {lowest} to {highest}, got {shown_value}")
    return value


def _moment(value: int, what: str) -> int:
    """Milliseconds since 1970; 0: none given."""
    return _number(value, what, 0, LATEST_MS)


def _group(gid: str | None) -> str:
    """The name of a group, trimmed; empty: no group."""
    if gid is None:
        return ""
    if not isinstance(gid, str):
        raise TypeError(f"gid: expected text, got {type(gid).__name__}")
    trimmed = gid.strip()
    return checked(trimmed, "gid") if trimmed else ""


def _id(value: str) -> bytes:
    """An id as the server stores it: `reserve` escapes the bytes of one that is not UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"job_id: expected text, got {type(value).__name__}")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("job_id, lease_token: expected text without lone surrogates; give it as it came") from None


def _ids(values: Iterable[str], where: str) -> Sequence[str]:
    ids = [] if isinstance(values, str) or values is None else list(values)
    if not ids:
        raise refusal("BAD_ARGS", where)
    if len(ids) > MAX_BATCH_IDS:
        raise refusal("BATCH_TOO_LARGE", where)
    return ids


# Replies: bytes, whatever kind of client runs the script


def _text(reply: bytes) -> str:
    return reply.decode("utf-8", "surrogateescape")


def _nothing(reply: object) -> None:
    return None


def _reserved(reply: Any) -> ReserveResult:
    status = _text(reply[0])
    if status == "EMPTY":
        return None
    if status == "PAUSED":
        return PAUSED
    _, job_id, payload, lock_until, attempt, gid, token, max_attempts, lease = map(_text, reply)
    return Job(
        job_id=job_id,
        payload=payload,
        lock_until_ms=int(lock_until),
        attempt=int(attempt),
        gid=gid,
        lease_token=token,
        max_attempts=int(max_attempts),
        lease_ms=int(lease),
    )


def _failed(reply: Any) -> AckFailResult:
    return ("RETRY", int(reply[1])) if reply[0] == b"RETRY" else ("FAILED", None)


def _batch(reply: Any) -> list[BatchItem]:
    """Pairs of an id and a code, empty for none."""
    words = [_text(each) for each in reply]
    return [BatchItem(words[at], words[at + 1] or None) for at in range(0, len(words), 2)]


def _raise_first(where: str, reply: Any) -> None:
    for item in _batch(reply):
        if item.error is not None:
            raise refusal(item.error, where)


# Names, ids and the time, as the contract defines them. All keys of a queue begin with its base, whose hash tag (what
# stands between the first `{` and the next `}`) decides the slot on a Cluster. A name without a usable tag would be
# spread over the slots, so it is refused.


MAX_NAME = 255
MAX_CHILD_KEY = 128

_BAD = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_WRAPPED = re.compile(r"\{[^{}]+\}").fullmatch


def queue_base(queue: str) -> str:
    """What the keys of a queue begin with: its name in braces, unless it has them already.

    >>> queue_base("emails"), queue_base("{emails}")
    ('{emails}', '{emails}')
    >>> queue_base("}{")
    Traceback (most recent call last):
    ...
    ValueError: queue: expected a name, or a name in one pair of braces, got '}{'; its keys would have no hash tag
    """
    checked(queue, "queue")
    if "{" not in queue and "}" not in queue:
        return f"{{{queue}}}"
    if _WRAPPED(queue) is None:
        raise ValueError(
            f"queue: expected a name, or a name in one pair of braces, got {queue!r}; its keys would have no hash tag"
        )
    return queue


def child_base(key: str) -> str:
    """What the two keys of a child counter begin with."""
    if not isinstance(key, str):
        raise TypeError(f"key: expected text, got {type(key).__name__}")
    key = checked(key.strip(), "key", MAX_CHILD_KEY)
    if "{" in key or "}" in key:
        raise ValueError(f"key: expected a name without braces, got {key!r}; remove them")
    return f"{{cc:{key}}}"


def now_ms() -> int:
    """Milliseconds since 1970, by this machine's clock. The operations themselves go by the server's."""
    return to_ms(StoreClock().now())


def ulid() -> str:
    """A new id: 26 characters, in the order of time, and within one process always greater than the one before.

    >>> len(ulid()), ulid() < ulid()
    (26, True)
    """
    return new_id(now_ms())


def checked(value: str, what: str, longest: int = MAX_NAME) -> str:
    """The text itself, if it can be part of a key: not empty, not too long, no control characters."""
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected text, got {type(value).__name__}")
    if _BAD.search(value):
        raise ValueError(f"{what}: expected no control characters and no lone surrogates, got {value!r}; remove them")
    size = len(value.encode())
    if not 1 <= size <= longest:
        raise ValueError(f"{what}: expected 1 to {longest} bytes of text, got {size}; give a shorter one" if size else
                         f"{what}: expected 1 to {longest} bytes of text, got none; give it a name")  # fmt: skip
    return value
