"""A program under gevent's monkey patching: its blocking calls work, or are refused with one sentence."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.on_uvloop.stores import STORES
from tests.servers import postgres

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from taskharbor import Harbor

harbor = Harbor(sys.argv[1])

@harbor.task
def work(n: int) -> None: ...

ended = 0
def turn(number):
    global ended
    work.enqueue(number)
    ended += 1

greenlets = [gevent.spawn(turn, number) for number in range(100)]
gevent.joinall(greenlets, raise_error=True)
print(ended, len({each for each in greenlets if each.successful()}))
"""
REFUSED = """
from gevent import monkey
monkey.patch_all()
from taskharbor.model.errors import BlockingCall
from taskharbor.store.portal import Portal

async def nothing(): ...

try:
    Portal().call(nothing, "Client.enqueue")
except BlockingCall as error:
    print(error)
"""
OTHERS = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from taskharbor import BlockingCall, Harbor

harbor = Harbor(sys.argv[1])

@harbor.task
def work(n: int) -> int: return n

def turn(number):
    handle = work.enqueue(number)
    assert handle.info().state == handle.status() == "ready"
    handle.cancel()
    handle.requeue()
    assert handle.id in {each.job.id for each in harbor.jobs(queue="default")}
    assert [each.name for each in harbor.queues()] == ["default"]
    try:
        handle.wait(timeout=0.01)
    except TimeoutError:
        return
    raise AssertionError("there is no worker")

gevent.joinall([gevent.spawn(turn, number) for number in range(5)], raise_error=True)
try:
    harbor.worker().run(until_empty=True)
except BlockingCall as error:
    print(error)
harbor.close()
"""
WITHOUT = importlib.util.find_spec("gevent") is None


def ran(program: str, *arguments: str) -> str:
    given = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(given, capture_output=True, text=True, timeout=120, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.may_skip("gevent is not installed")
@pytest.mark.skipif(WITHOUT, reason="gevent is not installed")
@pytest.mark.lane("postgres")
def test_greenlets_enqueue_on_postgres() -> None:
    server = postgres.shared()
    assert ran(PROGRAM, server.address(server.store())) == "100 100"


@pytest.mark.may_skip("gevent is not installed")
@pytest.mark.skipif(WITHOUT, reason="gevent is not installed")
@pytest.mark.lane("sqlite")
def test_greenlets_enqueue_on_sqlite(tmp_path: Path) -> None:
    assert ran(PROGRAM, f"sqlite:///{tmp_path}/jobs.db") == "100 100"


@pytest.mark.may_skip("gevent is not installed")
@pytest.mark.skipif(WITHOUT, reason="gevent is not installed")
@pytest.mark.parametrize("store", [pytest.param(name, marks=pytest.mark.lane(name)) for name in STORES])
def test_greenlets_make_other_calls_and_a_worker_is_refused(store: str, tmp_path: Path) -> None:
    assert "taskharbor worker run" in ran(OTHERS, STORES[store](tmp_path))


@pytest.mark.may_skip("gevent is not installed")
@pytest.mark.skipif(WITHOUT, reason="gevent is not installed")
@pytest.mark.lane("sqlite")
def test_a_driver_that_needs_a_loop_in_a_thread_is_refused() -> None:
    assert "gevent has replaced threads by greenlets" in ran(REFUSED)
