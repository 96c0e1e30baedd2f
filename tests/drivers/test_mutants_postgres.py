"""Deliberate mistakes in the SQL of the Postgres driver: the contract's cases notice each of them.

A mutant names functions, a piece of their text, what replaces it, and the themes of the suite that must notice. A text
that is no longer there fails the test: rewrite the mutant together with the function.
"""

import asyncio
import functools
from typing import NamedTuple

import psycopg
import pytest

from taskharbor.conformance import run
from taskharbor.drivers.postgres import PostgresDriver, schema
from tests.drivers.test_conformance_postgres import damage
from tests.servers import postgres

pytestmark = pytest.mark.lane("mutants-postgres")


class Mutant(NamedTuple):
    name: str
    functions: str
    old: str
    new: str
    themes: tuple[str, ...]


SETTLES = "ack finish retry_jobs"
FENCE = 'and y.token = i.token collate "C" and y.state in (@leased@, @expired@) and y.wake > p_now'
LINE = "order by j.priority desc, j.due, j.seq"
LINES = "reserve_queue take_ungrouped"
LEFT = "row(p_queue, p_grp, -1, 0)"
MUTANTS = (
    Mutant("token check dropped", SETTLES, FENCE, FENCE.replace('y.token = i.token collate "C" and ', ""), ("fence",)),
    Mutant("settled after expiry", SETTLES, FENCE, FENCE.replace(" and y.wake > p_now", ""), ("lease",)),
    Mutant("expiry compared with <", SETTLES, FENCE, FENCE.replace("wake >", "wake >="), ("lease",)),
    Mutant("extended with any token", "extend", 'and y.token = i.token collate "C" ', "", ("lease", "fence")),
    Mutant("a lease may shrink", "extend", "and y.wake < p_until", "", ("lease",)),
    Mutant("runnable a millisecond late", "promote_scheduled", "x.wake <= p_now", "x.wake < p_now", ("run_at",)),
    Mutant("leases end a millisecond late", "promote_expired", "x.wake <= p_now", "x.wake < p_now", ("lease",)),
    Mutant(
        "lost leases not counted",
        "lease reserve_queue",
        "lost = j.lost + case when j.state = @expired@ then 1 else 0 end,",
        "lost = j.lost,",
        ("lost",),
    ),
    Mutant(
        "deliveries not counted",
        "lease reserve_queue",
        "deliveries = j.deliveries + 1",
        "deliveries = j.deliveries",
        ("reserve",),
    ),
    Mutant("priority the wrong way round", LINES, LINE, "order by j.priority, j.due, j.seq", ("order",)),
    Mutant("arrival forgotten", LINES, LINE, "order by j.priority desc, j.due, j.id desc", ("order",)),
    Mutant("time forgotten", LINES, LINE, "order by j.priority desc, j.seq", ("order",)),
    Mutant(
        "pause ignored",
        "in_turn",
        "not exists (select from queues q",
        "true or exists (select from queues q",
        ("pause",),
    ),
    Mutant("pause of several ignored", "in_turn", "where not coalesce(q.paused, false)", "where true", ("pause",)),
    Mutant(
        "group limit ignored",
        "admit",
        "inflight = g.inflight + cardinality(sound)",
        "inflight = g.inflight",
        ("groups",),
    ),
    Mutant("capacity not freed at expiry", "promote_expired", "up.grp, -1, 1)", "up.grp, 0, 1)", ("group_capacity",)),
    Mutant("capacity not freed", "left_group", LEFT, LEFT.replace("-1", "0"), ("group_capacity", "groups")),
    Mutant("capacity freed twice", "left_group", LEFT, LEFT.replace("-1", "-2"), ("group_capacity", "groups")),
    Mutant(
        "capacity not freed by release",
        "release",
        "if changes is not null then",
        "if false then",
        ("group_capacity",),
    ),
    Mutant("limits never applied", "regroup", "lim = excluded.lim", "lim = g.lim", ("groups",)),
    Mutant("dependents not released", "ack settle", "exists (select from edges)", "false", ("flows",)),
    Mutant("dependents released too early", "release_dependents", "where f.open <= 0", "where true", ("flows",)),
    Mutant(
        "repeats not remembered",
        "refusals",
        "is not true then @already_applied@",
        "is not true and false then @already_applied@",
        ("repeat",),
    ),
    Mutant("repeats of any kind", "refusals", "and coalesce(j.settled_as, h.settled_as) = g.was", "", ("repeat",)),
    Mutant(
        "done ids stored again", "enqueue_one", "if is_late then", "if false then", ("enqueue", "idempotency", "repeat")
    ),
    Mutant(
        "keys of any queue",
        "claim_keys",
        "on conflict do nothing;\n        select coalesce",
        "on conflict do nothing;\n        delete from keys;\n        select coalesce",
        ("idempotency",),
    ),
    Mutant("a key outlives its record", "forget", "and z.key = x.key and z.id = x.id", "and false", ("idempotency",)),
    Mutant(
        "stored into a cancelled flow",
        "cancel_in_cancelled_flows",
        "if cancelled <> '{}' then",
        "if false then",
        ("flow_status",),
    ),
    Mutant("unknown dependencies taken", "link", "where n.new is null limit 1", "where false limit 1", ("flows",)),
    Mutant("prune takes what is needed", "prune_flow", " and not has_dependents(h.id)", "", ("retention",)),
    Mutant(
        "prune takes what is open",
        "prune",
        "if here.flow = '' or not is_held(here.flow) then",
        "if true then",
        ("retention", "flow_status"),
    ),
    Mutant("prune takes what a dead job holds", "is_held", "h.state + 0 = @dead@", "false", ("retention",)),
    Mutant(
        "prune takes the moment itself",
        "prune_flow",
        "h.finished_at < p_before",
        "h.finished_at <= p_before",
        ("retention",),
    ),
    Mutant("delete takes what is needed", "delete_jobs", "if needed > 0 then", "if false then", ("admin",)),
    Mutant(
        "cancel frees no capacity",
        "cancel",
        "if j.grp is not null and j.state > @scheduled@ then",
        "if false then",
        ("group_capacity",),
    ),
    Mutant("release takes the jobs of all", "release", "worker = p_worker", "worker is not null", ("release",)),
    Mutant("release takes what is kept", "release", "and j.token <> all(kept)", "", ("release",)),
    Mutant("damaged records handed out", LINES, "is_sound(j) as sound", "true as sound", ("damaged",)),
    Mutant(
        "handed over to no job",
        "hand_over",
        "update history h set handed_to = p_new where h.id = p_old;",
        "",
        ("spawn",),
    ),
)


@functools.cache
def database() -> str:
    return postgres.shared().database()


def address() -> str:
    return postgres.shared().address(database())


def sources(functions: str) -> list[str]:
    files = dict(schema.sources("functions"))
    return [files[f"{name}.sql"] for name in functions.split()]


def install(texts: list[str]) -> None:
    with psycopg.connect(address()) as connection:
        connection.execute("set local search_path = taskharbor, pg_temp")
        for text in texts:
            connection.execute(schema.versioned(text).replace("@schema@", "taskharbor").encode())


def judged(themes):
    postgres.empty(address())

    def hook(driver, id, how):
        return damage(address(), id, how)

    return run(lambda: PostgresDriver(address()), themes=themes, damage=hook, stop_at_first=True)


@pytest.fixture(autouse=True)
def _made():
    async def made():
        driver = PostgresDriver(address())
        await driver.open()
        await driver.close()

    asyncio.run(made())


@pytest.mark.rotates(3)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_cases_notice(mutant):
    texts = sources(mutant.functions)
    for text in texts:
        assert mutant.old in text, f"{mutant.name}: {mutant.old!r} is no longer in one of {mutant.functions}"
    install([text.replace(mutant.old, mutant.new) for text in texts])
    try:
        assert judged(mutant.themes).failed, f"survived: {mutant.name}"
    finally:
        install(texts)


@pytest.mark.rotates(6)
@pytest.mark.parametrize("theme", sorted({theme for mutant in MUTANTS for theme in mutant.themes}))
def test_without_a_mistake_they_pass(theme):
    """That all cases pass is what conformance-postgres says: here it is that they do in this place."""
    report = judged([theme])
    assert report.ok, str(report)
