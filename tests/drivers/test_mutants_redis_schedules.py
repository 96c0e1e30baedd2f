"""Deliberate mistakes in the Lua of schedules that only the driver's own tests notice: what heals itself, and the steps
between the hash slots of a Cluster. Those that the cases of the contract notice are in `redis_mutants.py`."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from taskharbor.drivers import BackendUnavailable, DriverError
from taskharbor.drivers.redis import scripts
from tests import lanes
from tests.drivers import test_redis_schedule_damage as damage
from tests.drivers import test_redis_schedules as one_server
from tests.drivers import test_redis_schedules_cluster as cluster
from tests.drivers.test_mutants_redis import forget_scripts, make_mistake
from tests.drivers.test_redis_schedule_steps import told
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("mutants-redis")

NOTICED = (AssertionError, DriverError, BackendUnavailable, pytest.fail.Exception)
FRAGMENT_OF = {"lib/schedules_read": "read_schedules", "lib/schedules_write": "mend_schedules"}


class Mistake(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    story: Callable[[Any], None]


def strange_rows(patch: Any) -> None:
    damage.test_a_row_that_cannot_be_read_is_left_out_and_may_be_added_again("redis7")


def missing_places(patch: Any) -> None:
    damage.test_what_is_missing_in_an_order_is_put_back("redis7")


def strange_places(patch: Any) -> None:
    damage.test_what_lies_in_an_order_without_a_row_is_removed("redis7")


def wrong_types(patch: Any) -> None:
    for key in (one_server.ROWS, one_server.NAMES, one_server.DUE, one_server.INDEX):
        damage.test_a_key_that_was_written_over_is_moved_aside("redis7", key)


def full_server(patch: Any) -> None:
    one_server.test_a_full_server_refuses_new_rows_and_jobs_and_nothing_else("redis7")


def full_cluster(patch: Any) -> None:
    one_server.test_a_full_server_refuses_new_rows_and_jobs_and_nothing_else("cluster")


def tidy(patch: Any) -> None:
    one_server.test_nothing_is_left_of_rows_that_are_gone("redis7")


def slices(patch: Any) -> None:
    one_server.test_a_script_makes_a_bounded_number_of_changes_and_reads_some_megabytes()


def any_order(patch: Any) -> None:
    for seed in range(4):
        servers.shared_cluster().empty()
        asyncio.run(told(seed, clients=5, turns=25))


def rescued(patch: Any) -> None:
    for crash in (("add", "claim", "after"), ("move", "leave", "after"), ("move", "leave", "before")):
        cluster.test_a_client_dies_and_a_worker_looks_for_what_is_due(*crash, patch)


def too_late(patch: Any) -> None:
    for step in ("claim", "leave"):
        cluster.test_nothing_is_decided_that_may_have_been_dropped(step, patch)


def late_steps(patch: Any) -> None:
    cluster.test_a_step_that_arrives_late_does_nothing()


def refused(patch: Any) -> None:
    cluster.test_a_refused_change_leaves_nothing_behind()


def same_revision(patch: Any) -> None:
    cluster.test_a_row_that_has_the_revision_already_stays_where_it_is()


def in_order(patch: Any) -> None:
    cluster.test_jobs_of_a_queue_come_in_the_order_of_their_changes()


def confirmed(patch: Any) -> None:
    cluster.test_an_entry_that_the_index_lost_comes_back()
    cluster.test_an_entry_that_the_index_has_stays()


ONE_SERVER = (
    Mistake("any revision is read", "lib/schedules_read", "or not is_text(revision)", "", strange_rows),
    Mistake("any moment is read", "lib/schedules_read", "string.find(moment, '%D') or ", "", strange_rows),
    Mistake("any year is read", "lib/schedules_read", " or moment > '253402300799999999'", "", strange_rows),
    Mistake("an old place stays", "lib/schedules_write", "if old and old ~= place then", "if false then", tidy),
    Mistake(
        "a deleted row keeps its place",
        "lib/schedules_write",
        "if place then call('ZREM'",
        "if false then call('ZREM'",
        tidy,
    ),
    Mistake(
        "a deleted row keeps its name",
        "lib/schedules_write",
        "  call('ZREM', safe_key(q, 'th:schedules:names', 'zset'), name)\n  call('HDEL'",
        "  call('HDEL'",
        tidy,
    ),
    Mistake("the index keeps every entry", "lib/schedules_write", "if other ~= entry then", "if false then", tidy),
    Mistake(
        "a stale place is not noticed", "read_schedules", "if is_stale or (revision", "if (revision", strange_places
    ),
    Mistake(
        "what is missing is not noticed",
        "read_schedules",
        " or (revision and not is_in_order(q, name, place))",
        "",
        missing_places,
    ),
    Mistake(
        "a stale place stays",
        "mend_schedules",
        "if found_at ~= '' and found_at ~= place then",
        "if false then",
        strange_places,
    ),
    Mistake(
        "a missing name stays missing",
        "mend_schedules",
        "    call('ZADD', safe_key(q, 'th:schedules:names', 'zset'), '0', name)\n",
        "",
        missing_places,
    ),
    Mistake(
        "a missing place stays missing",
        "mend_schedules",
        "    if place then call('ZADD', safe_key(q, 'th:schedules:due'",
        "    if false then call('ZADD', safe_key(q, 'th:schedules:due'",
        missing_places,
    ),
    Mistake("an entry without a row stays", "mend_schedules", "if noted == q then", "if false then", strange_places),
    Mistake(
        "a name without a row stays",
        "mend_schedules",
        "    call('ZREM', safe_key(q, 'th:schedules:names', 'zset'), name)\n",
        "",
        strange_places,
    ),
    Mistake("as many bytes as there are", "read_schedules", "if bytes >= MAX_BYTES then break end", "", slices),
    Mistake(
        "rows of any type",
        "lib/schedules_write",
        "safe_key(q, 'th:schedules', 'hash')",
        "key(q, 'th:schedules')",
        wrong_types,
    ),
    Mistake(
        "an index of any type", "lib/schedules_write", "safe_key('th:schedules', 'names', 'zset')", "INDEX", wrong_types
    ),
    Mistake("new rows on a full server", "change_schedules", " or (change[3] and not change[2])", "", full_server),
    Mistake("new jobs on a full server", "change_schedules", "#change[4] > 0 or ", "", full_server),
    Mistake(
        "no change on a full server",
        "change_schedules",
        "if brings then unless_full() else even_if_full() end",
        "unless_full()",
        full_server,
    ),
)
CLUSTER = (
    Mistake("a row arrives twice", "arrive_schedule", "call('HDEL', coming, token)\n", "", any_order),
    Mistake(
        "any entry is replaced",
        "schedule_index",
        "if found ~= entry and found ~= (instead or nil) then return 0 end",
        "",
        any_order,
    ),
    Mistake(
        "a note is forgotten by any token",
        "move_schedule",
        "and string.match(went, '[^\\n]*$') == token and",
        "and",
        late_steps,
    ),
    Mistake(
        "no note of where a row went",
        "move_schedule",
        "if token then call('HSET', left, name",
        "if false then call('HSET', left, name",
        any_order,
    ),
    Mistake(
        "a row leaves from any revision", "move_schedule", "if revision ~= expect then return 0 end", "", any_order
    ),
    Mistake(
        "nobody looks for what is prepared", "move_schedule", "try('HGET', coming, token) or false", "false", any_order
    ),
    Mistake("nobody looks for notes", "move_schedule", "try('HGET', left, name) or false", "false", any_order),
    Mistake("the same revision moves", "move_schedule", "if revision == wanted then return 3 end\n", "", same_revision),
    Mistake(
        "a row is added on the spot", "change_schedules", "if th.cluster and not held then return 2 end", "", any_order
    ),
    Mistake(
        "jobs in another order",
        "change_schedules",
        "if results[index] == 2 and #change[4] > 0 then break end",
        "",
        in_order,
    ),
    Mistake(
        "a known entry is replaced", "schedule_index", "if not th.schedule_entry(name) then", "if true then", confirmed
    ),
    Mistake(
        "a lost entry stays lost", "schedule_index", "if not th.schedule_entry(name) then", "if false then", confirmed
    ),
    Mistake(
        "what was prepared in vain stays", "move_schedule", "return call('HDEL', coming, token)", "return 1", refused
    ),
    Mistake(
        "nothing is ever stuck", "lib/schedules_read", "if (try('HLEN', at) or 0) == 0 then", "if true then", rescued
    ),
    Mistake(
        "claimed too late", "schedule_index", "if operation == 'add' and found ~= entry and", "if false and", too_late
    ),
    Mistake(
        "left too late", "move_schedule", "if token and th.is_old(token, patience_ms) then return 4 end", "", too_late
    ),
    Mistake(
        "prepared on a full server",
        "move_schedule",
        "if operation == 'prepare' then unless_full() elseif",
        "if",
        full_cluster,
    ),
)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    yield
    monkeypatch.undo()
    forget_scripts()


def noticed(mistake: Mistake, patch: Any) -> None:
    make_mistake(patch, mistake.name, mistake.file, mistake.old, mistake.new)
    with servers.shared("redis7").client() as client:
        client.script_load(scripts.load(FRAGMENT_OF.get(mistake.file, mistake.file)).text)  # it can be run
    with pytest.raises(NOTICED):
        mistake.story(patch)


@pytest.mark.left_to("full", except_for=lanes.Chosen("an old place stays"))
@pytest.mark.parametrize("mistake", ONE_SERVER, ids=lambda mistake: mistake.name)
def test_the_tests_on_one_server_notice(mistake, monkeypatch):
    noticed(mistake, monkeypatch)


@pytest.mark.left_to("full", except_for=lanes.Chosen("a row arrives twice"))
@pytest.mark.parametrize("mistake", CLUSTER, ids=lambda mistake: mistake.name)
def test_the_tests_on_a_cluster_notice(mistake, monkeypatch):
    noticed(mistake, monkeypatch)
