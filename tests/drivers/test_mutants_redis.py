"""Deliberate mistakes in the Lua of the Redis driver are noticed by the contract's cases.

A mistake is a piece of a file's text and what stands there instead. A text that is no longer there is an error of its
own: when you rewrite a script, write its mistakes again. Those for the cases are in `redis_mutants.py`; here are those
that only the driver's own tests notice.
"""

import pytest
import redis

from taskharbor.conformance import run
from taskharbor.drivers import DriverError
from taskharbor.drivers.redis import RedisDriver, scripts
from tests import lanes
from tests.drivers import test_redis_audit, test_redis_ids, test_redis_listing, test_redis_seen, test_redis_sweep
from tests.drivers.redis_mutants import MUTANTS
from tests.drivers.redis_stores import damage, emptied, live
from tests.servers import redis as servers

pytestmark = pytest.mark.lane("mutants-redis")


def judge(themes):
    def hook(driver, id, how):
        with redis.Redis.from_url(servers.shared("redis7").url) as client:
            damage(client, id, how)

    def make():
        return RedisDriver(f"{emptied()}?checks=0")

    return run(make, themes=themes, damage=hook, stop_at_first=True)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    yield
    monkeypatch.undo()
    forget_scripts()


def forget_scripts() -> None:
    scripts.fragments.cache_clear()
    scripts.load.cache_clear()
    scripts.script_for.cache_clear()


def make_mistake(monkeypatch, name: str, file: str, old: str, new: str) -> None:
    """From now on the driver uses a file with `new` where it has `old`."""
    text, true = scripts.source(scripts.PACKAGE, f"{file}.lua"), scripts.source
    assert old in text, f"{name}: {old!r} is not in {file} any more"
    wrong = text.replace(old, new)
    monkeypatch.setattr(
        scripts, "source", lambda package, each: wrong if each == f"{file}.lua" else true(package, each)
    )
    forget_scripts()


# What `make test` makes sure of: the fence, and the promises that lose or double a job when they break.
EACH_TIME = (
    "token check dropped",
    "token check dropped in the fence",
    "settled after expiry",
    "settle applied twice",
    "known ids stored again",
    "group limit ignored",
    "dependents released before the last ack",
    "the outcome without its spawn",
    "prune takes what is needed",
    "lost leases not counted",
    "any job is as it was seen",
    "a schedule changes from any revision",
)


@pytest.mark.left_to("full", except_for=lanes.Chosen(*EACH_TIME))
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_cases_notice(mutant, monkeypatch):
    make_mistake(monkeypatch, mutant.name, mutant.file, mutant.old, mutant.new)
    assert judge(mutant.themes).failed, f"survived: {mutant.name}"


@pytest.mark.left_to("full", except_for=lanes.Chosen("fence"))
@pytest.mark.parametrize("theme", sorted({theme for mutant in MUTANTS for theme in mutant.themes}))
def test_without_a_mistake_they_pass(theme):
    """That all cases pass is what conformance-redis says: here it is that they do in this place."""
    report = judge([theme])
    assert report.ok, str(report)


# The index of ids, whose pages the cases of the contract hardly fill: its own histories notice.

INDEX_MUTANTS = (
    ("pages without end", "lib/16_id_pages", "if size + number <= PAGE then", "if true then"),
    ("a page forgotten by the directory", "lib/16_id_pages", "    call('ZADD', key(q, 'th:ids'), '0', bound)\n", ""),
    ("a page filled beyond its size", "lib/16_id_pages", "min(number, max(0, PAGE - size + #behind))", "number"),
    ("what is behind stays in its page", "lib/16_id_pages", "  if behind[1] then\n", "  if false then\n"),
    ("what is behind stands twice", "lib/16_id_pages", "    call('ZREM', at, unpack(behind))\n", ""),
    ("what is between is not looked at", "lib/16_id_pages", "'1')[1] then return nil end", "'1')[1] then end"),
    ("all to the page of the first", "lib/16_id_pages", "page_of(q, ids[number]) == bound", "true"),
    ("not counted", "lib/16_id_pages", "added == 1 and '1' or added)", "'0')"),
    ("removed, not counted", "lib/26_id_pages_walk", "key(q, 'th:count'), '-1')", "key(q, 'th:count'), '0')"),
    ("empty pages stay", "lib/26_id_pages_walk", "if left == 0 then drop_page(q, bound) elseif", "if"),
    (
        "nobody takes the place of the first",
        "lib/26_id_pages_walk",
        "return call('RENAME', pages .. following, pages) end",
        "end",
    ),
    (
        "what joins a page is lost",
        "lib/26_id_pages_walk",
        "call('ZADD', pages .. before, unpack(",
        "call('ZREM', pages .. before, unpack(",
    ),
    (
        "a joined page stays in the directory",
        "lib/26_id_pages_walk",
        "  call('ZREM', at, bound)\nend\n\nlocal function remove",
        "end\n\nlocal function remove",
    ),
    (
        "the walk ends with its page",
        "lib/26_id_pages_walk",
        "bound, from = following, following and '[' .. following",
        "bound = nil",
    ),
    ("a page under the bound it had", "lib/16_id_pages", "  call('ZREM', key(q, 'th:ids'), following)\n", ""),
    ("a page that others join is too large", "lib/16_id_pages", "size + number > PAGE / 2", "false"),
    ("the walk begins anew in each page", "lib/26_id_pages_walk", "last == '' and '-' or '(' .. last", "'-'"),
    ("the walk down ends with its page", "lib/26_id_pages_walk", "bound = bound ~= '' and (", "bound = false and ("),
    (
        "the walk down meets an id twice",
        "lib/26_id_pages_walk",
        "local to, bound = '(' .. last",
        "local to, bound = '[' .. last",
    ),
    (
        "the walk down begins before the last page",
        "lib/26_id_pages_walk",
        "'+', '-', 'BYLEX', 'REV'",
        "'(z', '-', 'BYLEX', 'REV'",
    ),
)


@pytest.mark.parametrize("mutant", INDEX_MUTANTS, ids=lambda mutant: mutant[0])
def test_the_histories_of_the_index_notice(mutant, monkeypatch):
    make_mistake(monkeypatch, *mutant)
    with servers.shared("redis7").client() as client:
        client.script_load(scripts.compose("probe", test_redis_ids.PROBE).text)  # it can be run
    with pytest.raises((AssertionError, redis.exceptions.ResponseError)):
        play_all()


def play_all() -> None:
    for history in test_redis_ids.HISTORIES.values():
        test_redis_ids.play(history, "redis7")


# How the jobs of a large flow are, which the cases do not reach: small flows are read from their records.

STEP_MUTANTS = (
    ("nobody enters", "lib/60_flows", "  th.set_step(q, id, flow, th.UNFINISHED)\n", ""),
    ("nobody ends", "lib/60_flows", "    th.set_step(q, id, job.th_flow, how)\n", ""),
    ("nobody dies", "lib/70_terminal", "if job.th_flow then th.set_step(q, id, job.th_flow, th.DEAD) end", ""),
    (
        "the dead stay dead",
        "lib/50_placement",
        "out_of_list(q, safe_key(q, 'failed'), id)\n    if job.th_flow",
        "out_of_list(q, safe_key(q, 'failed'), id)\n    if false",
    ),
    (
        "the cancelled stay cancelled",
        "lib/50_placement",
        "    if job.th_flow then th.set_step(q, id, job.th_flow, th.UNFINISHED) end\n  end,\n  blocked",
        "  end,\n  blocked",
    ),
    ("in no list of flows", "lib/60_flows", "== 1 then th.list_flow(q, flow) end", "== 1 then end"),
    (
        "done and cancelled are one",
        "settle",
        "th_dep = found[7] or nil}, th.DONE)",
        "th_dep = found[7] or nil}, th.CANCELLED)",
    ),
    ("the last is not looked for", "read_steps", "      add(ends, end_of(q, flow, how, true))\n", ""),
    ("the first is the last", "read_steps", "end_of(q, flow, how, false)", "end_of(q, flow, how, true)"),
    (
        "the dead are not looked for",
        "read_steps",
        "{th.UNFINISHED, th.DONE, th.CANCELLED, th.DEAD}",
        "{th.UNFINISHED, th.DONE, th.CANCELLED}",
    ),
)


@pytest.mark.parametrize("mutant", STEP_MUTANTS, ids=lambda mutant: mutant[0])
def test_the_story_of_a_large_flow_notices(mutant, monkeypatch):
    make_mistake(monkeypatch, *mutant)
    with pytest.raises((AssertionError, ValueError)):
        live(lambda driver, _: test_redis_listing.check_large_flows(driver), housekeeping=False)


# What other programs did, how much a script reads, and what is left in the store: tests of the driver notice.


def lost_states(monkeypatch) -> None:
    for kind in ("done, and kept", "done by another client", "cancelled", "blocked"):
        test_redis_sweep.test_a_record_that_lost_its_state_is_counted_once("redis7", kind, None)


def revived(monkeypatch) -> None:
    test_redis_seen.test_a_dead_job_that_a_foreign_client_revived("redis7")


def damaged_numbers(monkeypatch) -> None:
    for kind in ("fraction", "huge", "negative"):
        test_redis_seen.test_a_damaged_record_is_compared_as_it_is_shown("redis7", kind)


def damaged_entries(monkeypatch) -> None:
    test_redis_audit.test_entries_outlive_damage("redis7")
    for key in (test_redis_audit.ORDER, test_redis_audit.ENTRIES):
        test_redis_audit.test_a_key_that_was_written_over_begins_anew("redis7", key)


def replaced_entries(monkeypatch) -> None:
    test_redis_audit.test_an_entry_replaces_the_one_with_its_id("redis7")


def old_entries(monkeypatch) -> None:
    test_redis_audit.test_what_is_too_old_goes_in_slices()


def full_server(monkeypatch) -> None:
    test_redis_audit.test_a_full_server_stores_entries_because_operators_make_room_there("redis7")


def large_entries(monkeypatch) -> None:
    test_redis_audit.test_no_script_reads_more_than_some_megabytes()


def long_walk(monkeypatch) -> None:
    test_redis_audit.test_a_call_looks_at_a_bounded_number_of_places({}, monkeypatch)


STORY_MUTANTS = (
    (
        "done twice",
        "lib/99_sweep",
        "{'th:done', 'th:cancelled', 'th:kept'}",
        "{'th:cancelled', 'th:kept'}",
        lost_states,
    ),
    ("cancelled twice", "lib/99_sweep", "{'th:done', 'th:cancelled', ", "{'th:done', ", lost_states),
    ("kept for ever", "lib/99_sweep", "'th:cancelled', 'th:kept'}", "'th:cancelled'}", lost_states),
    ("completed twice", "lib/99_sweep", "  call('LREM', safe_key(q, 'completed'), 1, id)\n", "", lost_states),
    (
        "blocked twice",
        "lib/99_sweep",
        "if state ~= 'blocked' then call('ZREM'",
        "if false then call('ZREM'",
        lost_states,
    ),
    ("the end of a job that was revived", "admin", "if LIVE[state] then return 0 end", "", revived),
    ("the first of two ends", "admin", "at = max(at, shown(", "at = at > 0 and at or max(at, shown(", revived),
    ("fractions compared", "admin", "string.match(value or '', '^%s*([+-]?%d+)%s*$')", "value", damaged_numbers),
    ("no bounds", "admin", "return min(max(number, 0), 2147483647)", "return number", damaged_numbers),
    ("what another wrote is read", "read_audit", "string.sub(value, 1, #head) == head", "true", damaged_entries),
    ("a wrong type stays", "put_audit", "kind ~= wanted and kind ~= 'none'", "false", damaged_entries),
    ("the old place stays", "put_audit", "if old and old ~= place then", "if false then", replaced_entries),
    ("old places stay", "put_audit", "many('ZREM', order, old)", "", old_entries),
    ("old entries stay", "put_audit", "call('HDEL', values, id)", "", old_entries),
    ("refused by a full server", "put_audit", "even_if_full()  ", "unless_full()  ", full_server),
    ("as many bytes as there are", "read_audit", " or bytes >= MAX_BYTES", "", large_entries),
    ("as many places as there are", "read_audit", "looked == looks or ", "", long_walk),
    ("the last place again", "read_audit", "'(' .. start", "'[' .. start", long_walk),
    ("a slice is all", "read_audit", "looked < #places and 1 or 0", "0", long_walk),
)


@pytest.mark.parametrize("mutant", STORY_MUTANTS, ids=lambda mutant: mutant[0])
def test_the_tests_of_the_driver_notice(mutant, monkeypatch):
    *mistake, story = mutant
    make_mistake(monkeypatch, *mistake)
    with servers.shared("redis7").client() as client:
        client.script_load(scripts.load("sweep" if mutant[1].startswith("lib/") else mutant[1]).text)  # it can be run
    with pytest.raises((AssertionError, DriverError, pytest.fail.Exception)):
        story(monkeypatch)
