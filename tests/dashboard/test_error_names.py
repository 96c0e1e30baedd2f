"""The class of an error in an address: a bare name looks for every class of that name, and changes none of them."""

from datetime import timedelta
from html import unescape

from taskharbor.drivers import Fail, JobRecord
from tests.dashboard.site import JSON, Site, visit

LEASE = timedelta(minutes=1)
CLASSES = {"z": "zipfile.BadZipFile", "own": "app.ConnectionError", "builtin": "ConnectionError"}


async def bury(site: Site) -> None:
    now = site.clock.now()
    await site.driver.enqueue([JobRecord(id=id, type="t", created_at=now) for id in CLASSES], now)
    for each in await site.driver.reserve(["default"], now, LEASE, len(CLASSES), "w"):
        name = CLASSES[each.job.id]
        await site.driver.settle([Fail(each.lease, "over", 1, now, name, (), name, name)], now)
    site.clock.advance(1)  # an operation takes what ended before it


async def ids(site: Site, error: str) -> list[str]:
    return sorted(job["id"] for job in (await site.json(f"/jobs?error={error}"))["jobs"])


def test_looking_takes_a_bare_name_and_a_full_one():
    async def look(site: Site) -> None:
        await bury(site)
        assert await ids(site, "BadZipFile") == await ids(site, "zipfile.BadZipFile") == ["z"]
        assert await ids(site, "ConnectionError") == ["builtin", "own"]
        assert await ids(site, "builtins.ConnectionError") == ["builtin"]
        assert (await site.json("/dead?error=ConnectionError"))["jobs"] == 2

    visit(look, played=False)


def test_changing_refuses_a_bare_name_and_names_the_full_ones():
    async def act(site: Site) -> None:
        await bury(site)
        query = "state=dlq&error=ConnectionError"
        for reply in (
            await site.send("GET", f"/operations/new?action=delete&{query}", headers=JSON),
            await site.post(
                "/operations", action="delete", state="dlq", error="ConnectionError", until="2030-02-01T00:00:00Z"
            ),
        ):
            assert reply.status_code == 400, reply.text
            assert "builtins.ConnectionError" in reply.text
            assert "app.ConnectionError" in reply.text
        preview = await site.json("/operations/new?action=delete&state=dlq&error=builtins.ConnectionError")
        assert [job["id"] for job in preview["sample"]] == ["builtin"]

    visit(act, played=False)


def test_a_link_means_the_class_that_it_stands_beside():
    async def look(site: Site) -> None:
        await bury(site)
        for page in ("/dead?by=error", "/jobs/builtin"):
            text = unescape((await site.get(page)).text)
            assert "error=builtins.ConnectionError" in text, page
            assert "error=ConnectionError" not in text, page

    visit(look, played=False)
