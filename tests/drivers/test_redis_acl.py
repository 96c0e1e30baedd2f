"""The permissions that docs/driver-redis.md names are what is needed, all of it, and no more."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import DriverError, JobRecord
from taskharbor.drivers.redis import RedisDriver, server_checks
from taskharbor.omniq import OmniQ, now_ms
from tests.drivers import versions
from tests.drivers.redis_stores import damage, damage_field, emptied
from tests.drivers.test_conformance_redis import RedisCases
from tests.drivers.test_redis_server_checks import NOW
from tests.servers import redis as servers

ROOT = Path(__file__).parents[2]
SOURCES = [
    *(ROOT / "src/taskharbor/drivers/redis").rglob("*.lua"),
    *(ROOT / "src/taskharbor/drivers/redis").glob("*.py"),
    *(ROOT / "src/taskharbor/omniq").rglob("*.lua"),
]
# Words in capitals that are names of commands and need no permission here.
OTHERWISE = {"READONLY": "the first word of an error", "AUTH": "every user may log in"}

WORD = "restricted"


def restricted(server: Any, *changes: str) -> str:
    """The address of a server for a user with the permissions of the page, changed."""
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", WORD, "reset", "on", f">{WORD}", *server_checks.rule().split(), *changes
        )
    return server.url.replace("//", f"//{WORD}:{WORD}@") + "?checks=0"


@pytest.mark.lane("redis")
def test_acl_lists_the_commands_that_the_sources_send():
    with servers.shared().client() as client:
        known = {name.upper() for name in client.command()}
    found = set()
    for path in SOURCES:
        if path.name != "server_checks.py":
            found |= set(re.findall(r"""['"]([A-Z]+)['"]""", path.read_text())) & known
    sent = (found - set(OTHERWISE)) | {"MULTI", "DISCARD"}
    assert {example[0] for example in server_checks.examples(*server_checks.NEEDED)} == sent
    assert set(OTHERWISE) <= found


@pytest.mark.lane("redis")
def test_the_page_shows_them():
    page = (ROOT / "docs/driver-redis.md").read_text()
    (shown,) = re.findall(r"ACL SETUSER taskharbor on >password (.*?)\n```", page, re.DOTALL)
    assert shown.split() == server_checks.rule().split()


class Restricted(RedisCases):
    """The contract, for a user who may do what the page says and nothing else."""

    def make_driver(self):
        emptied(self.kind)
        return RedisDriver(restricted(servers.shared(self.kind)))


@pytest.mark.lane("conformance-acl")
@pytest.mark.left_to("matrix", except_for=versions.every_call)
class TestRestricted(Restricted):
    kind = "redis7"


@pytest.mark.lane("conformance-acl")
@pytest.mark.left_to("matrix")
class TestRestrictedOnOldRedis(Restricted):
    kind = "redis6"


@pytest.mark.lane("conformance-acl")
@pytest.mark.left_to("matrix")
class TestRestrictedOnACluster(RedisCases):
    def make_driver(self):
        cluster = servers.shared_cluster()
        cluster.empty()
        for node in cluster.nodes:
            restricted(node)
        return RedisDriver(f"{cluster.url.replace('//', f'//{WORD}:{WORD}@')}?checks=0")

    def damage(self, driver, id, how):
        with servers.shared_cluster().client() as client:
            damage(client, id, how)

    def damage_field(self, driver, id, field, kind):
        with servers.shared_cluster().client() as client:
            return damage_field(client, id, field, kind)


def denied(address: str) -> list[str]:
    return asyncio.run(RedisDriver(address).denied())


@pytest.mark.lane("redis")
@pytest.mark.parametrize("kind", servers.KINDS)
def test_what_is_missing_is_named(kind):
    server = servers.shared(kind)
    assert denied(restricted(server)) == []
    assert denied(restricted(server) + "&durable=1") == []
    for example in server_checks.examples("every store"):
        name = server_checks.name_of(example)
        base = "-client" if name.startswith("client") else f"-{name}"
        (told,) = denied(restricted(server, base))
        assert told.endswith(f"allow +{name}"), (told, name)
    assert denied(restricted(server, "-wait")) == []
    assert denied(restricted(server, "-wait") + "&durable=1") != []
    (told,) = denied(restricted(server, "resetkeys", "~{th*"))
    assert told == "this user may not use every key that is needed ({default}:doctor): allow ~{*"
    (told,) = denied(restricted(server, "resetkeys", "~{default}*"))
    assert "({th}:doctor, {th:ids:0})" in told
    (told,) = denied(restricted(server, "resetchannels"))
    assert told.endswith("allow &{*")
    assert denied(restricted(server, "-multi")) == ["what this user may do cannot be asked: allow +multi +discard"]
    assert not server.run("KEYS", "*doctor*")


@pytest.mark.lane("redis")
def test_a_node_that_denies_is_found_on_a_cluster():
    cluster = servers.shared_cluster()
    for node in cluster.nodes:
        restricted(node)
    address = f"{cluster.url.replace('//', f'//{WORD}:{WORD}@')}?checks=0"
    assert denied(address) == []
    for node in cluster.nodes:
        restricted(node, *([] if node is cluster.nodes[0] else ["-asking"]))
    (told,) = denied(address)
    assert told.endswith("allow +asking")


@pytest.mark.lane("redis")
@pytest.mark.parametrize("kind", servers.KINDS)
def test_a_call_that_is_not_allowed_says_what_to_do(kind):
    server = servers.shared(kind)
    emptied(kind)

    async def call(address):
        driver = RedisDriver(address)
        try:
            await driver.open()
            await driver.enqueue([JobRecord(id="a", type="t")], NOW)
        finally:
            await driver.close()

    for change in ("-evalsha", "-hset", "-ping", "-client"):
        with pytest.raises(DriverError, match="taskharbor doctor names what is missing"):
            asyncio.run(call(restricted(server, change)))


@pytest.mark.lane("redis")
def test_doctor_names_what_is_missing():
    """Also where the store cannot even be opened for it."""

    def doctor(*changes: str) -> tuple[int, str]:
        address = restricted(servers.shared(), *changes)
        words = [sys.executable, "-m", "taskharbor", "doctor", "--dsn", address]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, " ".join(done.stdout.split())

    emptied()
    code, told = doctor()
    assert (code, "ok rights the user has the permissions that the driver needs" in told) == (0, True), told
    code, told = doctor("-ping", "-lrem")
    assert code == 1
    assert "problem rights this user may not run every command that is needed: allow +lrem +ping" in told
    assert WORD not in told


@pytest.mark.lane("redis")
def test_a_client_of_omniq_needs_no_more():
    emptied()
    with OmniQ(restricted(servers.shared())) as q:
        for name in "abc":
            q.publish("jobs", {}, job_id=name, gid="g", group_limit=2)
        job: Any = q.reserve("jobs")
        q.heartbeat("jobs", job.job_id, job.lease_token)
        q.ack_fail("jobs", job.job_id, job.lease_token)
        q.promote_delayed("jobs", now_ms_override=now_ms() + 3_600_000)
        q.remove_job("jobs", "b", "gwait")
        job = q.reserve("jobs")
        q.ack_success("jobs", job.job_id, job.lease_token)
        q.reap_expired("jobs")
        q.purge_failed("jobs", 0)
        q.set_group_limit("jobs", "g", 3)
        q.childs_init("set", 1)
        assert q.child_ack("set", "x") == 0
