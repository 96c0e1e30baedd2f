"""Deliberate mistakes in the Lua of schedules that only the driver's own tests notice: what heals itself, and the jobs
that come by message on a Cluster. Those that the cases of the contract notice are in `redis_mutants.py`."""

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
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("mutants-redis")

NOTICED = (AssertionError, DriverError, BackendUnavailable, TimeoutError, pytest.fail.Exception)
FRAGMENT_OF = {
    "lib/schedules_read": "read_schedules",
    "lib/schedules_write": "mend_schedules",
    "lib/schedules_store": "deliver_messages",
}


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
    for key in one_server.KEYS:
        damage.test_a_key_that_was_written_over_is_moved_aside("redis7", key)


def full_server(patch: Any) -> None:
    one_server.test_a_full_server_refuses_new_rows_and_jobs_and_nothing_else("redis7")


def tidy(patch: Any) -> None:
    one_server.test_nothing_is_left_of_rows_that_are_gone("redis7")


def slices(patch: Any) -> None:
    one_server.test_a_script_makes_a_bounded_number_of_changes_and_reads_some_megabytes()


def comes_again(patch: Any) -> None:
    cluster.test_a_message_that_comes_again_after_its_job_was_deleted()


def late(patch: Any) -> None:
    cluster.test_a_client_dies_before_it_delivers()


ONE_SERVER = (
    Mistake("any revision is read", "lib/schedules_read", "or not is_name(revision)", "", strange_rows),
    Mistake("any queue is read", "lib/schedules_read", "or not is_name(q)", "", strange_rows),
    Mistake("any text is a name", "lib/schedules_read", "and is_text(text)", "", strange_rows),
    Mistake("any moment is read", "lib/schedules_read", "string.find(moment, '%D') or ", "", strange_rows),
    Mistake("any year is read", "lib/schedules_read", " or moment > LAST", "", strange_rows),
    Mistake(
        "a deleted row keeps its places",
        "lib/schedules_write",
        "call('ZREM'",
        "call('ZSCORE'",
        tidy,
    ),
    Mistake("a changed row keeps its places", "change_schedules", "if row then", "if row and not to then", tidy),
    Mistake("a deleted row stays", "lib/schedules_write", "call('HDEL'", "call('HEXISTS'", tidy),
    Mistake("a stale place is not noticed", "read_schedules", "if not belongs or (row", "if (row", strange_places),
    Mistake(
        "what is missing is not noticed",
        "read_schedules",
        " or (row and not is_in_order(row))",
        "",
        missing_places,
    ),
    Mistake("a stale place stays", "mend_schedules", "if at ~= '' then", "if false then", strange_places),
    Mistake("a missing place stays missing", "mend_schedules", "if row then", "if false then", missing_places),
    Mistake("as many bytes as there are", "read_schedules", "if bytes >= MAX_BYTES then break end", "", slices),
    Mistake(
        "rows of any type",
        "lib/schedules_write",
        "safe_key(HOME, 'rows', 'hash')",
        "key(HOME, 'rows')",
        wrong_types,
    ),
    Mistake("places of any type", "lib/schedules_write", "safe_key(HOME, at, 'zset')", "key(HOME, at)", wrong_types),
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
    Mistake(
        "a message fires again",
        "lib/schedules_store",
        "if brought and call('EXISTS', brought) == 1 then return end",
        "",
        comes_again,
    ),
    Mistake(
        "a message is not remembered",
        "lib/schedules_store",
        "if brought then call('SET'",
        "if false then call('SET'",
        comes_again,
    ),
    Mistake("a message brings nothing", "lib/schedules_store", "  receive.store(q, jobs)\n", "", late),
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


@pytest.mark.left_to("full", except_for=lanes.Chosen("a deleted row keeps its places"))
@pytest.mark.parametrize("mistake", ONE_SERVER, ids=lambda mistake: mistake.name)
def test_the_tests_on_one_server_notice(mistake, monkeypatch):
    noticed(mistake, monkeypatch)


@pytest.mark.left_to("full", except_for=lanes.Chosen("a message fires again"))
@pytest.mark.parametrize("mistake", CLUSTER, ids=lambda mistake: mistake.name)
def test_the_tests_on_a_cluster_notice(mistake, monkeypatch):
    noticed(mistake, monkeypatch)
