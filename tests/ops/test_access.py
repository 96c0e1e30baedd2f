"""The table of actions × access levels, and that no action forgets to ask."""

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Harbor, JobRequest, WrongState
from taskharbor.drivers import Fail, JobRecord, State, open_driver
from taskharbor.drivers.base import Driver
from taskharbor.model.amendment import Amend
from taskharbor.ops import actions as actions_module
from taskharbor.ops.access import Access, AccessDenied, Permission
from taskharbor.ops.actions import Actions
from taskharbor.store.bulk.plan import Action, FrozenFilter, OperationPlan, first_state, slice_record
from tests import lanes

LEVELS = {
    "none": Access.none(),
    "view": Access.view("ada"),
    "view and reveal": Access.view("ada", reveal=True),
    "operate": Access.operate("ada"),
    "operate and reveal": Access.operate("ada", reveal=True),
    "admin": Access.admin("ada"),
    "amend only": Access(name="ada", actions={"view", "amend"}),
    "requeue only": Access(name="ada", actions={"view", "requeue"}),
    "cancel only": Access(name="ada", actions={"view", "cancel"}),
}
OPERATORS = ("operate", "operate and reveal", "admin")
REQUEUERS = ("requeue only", *OPERATORS)
CANCELLERS = ("cancel only", *OPERATORS)
VIEWERS = ("view", "view and reveal", "amend only", "cancel only", *REQUEUERS)
REVEALERS = ("view and reveal", "operate and reveal", "admin")

Call = Callable[[Any, Any], Awaitable[Any]]  # of the actions and a client

TABLE: dict[str, tuple[Call, tuple[str, ...]]] = {
    "requeue": (lambda do, client: do.requeue(["dead"]), REQUEUERS),
    "retry": (lambda do, client: do.retry(["dead"]), REQUEUERS),
    "cancel": (lambda do, client: do.cancel(["waiting"]), CANCELLERS),
    "cancel a slice": (lambda do, client: do.cancel(["waiting", "running.000000"]), OPERATORS),
    "delete": (lambda do, client: do.delete(["dead"]), ("admin",)),
    "amend": (
        lambda do, client: do.amend(Amend(id="dead", deliveries=1, edits=0, priority=3)),
        ("amend only", *OPERATORS),
    ),
    "amend and requeue": (
        lambda do, client: do.amend(Amend(id="dead", deliveries=1, edits=0, priority=3), requeue=True),
        OPERATORS,
    ),
    "begin requeue": (lambda do, client: do.begin(client.dead(), "requeue"), REQUEUERS),
    "begin cancel": (lambda do, client: do.begin(client.jobs(), "cancel"), CANCELLERS),
    "begin delete": (lambda do, client: do.begin(client.dead(), "delete"), ("admin",)),
    "dry run": (lambda do, client: do.dry_run(client.dead(), "delete"), VIEWERS),
    "stop": (lambda do, client: do.stop("running"), OPERATORS),
    "go on": (lambda do, client: do.go_on("operation"), OPERATORS),
    "go on with a delete": (lambda do, client: do.go_on("deletion"), ("admin",)),
    "pause": (lambda do, client: do.pause("default"), OPERATORS),
    "resume": (lambda do, client: do.resume("default"), OPERATORS),
    "add schedule": (
        lambda do, client: do.add_schedule("new", JobRequest(type="report"), every=60),
        ("admin",),
    ),
    "edit schedule": (lambda do, client: do.edit_schedule("nightly", cron="0 4 * * *"), ("amend only", *OPERATORS)),
    "reset schedule": (lambda do, client: do.reset_schedule("nightly"), ("amend only", *OPERATORS)),
    "pause schedule": (lambda do, client: do.pause_schedule("nightly"), OPERATORS),
    "resume schedule": (lambda do, client: do.resume_schedule("nightly"), OPERATORS),
    "run schedule": (lambda do, client: do.run_schedule("nightly"), OPERATORS),
    "delete schedule": (lambda do, client: do.delete_schedule("nightly"), ("admin",)),
    "cancel flow": (lambda do, client: do.cancel_flow("flow"), CANCELLERS),
    "cancel the flow of an operation": (lambda do, client: do.cancel_flow("running"), OPERATORS),
    "requeue flow": (lambda do, client: do.requeue_flow("flow"), REQUEUERS),
    "reveal": (lambda do, client: do.reveal(["dead"]), REVEALERS),
}


async def store() -> tuple[Harbor, Any]:
    """A store with a dead job, a waiting one, a schedule, two operations that failed and one that runs."""
    driver: Driver = open_driver("memory://")
    client = Harbor(driver)
    now = client._store.clock.now()
    await driver.enqueue([JobRecord(id="dead", type="mail", flow_id="flow")], now)
    (reserved,) = await driver.reserve(("default",), now, timedelta(seconds=30), 1, "w")
    await driver.settle([Fail(reserved.lease, "failed", 1, now)], now)
    await driver.enqueue([JobRecord(id="waiting", type="mail")], now)
    await client.schedules.aadd("nightly", JobRequest(type="report"), cron="30 2 * * *", by="eve")
    for id, action in (("operation", Action.REQUEUE), ("deletion", Action.DELETE)):
        plan = OperationPlan(action=action, filter=FrozenFilter(state=State.DLQ, queue="other"), by="ada")
        await driver.enqueue([slice_record(id, first_state(plan, now), now)], now)
        (reserved,) = await driver.reserve(("taskharbor",), now, timedelta(seconds=30), 1, "w")
        await driver.settle([Fail(reserved.lease, "failed", 1, now)], now)
    await driver.enqueue([slice_record("running", first_state(plan, now), now)], now)
    return client, driver


async def changes(client: Harbor, driver: Any) -> Any:
    """All that a forbidden action must leave as it is."""
    now = client._store.clock.now()
    page = await driver.list(now=now)
    paused = await driver.is_paused("default")
    schedules = [(row.name, row.revision) for row in (await driver.schedules()).items]
    return [(info.job.id, info.state, info.job.edits) for info in page.items], paused, schedules


async def check(actions: type[Actions], row: str) -> None:
    """Each level may do it or not, as the table says; what is refused changes nothing, and what is done is audited."""
    call, allowed = TABLE[row]
    for level, access in LEVELS.items():
        client, driver = await store()
        before, entries = await changes(client, driver), len((await driver.audit()).items)
        refused = False
        try:
            await call(actions(client._store, access), client)
        except AccessDenied:
            refused = True
        assert refused is (level not in allowed), f"{row}: {level} was {'' if refused else 'not '}refused"
        found = (await driver.audit()).items
        if refused:
            assert await changes(client, driver) == before, f"{row}: {level} was refused, and changed something"
            assert len(found) == entries
        elif row != "dry run":
            assert len(found) > entries, f"{row}: {level} is not in the audit"
            assert found[0].by == access.name


@pytest.mark.parametrize("row", TABLE)
def test_the_table(row: str) -> None:
    asyncio.run(check(Actions, row))


def test_every_action_is_in_the_table() -> None:
    methods = {name for name, _ in inspect.getmembers(Actions, inspect.iscoroutinefunction) if not name.startswith("_")}
    calls = "".join(inspect.getsource(call) for call, _ in TABLE.values())
    assert {name for name in methods if f".{name}(" not in calls} == set()


def without_check(number: int) -> type[Actions]:
    """The class with the n-th check of access taken out, or asking for no more than to look."""
    source = textwrap.dedent(inspect.getsource(Actions))
    tree = ast.parse(f"from __future__ import annotations\n{source}")
    seen = 0

    class Remove(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.AST:
            nonlocal seen
            if ast.unparse(node).startswith("self._access.check"):
                seen += 1
                if seen == number + 1:
                    return ast.Pass()
            return self.generic_visit(node)

        def visit_Call(self, node: ast.Call) -> ast.AST:
            nonlocal seen
            named = ast.unparse(node.func) in ("self._begin", "self._schedules")
            if named and ast.unparse(node.args[0]).startswith("Permission."):
                seen += 1
                if seen == number + 1:
                    node.args[0] = ast.parse("Permission.VIEW", mode="eval").body
            return self.generic_visit(node)

    names: dict[str, Any] = dict(vars(actions_module))
    exec(
        compile(ast.fix_missing_locations(Remove().visit(tree)), actions_module.__file__, "exec"), names
    )  # our own source
    if seen <= number:
        raise IndexError(number)
    changed: type[Actions] = names["Actions"]
    return changed


CHECKS = len(
    re.findall(r"self\._(?:access\.check\(|begin\(Permission|schedules\(Permission)", inspect.getsource(Actions))
)


@pytest.mark.left_to("full", except_for=lanes.Chosen("0", "7", "14", "21"))
@pytest.mark.parametrize("number", range(CHECKS))
def test_an_action_that_does_not_ask_is_noticed(number: int) -> None:
    broken = without_check(number)

    async def notice() -> bool:
        for row in TABLE:
            try:
                await check(broken, row)
            except AssertionError:
                return True
        return False

    assert asyncio.run(notice())


def test_a_slice_of_an_operation_is_not_brought_back_as_a_job() -> None:
    """An operator may requeue, but not delete: the slice of a failed delete stays dead."""

    async def test() -> None:
        client, driver = await store()
        do = Actions(client._store, Access.operate("ada"))
        before = await changes(client, driver)
        for errors in (await do.requeue(["deletion.000000"]), await do.retry(["deletion.000000"])):
            assert [str(error) for error in errors if "is part of an operation" in str(error)]
        with pytest.raises(WrongState, match="is part of an operation"):
            await do.requeue_flow("deletion")
        with pytest.raises(WrongState, match="is part of an operation"):
            await do.amend(Amend(id="deletion.000000", deliveries=1, edits=0, priority=3))
        assert await changes(client, driver) == before
        mixed = await do.requeue(["deletion.000000", "dead", "dead.000000"])
        assert [type(error).__name__ for error in mixed] == ["WrongState", "NoneType", "JobNotFound"]

    asyncio.run(test())


def test_levels_grow() -> None:
    assert LEVELS["none"].actions == frozenset()
    view, operate, admin = (frozenset(LEVELS[name].actions) for name in ("view", "operate", "admin"))
    assert view < operate < admin == frozenset(Permission)


def test_an_unknown_action_is_refused_with_its_names() -> None:
    with pytest.raises(ValueError, match="expected one of view, requeue"):
        Access(name="ada", actions={"retry"})
    with pytest.raises(AccessDenied, match="ada may not delete; allowed: view"):
        Access.view("ada").check("delete")


def test_nobody_amends_what_an_operation_does() -> None:
    async def test() -> None:
        client, driver = await store()
        slice = (await driver.list(flow_id="deletion", now=client._store.clock.now())).items[0].job
        change = Amend(id=slice.id, deliveries=1, edits=0, payload=slice.payload.replace(b"ada", b"eve"))
        with pytest.raises(WrongState, match="part of an operation"):
            await Actions(client._store, Access.operate("ada")).amend(change)
        assert (await driver.inspect(slice.id, client._store.clock.now())).job.payload == slice.payload

    asyncio.run(test())
