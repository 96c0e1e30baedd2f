"""Handlers with faults that a checker has to find, each at the line that its comment names, and one without."""

import sqlite3
from collections.abc import Callable
from typing import Any

from taskharbor import Fixed, Harbor, JobContext

harbor = Harbor("memory://")
charged: list[str] = []
database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("create table ledger (account text, cents integer)")
harbor.outbox.create(database)
database.commit()


def begin() -> None:
    charged.clear()
    database.rollback()
    database.execute("delete from ledger")
    database.execute("delete from taskharbor_once")
    database.commit()


def observe() -> dict[str, Any]:
    return {"charged": list(charged), "ledger": database.execute("select account, cents from ledger").fetchall()}


def charge_card(who: str) -> str:
    charged.append(who)
    return f"receipt of {who}"


def charge_card_once(who: str, key: str) -> str:
    if f"{who} {key}" not in charged:
        charged.append(f"{who} {key}")
    return f"receipt of {who}"


@harbor.task(retry=Fixed(0))
def charges_twice(ctx: JobContext, who: str) -> None:
    charge_card(who)  # FAULT: nothing keeps it from being done again
    with database, harbor.once(database, ctx.key("book")) as first:
        if first:
            database.execute("insert into ledger values (?, 500)", (who,))


@harbor.task(retry=Fixed(0))
async def books_what_it_forgets(ctx: JobContext, who: str) -> None:
    with database, harbor.once(database, ctx.key("book")) as first:  # FAULT: committed before what it stands for
        pass
    if first:
        with database:
            database.execute("insert into ledger values (?, 500)", (who,))


@harbor.task(retry=Fixed(0))
def receipts_twice(ctx: JobContext, who: str) -> str:
    receipt = ctx.step("charge", charge_card_once, who, ctx.key("charge"))
    send_receipt.enqueue(receipt)  # FAULT: no idempotency key
    return receipt


@harbor.task
def send_receipt(text: str) -> None: ...


@harbor.task(retry=Fixed(0))
def does_it_right(ctx: JobContext, who: str) -> str:
    receipt = ctx.step("charge", charge_card_once, who, ctx.key("charge"))
    with database, harbor.once(database, ctx.key("book")) as first:
        if first:
            database.execute("insert into ledger values (?, 500)", (who,))
    send_receipt.options(idempotency_key=ctx.key("receipt")).enqueue(receipt)
    return receipt


def fault_line(function: Callable[..., Any]) -> int:
    """The line of the first fault in a function."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if "# FAULT" in line)
