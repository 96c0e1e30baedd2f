"""A CSV import in chunks: split, load all chunks side by side, then commit once. And go on where it failed.

Without a file it writes one of its own, with a mistake in it, and shows how the import fails, is corrected and
resumed. `python app.py orders.csv` imports a file of yours with the columns order, customer and cents.

How many chunks there are is known only once the file was looked at: `split` returns the workflow that takes its place.
Each chunk is loaded into a staging table under its own number, so that loading one twice changes nothing; `commit`
moves everything at once.
"""

import atexit
import csv
import logging
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

from taskharbor import Harbor, JobDead, Unrecoverable
from taskharbor.flow import Flow, FlowFailure, chain, chord

FOLDER = Path(tempfile.mkdtemp(prefix="csv-import-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
SHOP = FOLDER / "shop.db"
LINES = 250  # of a chunk

harbor = Harbor(f"sqlite:///{FOLDER / 'jobs.db'}")


@contextmanager
def shop() -> Iterator[sqlite3.Connection]:
    """The database that is imported into: one transaction, committed at the end or not at all."""
    with closing(sqlite3.connect(SHOP, timeout=30)) as connection, connection:
        yield connection


def say(line: str) -> None:
    """Prints a line in one piece: `print` writes text and line end apart, and the handlers run in threads."""
    sys.stdout.write(f"{line}\n")


@harbor.task
def split(path: str) -> Flow[int]:
    with open(path, newline="", encoding="utf-8") as file:
        lines = sum(1 for _ in csv.reader(file)) - 1  # the header
    starts = range(0, lines, LINES)
    say(f"split: {lines} lines in {len(starts)} chunks")
    return chord((load.s(path=path, start=start) for start in starts), commit.s())


@harbor.task(max_attempts=3)
def load(path: str, start: int) -> int:
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(islice(csv.DictReader(file), start, start + LINES))
    values = []
    for line, row in enumerate(rows, start=start + 2):
        if not row["cents"].isdigit():
            raise Unrecoverable(f"line {line}: expected cents, got {row['cents']!r}")  # no retry mends a file
        values.append((start, row["order"], row["customer"], int(row["cents"])))
    with shop() as connection:
        connection.execute("delete from staging where chunk = ?", (start,))
        connection.executemany("insert into staging values (?, ?, ?, ?)", values)
    say(f"load: lines {start + 2} to {start + 1 + len(rows)}")
    return len(rows)


@harbor.task
def commit(loaded: list[int]) -> int:
    with shop() as connection:
        connection.execute('insert or replace into orders select "order", customer, cents from staging')
        connection.execute("delete from staging")
    say(f"commit: {sum(loaded)} orders from {len(loaded)} chunks, in one transaction")
    return sum(loaded)


@harbor.task
def tell(failure: FlowFailure) -> None:
    say(f"on_failure: {failure.reason}")


def write_orders(path: Path, lines: int) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["order", "customer", "cents"])
        for number in range(1, lines + 1):
            cents = "12,50" if number == 777 else str(number * 37 % 10_000)
            writer.writerow([f"A{number:05}", f"customer {number % 91}", cents])


def main() -> None:
    logging.getLogger("taskharbor").setLevel(logging.CRITICAL)  # the output below is the story
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "orders.csv"
    if len(sys.argv) == 1:
        write_orders(path, 1200)
    with shop() as connection:
        connection.execute('create table staging (chunk int, "order" text, customer text, cents int)')
        connection.execute('create table orders ("order" text primary key, customer text, cents int)')

    flow = chain(split.s(path=str(path.resolve())), on_failure=tell.s()).enqueue()
    harbor.worker(concurrency=4).run(until_empty=True)
    if flow.status() == "failed":
        try:
            flow.result()
        except JobDead as error:
            print(f"the import is {flow.status()} at {flow.progress()} jobs: {error.reason}")
        if len(sys.argv) > 1:
            return
        path.write_text(path.read_text(encoding="utf-8").replace('"12,50"', "1250"), encoding="utf-8")
        print("the file is corrected, the dead job requeued; what was loaded is not loaded again:")
        flow.requeue()
        harbor.worker(concurrency=4).run(until_empty=True)
    with shop() as connection:
        orders, cents = connection.execute("select count(*), total(cents) from orders").fetchone()
    told = f"{flow.result()} lines, {orders} orders in the shop, {cents / 100:.2f} in all"
    print(f"the import has {flow.status()}: {told}")


if __name__ == "__main__":
    main()
