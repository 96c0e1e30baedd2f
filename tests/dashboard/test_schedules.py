"""Schedules in the dashboard: a page for each, and an edit that says beforehand what follows from it."""

from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from taskharbor import JobRequest
from taskharbor.ops.schedule_edit import FIELDS, fields_of
from tests.dashboard.site import JSON, NOW, Site, visit
from tests.dashboard.test_attacks import SCRIPT

BOMBS = (
    "* * * * * " * 50_000,
    "*/1" + ",*/1" * 60 + " * * * *",
    "0-59/1," * 40 + "0 * * * *",
    "1-9999999999 * * * *",
    "0 0 31 2 *",
    "@reboot",
    "@yearly" * 40,
    "\x00 * * * *",
    "9" * 250,
    SCRIPT,
    "{{7*7}}",
)

RARE = ("*/99999999999999999999 * * * *", "0 0 30 2 1#5", "0 0 29 2 1", "*/1" + ",*/1" * 40 + " * * * *")
NONSENSE: tuple[dict[str, str], ...] = (
    {},
    {"cron": "", "every": ""},
    {"cron": "61 * * * *"},
    {"tz": "Mars/Olympus"},
    {"tz": "../../etc/passwd"},
    {"tz": ""},
    {"every": "0s"},
    {"every": "soon"},
    {"every": "99999999999d"},
    {"every": "10m", "jitter": "20m"},
    {"jitter": "-5m"},
    {"catch_up": "some"},
    {"overlap": ""},
    {"start_at": "tomorrow"},
    {"start_at": "2030-01-31T09:00:00"},
    {"start_at": "9999-12-31T23:59:59+00:00", "end_at": "1970-01-01T00:00:00Z"},
    {"tz": "x" * 5_000},
)


async def typed(site: Site, name: str = "nightly", **changes: str) -> dict[str, str]:
    """The fields of a form as a person sends it who changed some of them."""
    shown = fields_of(await site.harbor.schedules.aget(name))
    return {**shown, **{f"was_{field}": shown[field] for field in FIELDS}, **changes}


def test_a_schedule_is_edited_and_the_audit_has_it():
    async def act(site: Site) -> None:
        fields = await typed(site, cron="0 4 * * MON", jitter="10m", overlap="allow")
        reply = await site.post("/schedules/nightly/edit", **fields)
        assert reply.json() == {"done": "schedule nightly was changed: cron, jitter, overlap"}
        info = await site.harbor.schedules.aget("nightly")
        assert (info.cron, info.tz, info.jitter.seconds, info.overlap) == ("0 4 * * MON", "Europe/Zurich", 600, "allow")
        entry = (await site.json("/operations"))["entries"][0]
        assert (entry["by"], entry["action"], entry["target"]) == ("ada", "schedule.edit", "nightly")
        page = (await site.get("/schedules/nightly")).text
        assert "edited since" in page
        assert "At 04:00 on Monday" in page
        await site.post("/schedules/nightly/reset")
        assert (await site.harbor.schedules.aget("nightly")).cron == "30 2 * * *"

    visit(act)


def test_an_interval_takes_the_place_of_an_expression_and_the_reverse():
    async def act(site: Site) -> None:
        assert (await site.post("/schedules/nightly/edit", **await typed(site, every="90m"))).status_code == 200
        info = await site.harbor.schedules.aget("nightly")
        assert (info.cron, info.every and info.every.total_seconds()) == (None, 5400)
        fields = await typed(site, every="", cron="@daily")
        assert (await site.post("/schedules/nightly/edit", **fields)).status_code == 200
        assert (await site.harbor.schedules.aget("nightly")).cron == "@daily"

    visit(act)


def test_two_people_who_change_different_options_both_succeed():
    async def act(site: Site) -> None:
        mine = await typed(site, jitter="5m")
        theirs = await typed(site, tz="America/New_York")
        await site.post("/schedules/nightly/edit", **theirs)
        await site.post("/schedules/nightly/edit", **mine)
        info = await site.harbor.schedules.aget("nightly")
        assert (info.tz, info.jitter.seconds) == ("America/New_York", 300)

    visit(act)


def test_nonsense_in_a_field_is_a_clear_refusal_and_changes_nothing():
    async def act(site: Site) -> None:
        before = await site.harbor.schedules.aget("nightly")
        for changes in NONSENSE:
            fields = await typed(site, **changes)
            reply = await site.post("/schedules/nightly/edit", **fields)
            assert (changes, reply.status_code) == (changes, 400), reply.text
            assert "expected" in reply.json()["error"]
            assert len(reply.text) < 1_000
            if changes:
                page = await site.send("GET", f"/schedules/nightly?{urlencode(fields)}", headers=JSON)
                assert (changes, page.status_code, "expected" in page.json()["problem"]) == (changes, 200, True)
        assert await site.harbor.schedules.aget("nightly") == before

    visit(act)


def test_an_expression_that_is_made_to_be_costly_is_refused():
    async def act(site: Site) -> None:
        before = await site.harbor.schedules.aget("nightly")
        for bomb in BOMBS:
            site.level = "operate"
            reply = await site.post("/schedules/nightly/edit", **await typed(site, cron=bomb))
            assert (bomb[:50], reply.status_code) == (bomb[:50], 400), reply.text[:300]
            assert len(reply.text) < 1_000
            if len(bomb) < 5_000:
                site.level = "view"
                page = await site.get(f"/schedules/nightly?{urlencode({'cron': bomb})}")
                assert page.status_code == 200
                assert "<script>alert" not in page.text
                assert "expected" in page.text
        assert await site.harbor.schedules.aget("nightly") == before

    visit(act)


def test_an_expression_that_seldom_matches_has_a_preview():
    async def look(site: Site) -> None:
        for rare in RARE:
            found = await site.json(f"/schedules/nightly?{urlencode({'cron': rare})}")
            assert (rare, "problem" in found, len(found["upcoming"]) in (2, 3, 4, 5)) == (rare, False, True)

    visit(look)


def test_the_preview_says_what_would_follow_and_changes_nothing():
    async def look(site: Site) -> None:
        plain = await site.json("/schedules/nightly")
        assert plain["upcoming"][0] == "2030-01-16T01:30:00Z"
        assert plain["upcoming"][0] == msgspec.to_builtins((await site.harbor.schedules.apreview("nightly", 1))[0])
        fields = await typed(site, cron="0 9 * * *", tz="America/New_York")
        draft = await site.json(f"/schedules/nightly?{urlencode(fields)}")
        assert draft["upcoming"][0] == "2030-01-15T14:00:00Z"
        assert draft["cron"] == "30 2 * * *"
        page = (await site.get(f"/schedules/nightly?{urlencode(fields)}")).text
        assert "Next, with these changes" in page
        assert "Tue 15 Jan 2030, 09:00:00 EST" in page
        assert (await site.harbor.schedules.aget("nightly")).edited is False

    visit(look)


def test_the_form_is_for_those_who_may_edit():
    async def look(site: Site) -> None:
        for level, shown in (("view", False), ("operate", True), ("admin", True)):
            site.level = level
            page = (await site.get("/schedules/nightly")).text
            assert ("Change the schedule" in page) is shown
            assert ("/schedules/nightly/delete" in page) is (level == "admin")

    visit(look)


def test_schedules_have_pages_and_odd_names_are_text():
    async def look(site: Site) -> None:
        name = SCRIPT.replace("{{7*7}}", "")[:60]
        for each in (name, "a/b", "x/edit", "100%"):
            await site.harbor.schedules.aadd(each, JobRequest(type=name, queue="q"), every=60, by="ada")
            page = await site.get(f"/schedules/{quote(each, safe='')}")
            assert page.status_code == 200
            assert "<script>alert" not in page.text
            assert (await site.post(f"/schedules/{quote(each, safe='')}/pause")).status_code == 200
        first = await site.json("/schedules?limit=4")
        assert len(first["schedules"]) == 4
        second = await site.json(f"/schedules?{urlencode({'limit': 4, 'cursor': first['cursor']})}")
        assert (len(second["schedules"]), second["cursor"]) == (2, None)
        assert {each["queue"] for each in (await site.json("/schedules?queue=q"))["schedules"]} == {"q"}
        listed = await site.get("/schedules")
        assert "<script>alert" not in listed.text
        for missing in ("/schedules/none", "/schedules/" + "n" * 5_000):
            assert (await site.get(missing)).status_code in (400, 404)

    visit(look)


def test_a_schedule_that_no_worker_fires_needs_an_operator():
    async def look(site: Site) -> None:
        assert "overdue" not in [point["code"] for point in (await site.json("/"))["attention"]]
        site.clock.advance(24 * 3600)
        (point,) = [each for each in (await site.json("/"))["attention"] if each["code"] == "overdue"]
        assert point["text"].startswith("Overdue: nightly;")
        assert "overdue: nightly" in (await site.get("/about")).text

    visit(look)


def test_a_row_that_cannot_be_read_is_shown_with_the_reason():
    async def look(site: Site) -> None:
        driver: Any = site.driver
        (row,) = (await driver.schedules(names=["nightly"], limit=1)).items
        from taskharbor.model.schedule import ScheduleChange

        broken = msgspec.structs.replace(row, body=b"\xff", revision="other")
        assert await driver.change_schedules([ScheduleChange(name="nightly", expect=row.revision, to=broken)], NOW)
        page = await site.get("/schedules/nightly")
        assert (page.status_code, "unreadable" in page.text) == (200, True)
        assert "Change the schedule" not in page.text
        assert (await site.post("/schedules/nightly/edit", jitter="5m")).status_code == 409
        assert "unreadable" in (await site.get("/schedules")).text

    visit(look)
