"""One job as its row says: a record, and where it stands.

    BLOCKED    open dependencies                    DONE, DLQ, CANCELLED   terminal
    WAITING    ready, or scheduled while `moment` (its run_at) lies ahead
    LEASED     inflight, or ready again once `moment` (the end of its lease) is over

Moments are whole microseconds since 1970: exact for any datetime. `lined` is explained in queues.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from taskharbor.drivers.sqlite.statements import COLUMNS
from taskharbor.model.bounds import INT_MAX, INT_MIN
from taskharbor.model.job import EPOCH, JobRecord, State
from taskharbor.model.safe_repr import shown

BLOCKED, WAITING, LEASED, DONE, DLQ, CANCELLED = range(6)
STATES = {
    BLOCKED: State.BLOCKED,
    WAITING: State.READY,
    LEASED: State.INFLIGHT,
    DONE: State.DONE,
    DLQ: State.DLQ,
    CANCELLED: State.CANCELLED,
}
FINISHED = frozenset({DONE, CANCELLED})

_MICROSECOND = timedelta(microseconds=1)
LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
SHORTEST, LONGEST = 1000, INT_MAX * 1000  # timeouts
_decode = msgspec.json.Decoder(dict[str, str]).decode
_decode_ids = msgspec.json.Decoder(list[str]).decode
_encode = msgspec.json.Encoder().encode


def ticks(moment: datetime) -> int:
    """A moment as whole microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


def moment_of(value: int) -> datetime:
    """The moment so many microseconds after 1970."""
    return EPOCH + timedelta(0, 0, value)


def maybe_ticks(moment: datetime | None) -> int | None:
    return None if moment is None else ticks(moment)


def ids_json(ids: Sequence[str]) -> str:
    """Ids as the one text parameter that `json_each` takes apart."""
    return json.dumps(list(ids), ensure_ascii=False)


class JobRow(msgspec.Struct, gc=False):
    """A row of taskharbor_jobs, in the order of its columns. Mutable: `store.save` writes it back."""

    num: int
    id: str
    queue: str
    state: Any
    lined: int
    rank: int
    time: int
    arrival: int
    moment: int | None
    token: str
    worker: str
    settled: str
    settled_as: str
    priority: Any
    holds: int
    type: Any
    payload: Any
    run_at: int | None
    timeout: int | None
    attempts: Any
    max_attempts: Any
    deliveries: Any
    lost: Any
    idempotency_key: bytes | None
    grp: str | None
    group_limit: int
    depends_on: str | None
    flow_id: str | None
    handed_to: str | None
    metadata: str | None
    last_error: str
    failed_at: int | None
    reason: str
    created_at: int
    finished_at: int | None
    result: bytes | None

    def __repr__(self) -> str:
        return shown(self, "id", "queue", "state", "type", "worker")

    @property
    def dependencies(self) -> list[str]:
        """The ids it depends on, each once, in their order."""
        try:
            return list(dict.fromkeys(_decode_ids(self.depends_on))) if self.depends_on else []
        except (msgspec.MsgspecError, TypeError):  # another program was here: what it waits for, its edges know
            return []

    @property
    def finished(self) -> bool:
        """Done or cancelled: nothing is to be expected of it. A dead job is unfinished, somebody may requeue it."""
        return self.state in FINISHED


assert JobRow.__struct_fields__ == tuple(COLUMNS.split(", "))


def state_at(state: Any, moment: int | None, now: int) -> State:
    """The state of the contract at a moment. What nobody knows reads as dead."""
    if state == LEASED:
        return State.INFLIGHT if moment is not None and moment > now else State.READY
    if state == WAITING:
        return State.SCHEDULED if moment is not None and moment > now else State.READY
    return STATES.get(state, State.DLQ)


_moment: tuple[Any, datetime] = (0, EPOCH)  # the last created_at: jobs of one call share it


def plain_record(row: Sequence[Any], queue: str) -> JobRecord | None:
    """The record of a row of line.sql as it reads after one more reservation; None: the whole row must be looked at."""
    global _moment
    _, id, kind, payload, attempts, max_attempts, deliveries, lost, created, priority, state, plain = row
    if not (
        plain
        and type(kind) is str
        and kind
        and type(payload) is bytes
        and type(attempts) is type(max_attempts) is type(deliveries) is type(lost) is type(priority) is int
        and not (attempts | max_attempts | deliveries | lost) >> 31
        and INT_MIN <= priority <= INT_MAX
        and is_moment(created)
        and state == WAITING
    ):
        return None
    known, created_at = _moment
    if known != created:
        created_at = moment_of(created)
        _moment = (created, created_at)
    return JobRecord(
        id=id,
        type=kind,
        queue=queue,
        payload=payload,
        priority=priority,
        attempts=attempts,
        max_attempts=max_attempts,
        deliveries=deliveries + 1,
        lost=lost,
        created_at=created_at,
    )


def record_of(row: Sequence[Any], reserved: int = 0) -> JobRecord:
    """The record of a sound row; as it reads after `reserved` more reservations. Positions, not names: it is warm."""
    run_at, timeout, key, depends_on, metadata, failed_at, finished_at = (
        None if reserved and row[3] == LEASED else row[17],  # taken over after its lease has ended
        row[18],
        row[23],
        row[26],
        row[29],
        row[31],
        row[34],
    )
    return JobRecord(
        id=row[1],
        type=row[15],
        queue=row[2],
        payload=row[16],
        run_at=None if run_at is None else EPOCH + timedelta(0, 0, run_at),
        timeout=None if timeout is None else timedelta(0, 0, timeout),
        priority=row[13],
        attempts=row[19],
        max_attempts=row[20],
        deliveries=row[21] + reserved,
        lost=row[22] + reserved if row[3] == LEASED else row[22],
        idempotency_key=None if key is None else key.decode(),
        group=row[24],
        group_limit=row[25],
        depends_on=() if depends_on is None else tuple(_decode_ids(depends_on)),
        flow_id=row[27],
        handed_to=row[28],
        metadata={} if metadata is None else _decode(metadata),
        last_error=row[30],
        failed_at=None if failed_at is None else EPOCH + timedelta(0, 0, failed_at),
        reason=row[32],
        created_at=moment_of(row[33]),
        finished_at=None if finished_at is None else EPOCH + timedelta(0, 0, finished_at),
        result=row[35],
    )


def sound(row: Sequence[Any]) -> bool:
    """Whether nobody damaged the row of a job that is to run. damage.py says what is wrong with one that is not; this
    says the same in one go, since every job that has more than a type and a payload comes through here. What has a
    form of its own (dependencies, metadata, keys) shows when the record is built."""
    return (
        type(row[15]) is str
        and row[15] != ""
        and type(row[16]) is bytes
        and type(row[13]) is type(row[19]) is type(row[20]) is type(row[21]) is type(row[22]) is type(row[25]) is int
        and not (row[19] | row[20] | row[21] | row[22] | row[25]) >> 31
        and INT_MIN <= row[13] <= INT_MAX
        and (row[17] is None or is_moment(row[17]))
        and (row[18] is None or (type(row[18]) is int and SHORTEST <= row[18] <= LONGEST))
        and (row[24] is None or (type(row[24]) is str and row[24] != ""))
        and (row[27] is None or (type(row[27]) is str and row[27] != ""))
        and (row[28] is None or (type(row[28]) is str and row[28] != "" and "\0" not in row[28]))
        and type(row[30]) is type(row[32]) is str
        and (row[31] is None or is_moment(row[31]))
        and is_moment(row[33])
        and (row[34] is None or is_moment(row[34]))
        and (row[35] is None or type(row[35]) is bytes)
        and (row[3] == WAITING or row[3] == LEASED)
    )


def is_moment(value: Any) -> bool:
    """Whether it is a moment as we store them."""
    return type(value) is int and 0 <= value <= LAST


def metadata_json(metadata: dict[str, str]) -> str | None:
    return _encode(metadata).decode() if metadata else None
