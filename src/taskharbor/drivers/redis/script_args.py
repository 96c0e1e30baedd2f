"""The arguments of the scripts: one struct for each file in `lua/`, with the names that the script uses.

A struct travels as a MessagePack array. The script unpacks it into local variables of the same names, in the same
order, except that a queue is `q` there; `tests/drivers/test_redis_scripts.py` compares the two. Every script begins
with the same three:

    now      the time of the call in milliseconds; 0 where the script does not depend on it
    cluster  whether this is a Redis Cluster, where a script reaches the keys of one hash slot only
    home     on a Cluster the hash tag of the keys that the script uses, usually a queue; "" on one server

`False` stands for "none": Redis' decoder has no other value for it that a Lua array could hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec

from taskharbor.model.safe_repr import shown

Text = str | msgspec.Raw  # text, or bytes as scripts.binary() wraps them
IdAndQueue = tuple[Text, Text | Literal[False]]


class ScriptArgs(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """What every script is given. `script` names the file."""

    script: ClassVar[str]
    now: int = 0
    cluster: bool = False
    home: str = ""

    def __repr__(self) -> str:
        return shown(self, "cluster")


class AckPlainArgs(ScriptArgs, kw_only=True):
    script = "ack_plain"
    acks: Sequence[Any]  # queue, id, token, result or False of each, one after the other


class AddFiguresArgs(ScriptArgs, kw_only=True):
    script = "add_figures"
    rows: Sequence[Any]  # name of an hour's hash, field and number of each, one after the other
    oldest_ms: int
    oldest: str


class AdminArgs(ScriptArgs, kw_only=True):
    script = "admin"
    operation: str
    jobs: Sequence[Any]  # id and queue of each, and what it has to be like
    run_at: int | Literal[False] = False
    reset_attempts: bool = False
    reason: str = ""


class AmendArgs(ScriptArgs, kw_only=True):
    script = "amend"
    changes: Sequence[Any]


class CancelFlowArgs(ScriptArgs, kw_only=True):
    script = "cancel_flow"
    flow: str
    queues: Sequence[Text] | Literal[False]
    reason: str
    generation: str
    queue_number: int
    cursor: Text


class ChangeSchedulesArgs(ScriptArgs, kw_only=True):
    script = "change_schedules"
    changes: Sequence[Any]


class CheckLocationsArgs(ScriptArgs, kw_only=True):
    script = "check_locations"
    ids: Sequence[str]


class ClusterRegistryArgs(ScriptArgs, kw_only=True):
    script = "cluster_registry"
    operation: str
    at: str
    values: Sequence[str]


class CountGroupsArgs(ScriptArgs, kw_only=True):
    script = "count_groups"
    queue: str
    step: str
    source: str = ""
    cursor: Text = "0"
    groups: Sequence[Text] = ()


class CountsArgs(ScriptArgs, kw_only=True):
    script = "counts"
    queues: Sequence[str]


class DamageArgs(ScriptArgs, kw_only=True):
    script = "damage"
    queues: Sequence[str]


class DeliverMessagesArgs(ScriptArgs, kw_only=True):
    script = "deliver_messages"
    patience_s: int
    messages: Sequence[Any]


class DueSchedulesArgs(ScriptArgs, kw_only=True):
    script = "due_schedules"
    queues: Sequence[str]
    after: Text | Literal[False]
    before: Text
    count: int


class EnqueueArgs(ScriptArgs, kw_only=True):
    script = "enqueue"
    planned: bool
    jobs: Sequence[Any]
    needed: Sequence[Any] = ()
    flows: Any = False


class EnqueuePlainArgs(ScriptArgs, kw_only=True):
    script = "enqueue_plain"
    queue: str
    jobs: Sequence[Any]
    sorted_ids: Sequence[str] | Literal[False]


class ExtendArgs(ScriptArgs, kw_only=True):
    script = "extend"
    lease_ms: int
    leases: Sequence[Any]


class FindInListArgs(ScriptArgs, kw_only=True):
    script = "find_in_list"
    list: Text
    ids: Sequence[Text]
    skip: int
    count: int


class FindInQueuesArgs(ScriptArgs, kw_only=True):
    script = "find_in_queues"
    queues: Sequence[str]
    ids: Sequence[str]


class ForeignIdsArgs(ScriptArgs, kw_only=True):
    script = "foreign_ids"
    queue: str
    step: str
    source: str = ""
    cursor: Text = "0"
    lists: Sequence[Text] = ()
    list_number: int = 1
    skip: int = 0


class ForgetQueueArgs(ScriptArgs, kw_only=True):
    script = "forget_queue"


class HeadsArgs(ScriptArgs, kw_only=True):
    script = "heads"
    queues: Sequence[str]
    wanted: int  # how many jobs of each
    looks: int  # how many entries of each are looked at


class HousekeepArgs(ScriptArgs, kw_only=True):
    script = "housekeep"
    queue: str
    pace_ms: int
    watched_count: int


class ListFlowsArgs(ScriptArgs, kw_only=True):
    script = "list_flows"
    queues: Sequence[str]
    afters: Sequence[Text]
    newest: bool
    count: int


class ListIdsArgs(ScriptArgs, kw_only=True):
    script = "list_ids"
    queues: Sequence[str]
    afters: Sequence[Text]
    newest: bool
    count: int
    check_others: bool


class ListLeasesArgs(ScriptArgs, kw_only=True):
    script = "list_leases"
    queues: Sequence[str]
    worker: str
    keep: Sequence[str]
    queue_number: int
    cursor: str


class ListSchedulesArgs(ScriptArgs, kw_only=True):
    script = "list_schedules"
    at: str
    start: Text
    count: int


class ListStateArgs(ScriptArgs, kw_only=True):
    script = "list_state"
    queues: Sequence[str]
    name: str
    most: int


class MendSchedulesArgs(ScriptArgs, kw_only=True):
    script = "mend_schedules"
    items: Sequence[Any]  # name, the sorted set in which it was found, or "", and its member there, of each


class PauseArgs(ScriptArgs, kw_only=True):
    script = "pause"
    queue: str
    on: bool


class PruneArgs(ScriptArgs, kw_only=True):
    """`now` is the moment before which a job must have finished."""

    script = "prune"
    kept_before: int
    limit: int
    queues: Sequence[str]
    flows_open: Sequence[Any]
    skip_done: int
    skip_cancelled: int
    skip_kept: int


class PutAuditArgs(ScriptArgs, kw_only=True):
    script = "put_audit"
    entries: Sequence[Any]  # id and value of each, one after the other
    before: Text
    most: int


class ReadAuditArgs(ScriptArgs, kw_only=True):
    script = "read_audit"
    start: Text
    stop: Text
    by: str | Literal[False]
    most: int
    looks: int


class ReadFiguresArgs(ScriptArgs, kw_only=True):
    script = "read_figures"
    names: Sequence[str] | Literal[False]
    first: Text = ""
    last: str = ""


class ReadFlowArgs(ScriptArgs, kw_only=True):
    script = "read_flow"
    flow: str
    queues: Sequence[str] | Literal[False]
    most: int


class ReadForPlanArgs(ScriptArgs, kw_only=True):
    script = "read_for_plan"
    jobs: Sequence[IdAndQueue] = ()
    keys: Sequence[tuple[str, str]] = ()


class ReadJobsArgs(ScriptArgs, kw_only=True):
    script = "read_jobs"
    jobs: Sequence[IdAndQueue]
    brief: bool = False


class ReadLocationsArgs(ScriptArgs, kw_only=True):
    script = "read_locations"
    at: str
    ids: Sequence[str]


class ReadSchedulesArgs(ScriptArgs, kw_only=True):
    script = "read_schedules"
    items: Sequence[Any]  # as for mend_schedules


class ReadStepsArgs(ScriptArgs, kw_only=True):
    script = "read_steps"
    parts: Sequence[Text]  # queue and flow by turns


class ReleaseArgs(ScriptArgs, kw_only=True):
    script = "release"
    worker: str
    keep: Sequence[str]
    leases: Sequence[tuple[str, Text]]


class ReserveArgs(ScriptArgs, kw_only=True):
    script = "reserve"
    queues: Sequence[str]
    lease_ms: int
    limit: int
    worker: str
    tokens: Sequence[str]
    repeats: int | Literal[False] = False


class ReservePlainArgs(ScriptArgs, kw_only=True):
    script = "reserve_plain"
    queue: str
    lease_ms: int
    limit: int
    worker: str
    tokens: Sequence[str]


class RestoreRecordsArgs(ScriptArgs, kw_only=True):
    script = "restore_records"
    queue: str
    records: Sequence[tuple[Text, Text, Text]]


class RunCommandArgs(ScriptArgs, kw_only=True):
    script = "run_command"
    command: Sequence[Text]


class ScanLocationsArgs(ScriptArgs, kw_only=True):
    script = "scan_locations"
    at: str
    hash_number: int
    cursor: Text
    count: int


class SettleArgs(ScriptArgs, kw_only=True):
    script = "settle"
    outcomes: Sequence[Any]


class SweepArgs(ScriptArgs, kw_only=True):
    script = "sweep"
    queue: str
    id_count: int
    key_count: int


class UpcomingArgs(ScriptArgs, kw_only=True):
    script = "upcoming"
    queues: Sequence[str]
