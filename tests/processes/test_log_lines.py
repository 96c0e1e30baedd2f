"""Log lines of several processes on one pipe or socket: each arrives whole, however long it is, or slow the reader."""

import fcntl
import json
import os
import random
import socket
import subprocess
import sys
from collections import Counter

import pytest

from tests.lanes import figure, seed
from tests.supervisor.worker_run import PATIENCE, ROOT

PROCESSES, LINES = 3, figure(test=150, full=1500)
WRITER = """
import logging, random, sys
from taskharbor.observe.formatting import configure_logging
configure_logging("json")
chances = random.Random(int(sys.argv[1]))
lengths = [int(each) for each in sys.argv[3:]]
for number in range(int(sys.argv[2])):
    logging.info("x" * chances.choice(lengths), extra={"writer": sys.argv[1], "number": number})
"""


def writers(stderr: int, lines: int, *lengths: int) -> list[subprocess.Popen[bytes]]:
    given = [str(each) for each in (lines, *lengths)]
    return [
        subprocess.Popen([sys.executable, "-c", WRITER, str(seed() + number), *given], cwd=ROOT, stderr=stderr)
        for number in range(PROCESSES)
    ]


def ended(processes: list[subprocess.Popen[bytes]]) -> None:
    try:
        assert [process.wait(PATIENCE) for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_lines_of_several_processes_never_mix(kind: str) -> None:
    if kind == "pipe":
        reading, writing = os.pipe()
    else:
        pair = socket.socketpair()
        reading, writing = (each.detach() for each in pair)
    processes = writers(writing, LINES, 10, 3000, 4090, 5000, 20_000, 70_000)
    os.close(writing)
    chances, data = random.Random(seed()), bytearray()
    with open(reading, "rb", buffering=0) as file:
        while more := file.read(chances.randrange(1, 3000)):  # in small pieces: the writers have to wait for it
            data += more
    ended(processes)
    lines = [json.loads(line) for line in data.splitlines()]
    assert set(Counter(line["writer"] for line in lines).values()) == {LINES}
    for number in range(PROCESSES):
        told = [line["number"] for line in lines if line["writer"] == str(seed() + number)]
        assert told == list(range(LINES))


def test_a_stuck_writer_is_not_waited_for_for_ever() -> None:
    """It is stopped, or a handler holds its interpreter: the others have work to do."""
    reading, writing = os.pipe()
    fcntl.lockf(writing, fcntl.LOCK_EX)
    with open(reading, "rb") as file:
        processes = writers(writing, 20, 10, 3000)  # what a pipe takes in one piece
        lines = [json.loads(file.readline()) for _ in range(20 * PROCESSES)]
        ended(processes)
        os.close(writing)
        assert not file.read()
    assert set(Counter(line["writer"] for line in lines).values()) == {20}
