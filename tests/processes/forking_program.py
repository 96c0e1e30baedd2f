"""A program that used its harbor, blocking, awaited and in threads, and forks then; all enqueue at the same time."""

import asyncio
import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.processes.web_apps import note

EACH = 10


def enqueue_some(first: int) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(note.enqueue, range(first, first + EACH // 2)))
    asyncio.run(await_some(range(first + EACH // 2, first + EACH)))


async def await_some(numbers: range) -> None:
    await asyncio.gather(*(note.aenqueue(number) for number in numbers))


def main(processes: int) -> None:
    enqueue_some(0)
    children = []
    for child in range(1, processes + 1):
        pid = os.fork()
        if pid == 0:
            enqueue_some(child * EACH)
            os._exit(0)
        children.append(pid)
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        pool.map(enqueue_some, [child * EACH for child in range(processes + 1, 2 * processes + 1)], chunksize=1)
    enqueue_some((2 * processes + 1) * EACH)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0] * processes, codes


if __name__ == "__main__":
    main(int(sys.argv[1]))
