"""PostgreSQL on a disk that fills up: `python -m tests.survival.full_postgres FOLDER`, where FOLDER is a small disk.

A tablespace lies on it, the write-ahead log elsewhere. Jobs are enqueued until the server refuses; then there is
room again, and everything goes on.
Prints how many jobs were acknowledged, how many of them are missing, and how many ran.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from taskharbor import Worker
from taskharbor.drivers import BackendUnavailable, DriverError, JobRecord, open_driver
from tests.servers import postgres

DISK, BALLAST = 110_000_000, 70_000_000  # without its ballast there is room to move every job once


def made_on(folder: str) -> tuple[postgres.Server, str]:
    """A server whose new databases lie on this disk; the address of one."""
    server = postgres.Server()
    place = f"{folder}/tablespace"
    os.mkdir(place)
    if os.geteuid() == 0:
        os.chmod(folder, 0o755)
        shutil.chown(place, server.user)
    postgres._execute(server.address(), f"create tablespace small location '{place}'")
    postgres._execute(server.address(), "create database jobs tablespace small")
    return server, server.address("jobs")


async def fill(dsn: str, ballast: str) -> tuple[list[str], set[str]]:
    """Enqueue until it is refused, make room; what was acknowledged, and what is stored."""
    driver = open_driver(dsn)
    await driver.open()
    stored: list[str] = []
    refused: list[str] = []
    number = 0
    while len(refused) < 3:
        number += 1
        job = JobRecord(id=f"j{number:06}", type="t", payload=b'{"text":"%s"}' % (os.urandom(10_000).hex().encode()))
        try:
            await driver.enqueue([job], await driver.server_time())
            stored.append(job.id)
        except (BackendUnavailable, DriverError) as error:
            refused.append(str(error))
            print(f"refused: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
    assert all("refused: " in text and "No space left on device" in text for text in refused), refused
    os.truncate(ballast, 0)
    await driver.enqueue([JobRecord(id="after", type="t", payload=b'{"text":""}')], await driver.server_time())
    stored.append("after")
    found, cursor = set(), None
    while True:
        page = await driver.list(now=await driver.server_time(), cursor=cursor, limit=200)
        found |= {info.job.id for info in page.items}
        if (cursor := page.cursor) is None:
            break
    await driver.close()
    return stored, found


async def work(dsn: str) -> int:
    worker, ran = Worker(open_driver(dsn)), 0

    async def handler(text: str) -> None:
        nonlocal ran
        ran += 1

    worker.register("t", handler)
    await worker.arun(until_empty=True)
    return ran


def main() -> None:
    folder = sys.argv[1]
    server, dsn = made_on(folder)
    try:
        ballast = Path(folder, "ballast")
        ballast.write_bytes(bytes(BALLAST))
        stored, found = asyncio.run(fill(dsn, str(ballast)))
        ran = asyncio.run(work(dsn))
        print(len(stored), len(set(stored) - found), len(found - set(stored)), ran)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
