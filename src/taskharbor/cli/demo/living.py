"""`demo --dashboard`: workers that have something to do all the time, and the dashboard that shows them.

New jobs come as long as it runs: greetings, exchange rates that fail at first, charges that die, videos with progress,
an import as a workflow, and a schedule. Everything ends with Ctrl-C; the SQLite file stays.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from taskharbor.cli.dashboard_server import check_installed, listen, run, say, sessions_of
from taskharbor.cli.demo.tasks import charge, greet, harbor, newsletter, rate, render, split
from taskharbor.cli.demo.tour import CURRENCIES, NAMES, demo_workers, write_orders

STEP_S = 1.0
HOST = "127.0.0.1"
CLOCK = "greet-the-clock"  # a schedule


def live(folder: Path, port: int) -> None:
    """Run the workers and the dashboard until Ctrl-C."""
    check_installed()
    from taskharbor.dashboard.app import build
    from taskharbor.dashboard.guard import LOOPBACK_NAMES

    dsn = f"sqlite:///{folder}/demo.db"
    harbor._store.use(dsn)
    orders = folder / "orders.csv"
    write_orders(orders)
    listening = listen(HOST, port)
    port = listening.getsockname()[1]
    sessions = sessions_of(harbor, port, None)
    app = build(harbor, sessions=sessions, hosts=LOOPBACK_NAMES, title="TaskHarbor demo")
    say(HOST, port, sessions, dsn)
    run(app, listening, _work(dsn, folder, orders))


async def _work(dsn: str, folder: Path, orders: Path) -> None:
    """Keep two worker processes busy."""
    await newsletter.options(delay=3600).aenqueue(to="everyone")
    if CLOCK not in [info.name async for info in harbor.schedules.list()]:
        await harbor.schedules.aadd(CLOCK, greet.s(name="the clock"), every=10)
    async with demo_workers(dsn, folder / "worker.log"):
        step = 0
        while True:
            await _enqueue(step, str(orders))
            step += 1
            await asyncio.sleep(STEP_S)


async def _enqueue(step: int, orders: str) -> None:
    await harbor.aenqueue_many(greet.s(name=random.choice(NAMES)) for _ in range(random.randint(1, 6)))
    if step % 3 == 0:
        await rate.aenqueue(currency=random.choice(CURRENCIES))
    if step % 7 == 2:
        await charge.aenqueue(customer=random.choice(NAMES), cents=random.randint(100, 9_900))
    if step % 20 == 4:
        await render.options(max_attempts=2).aenqueue(file=f"talk-{step}.mp4")
    if step % 45 == 1:
        await split.aenqueue(path=orders)
