"""Deliberate mistakes in the SQL of the Postgres driver are noticed by the contract's cases.

A mistake is a piece of a function's text and what stands there instead, and the themes of the suite that shall notice
it. A text that is no longer there is an error of its own: whoever rewrites a function says the mistake again.
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
    file: str
    old: str
    new: str
    themes: tuple[str, ...]


FENCE = 'and y.token = i.token collate "C" and y.state in (3, 4) and y.wake > p_now'
MUTANTS = (
    Mutant("token check dropped", "06_settle", FENCE, "and y.state in (3, 4) and y.wake > p_now", ("fence",)),
    Mutant("settled after expiry", "06_settle", FENCE, FENCE.replace(" and y.wake > p_now", ""), ("lease",)),
    Mutant("expiry compared with <", "06_settle", FENCE, FENCE.replace("wake >", "wake >="), ("lease",)),
    Mutant("extended with any token", "07_extend", 'and y.token = i.token collate "C" ', "", ("lease", "fence")),
    Mutant("a lease may shrink", "07_extend", "and y.wake < p_until", "", ("lease",)),
    Mutant(
        "runnable a millisecond late",
        "05_reserve",
        "and x.wake <= p_now and (x.wake <= 0",
        "and x.wake < p_now and (x.wake <= 0",
        ("run_at",),
    ),
    Mutant(
        "leases end a millisecond late",
        "05_reserve",
        "x.state = 3 and x.wake <= p_now",
        "x.state = 3 and x.wake < p_now",
        ("lease",),
    ),
    Mutant(
        "lost leases not counted",
        "05_reserve",
        "lost = j.lost + case when j.state = 4 then 1 else 0 end,",
        "lost = j.lost,",
        ("lost",),
    ),
    Mutant(
        "deliveries not counted",
        "05_reserve",
        "deliveries = j.deliveries + 1",
        "deliveries = j.deliveries",
        ("reserve",),
    ),
    Mutant(
        "priority the wrong way round",
        "05_reserve",
        "order by j.priority desc, j.due, j.seq",
        "order by j.priority, j.due, j.seq",
        ("order",),
    ),
    Mutant(
        "arrival forgotten",
        "05_reserve",
        "order by j.priority desc, j.due, j.seq",
        "order by j.priority desc, j.due, j.id desc",
        ("order",),
    ),
    Mutant(
        "time forgotten",
        "05_reserve",
        "order by j.priority desc, j.due, j.seq",
        "order by j.priority desc, j.seq",
        ("order",),
    ),
    Mutant("pause ignored", "05_reserve", "where not coalesce(q.paused, false)", "where true", ("pause",)),
    Mutant(
        "group limit ignored",
        "05_reserve",
        "inflight = g.inflight + cardinality(sound)",
        "inflight = g.inflight",
        ("groups",),
    ),
    Mutant(
        "slot not freed at expiry",
        "05_reserve",
        "freed || array_fill(-1,",
        "freed || array_fill(0,",
        ("group_capacity",),
    ),
    Mutant(
        "slot not freed by settle", "06_settle", "case when s = 3 then -1 else 0 end", "0", ("group_capacity", "groups")
    ),
    Mutant("slot not freed by release", "07_extend", "case when s = 3 then -1 else 0 end", "0", ("group_capacity",)),
    Mutant("slot not freed by cancel", "08_admin", "case when s = 3 then -1 else 0 end", "0", ("group_capacity",)),
    Mutant(
        "slot freed twice by settle",
        "06_settle",
        "case when s = 3 then -1 else 0 end",
        "-2",
        ("group_capacity", "groups"),
    ),
    Mutant(
        "limits never applied",
        "01_regroup",
        "lim = excluded.lim",
        "lim = g.lim",
        ("groups",),
    ),
    Mutant("dependents not released", "06_settle", "exists (select from edges)", "false", ("flows",)),
    Mutant("dependents released too early", "06_settle", "where f.open <= 0", "where true", ("flows",)),
    Mutant("repeats not remembered", "06_settle", "is not true then 0", "is not true and false then 0", ("repeat",)),
    Mutant("repeats of any kind", "06_settle", "and coalesce(j.settled_as, h.settled_as) = g.was", "", ("repeat",)),
    Mutant(
        "done ids stored again",
        "04_enqueue",
        "if late <> '{}' then",
        "if false then",
        ("enqueue", "idempotency", "repeat"),
    ),
    Mutant(
        "keys of any queue",
        "04_enqueue",
        "on conflict do nothing;\n            select coalesce",
        "on conflict do nothing;\n            delete from keys;\n            select coalesce",
        ("idempotency",),
    ),
    Mutant(
        "a key outlives its record",
        "08_admin",
        "and z.key = x.key and z.id = x.id",
        "and false",
        ("idempotency",),
    ),
    Mutant(
        "stored into a cancelled flow",
        "04_enqueue",
        "if cancelled <> '{}' then",
        "if false then",
        ("flow_status",),
    ),
    Mutant(
        "unknown dependencies taken", "04_enqueue", "where n.new is null limit 1", "where false limit 1", ("flows",)
    ),
    Mutant("prune takes what is needed", "09_prune", " and not is_needed(h.id)", "", ("retention",)),
    Mutant(
        "prune takes what is open",
        "09_prune",
        "if here.flow <> '' and is_held(here.flow) then",
        "if false then",
        ("retention", "flow_status"),
    ),
    Mutant("prune takes what a dead job holds", "09_prune", "h.state + 0 = 6", "false", ("retention",)),
    Mutant(
        "prune takes the moment itself",
        "09_prune",
        "h.finished_at < p_before",
        "h.finished_at <= p_before",
        ("retention",),
    ),
    Mutant("delete takes what is needed", "08_admin", "if needed > 0 then", "if false then", ("admin",)),
    Mutant(
        "cancel forgets the slot",
        "08_admin",
        "if j.grp is not null and j.state > 1 then",
        "if false then",
        ("group_capacity",),
    ),
    Mutant(
        "release takes everybody's",
        "07_extend",
        "worker = p_worker",
        "worker is not null",
        ("release",),
    ),
    Mutant("release takes what is kept", "07_extend", "and j.token <> all(kept)", "", ("release",)),
    Mutant(
        "damaged records handed out",
        "05_reserve",
        "else 'damaged' end as damage",
        "else null end as damage",
        ("damaged",),
    ),
    Mutant(
        "handed over nowhere", "06_settle", "update history h set handed_to = p_new where h.id = p_old;", "", ("spawn",)
    ),
)


@functools.cache
def database() -> str:
    return postgres.shared().database()


def address() -> str:
    return postgres.shared().address(database())


def source(file: str) -> str:
    (text,) = (text for name, text in schema.sources("functions") if name == f"{file}.sql")
    return text


def install(text: str) -> None:
    with psycopg.connect(address()) as connection:
        connection.execute("set local search_path = taskharbor, pg_temp")
        connection.execute(schema.versioned(text).replace("@schema@", "taskharbor").encode())


def judged(themes):
    postgres.empty(address())
    hook = lambda driver, id, how: damage(address(), id, how)  # noqa: E731
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
    text = source(mutant.file)
    assert mutant.old in text, f"{mutant.name}: {mutant.old!r} is not in {mutant.file} any more"
    install(text.replace(mutant.old, mutant.new))
    try:
        assert judged(mutant.themes).failed, f"survived: {mutant.name}"
    finally:
        install(text)


@pytest.mark.rotates(6)
@pytest.mark.parametrize("theme", sorted({theme for mutant in MUTANTS for theme in mutant.themes}))
def test_without_a_mistake_they_pass(theme):
    """That all cases pass is what conformance-postgres says: here it is that they do in this place."""
    report = judged([theme])
    assert report.ok, str(report)
