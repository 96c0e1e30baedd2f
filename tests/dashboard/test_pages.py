"""What the pages say: keys for scripts, words for people, and what they show when the store is away."""

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from taskharbor import Harbor
from taskharbor.dashboard import dashboard
from taskharbor.drivers import JobRecord
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import Page
from taskharbor.model.outcome import Retry
from taskharbor.ops.access import Access
from taskharbor.policy.trail import with_trail
from tests.dashboard.scene import MINUTE
from tests.dashboard.site import JSON, NOW, Site, visit

JOB = [
    "id", "type", "queue", "state", "priority", "attempts", "max_attempts", "run_at", "created_at", "finished_at",
    "group", "flow_id", "worker", "lease_expires_at", "reason",
]  # fmt: skip
QUEUE = ["queue", "paused", "workers", "jobs", "capped", "oldest_ready_at", "oldest_known"]
SCHEDULE = [
    "name", "queue", "type", "status", "cron", "every", "tz", "next_at", "last_at", "last_id", "deleted", "paused",
    "edited", "declared", "fired", "missed", "skipped", "jitter", "catch_up", "overlap", "start_at", "end_at", "note",
    "upcoming",
]  # fmt: skip
KEYS = {
    "/": ["at", "queues", "workers", "attention"],
    "/queues": ["queues", "cursor"],
    "/queues/mail": [*QUEUE, "serving"],
    "/jobs": ["jobs", "cursor"],
    "/dead": ["by", "jobs", "complete", "rows", "more"],
    "/flows": ["flows", "cursor"],
    "/flows/{flow}": ["id", "status", "created_at", "updated_at", "done", "total", "jobs", "edges", "complete", "next"],
    "/schedules": ["schedules", "cursor"],
    "/schedules/nightly": SCHEDULE,
    "/workers": ["workers"],
    "/operations": ["operations", "entries", "cursor"],
    "/operations/new?state=dlq": ["action", "jobs", "capped", "cut", "limit", "sample", "notes"],
    "/about": ["ok", "checks"],
}


def test_every_page_answers_json_with_the_keys_of_the_command_line():
    async def look(site: Site) -> None:
        for path, keys in KEYS.items():
            assert list(await site.json(path.format(**vars(site.scene)))) == keys
        assert list((await site.json("/jobs"))["jobs"][0]) == JOB
        assert list((await site.json("/queues"))["queues"][0]) == QUEUE
        whole = await site.json(f"/jobs/{site.scene.dead}")
        assert {"payload_bytes", "hidden", "executions", "missing", "reasons"} <= set(whole)
        assert (whole["payload"], whole["hidden"]) == (None, ["payload"])
        assert whole["reasons"][0]["code"] == "dlq"

    visit(look)


def test_a_dead_job_of_an_unknown_type_says_so_before_it_is_requeued():
    async def visit_job(site: Site) -> None:
        assert "declares no task" not in (await site.get(f"/jobs/{site.scene.dead}")).text

        @site.harbor.task(name="something.else")
        def something() -> None: ...

        assert "This application declares no task" in (await site.get(f"/jobs/{site.scene.dead}")).text

    visit(visit_job)


def test_the_page_of_a_dead_job_that_is_retried_while_it_is_read_is_shown(monkeypatch: pytest.MonkeyPatch):
    async def look(site: Site) -> None:
        inspect, id = MemoryDriver.inspect, site.scene.dead

        async def once(driver: MemoryDriver, job_id: str, now: Any) -> Any:
            info = await inspect(driver, job_id, now)
            monkeypatch.setattr(MemoryDriver, "inspect", inspect)
            await driver.requeue([job_id], now)
            return info

        monkeypatch.setattr(MemoryDriver, "inspect", once)
        reply = await site.get(f"/jobs/{id}")
        assert (reply.status_code, ">dead</span>" in reply.text) == (200, True)
        assert (await site.json(f"/jobs/{id}"))["state"] == "ready"

    visit(look)


def test_each_waiting_row_says_why():
    async def look(site: Site) -> None:
        page = (await site.get("/jobs?limit=200")).text
        for code in ("no_worker", "paused", "group_full", "next", "not_due", "blocked"):
            assert f'data-code="{code}"' in page

    visit(look)


def test_the_overview_says_what_needs_an_operator():
    async def look(site: Site) -> None:
        points = (await site.json("/"))["attention"]
        assert [point["code"] for point in points] == ["dead_kind", "dead_kind", "dead_kind", "no_worker", "paused"]
        assert points[0]["text"].startswith("37 × SMTPServerDisconnected in mail.receipt")

    visit(look)


def test_an_empty_store_has_pages_that_say_so():
    async def look(site: Site) -> None:
        for path, text in {
            "/": "no worker has come yet",
            "/queues": "No queue holds a job",
            "/jobs": "There are no jobs",
            "/dead": "No dead jobs",
            "/flows": "No workflows",
            "/workers": "No worker sent a heartbeat",
            "/operations": "Nothing was changed",
        }.items():
            assert text in (await site.get(path)).text

    visit(look, played=False)


def test_an_error_that_comes_again_is_shown_once():
    async def look(site: Site) -> None:
        await site.driver.enqueue([JobRecord(id="twice", type="t", queue="again")], NOW)
        for attempts, error in enumerate(("KeyError: old", "ValueError: no", "ValueError: no"), 1):
            (held,) = await site.driver.reserve(("again",), NOW, MINUTE, 1, "w")
            end = Retry(held.lease, None, attempts, error, NOW)
            await site.driver.settle([with_trail(held.job, end, NOW)], NOW)
        page = (await site.get("/jobs/twice")).text
        assert page.count('aria-label="Error of execution') == 2
        assert page.count("The same error as #3.") == 1

    visit(look, played=False)


def test_the_audit_leads_to_what_was_changed_and_a_workflow_says_how_it_begins():
    async def look(site: Site) -> None:
        await site.post("/queues/a%20b/pause")
        await site.post("/schedules/nightly/pause")
        audit = (await site.get("/operations")).text
        assert '<a href="/queues/a%20b">a b</a>' in audit
        assert '<a href="/schedules/nightly">nightly</a>' in audit
        flow = await site.json(f"/flows/{site.scene.flow}")
        first = next(job["type"] for job in flow["jobs"] if job["id"] not in {edge[1] for edge in flow["edges"]})
        assert f'title="It begins with {first}"' in (await site.get(f"/flows/{site.scene.flow}")).text
        failed = site.scene.failed_flow
        assert f'href="/jobs?flow={failed}&amp;state=dlq">1 dead</a>' in (await site.get(f"/flows/{failed}")).text
        assert '<span class="s-dlq">1 dead</span>' in (await site.get("/flows")).text

    visit(look)


def test_pages_follow_a_cursor_to_the_last_job():
    async def look(site: Site) -> None:
        seen: list[str] = []
        path = "/jobs?limit=70"
        while path:
            page = await site.json(path)
            seen += [job["id"] for job in page["jobs"]]
            path = "" if page["cursor"] is None else f"/jobs?limit=70&cursor={page['cursor']}"
        counts = await site.driver.counts(NOW)
        assert len(seen) == len(set(seen)) == sum(sum(states.values()) for states in counts.values())

    visit(look)


def test_the_filter_bar_leads_to_the_address_of_its_words():
    async def look(site: Site) -> None:
        reply = await site.get("/jobs?q=queue:mail+state:dlq+type:'a+b'")
        assert reply.headers["location"] == "/jobs?queue=mail&state=dlq&type=a+b"
        assert (await site.get("/jobs?q=01M7HG69PC")).headers["location"] == "/jobs/01M7HG69PC"
        found = await site.json("/jobs?queue=mail&state=dlq")
        assert {(job["queue"], job["state"]) for job in found["jobs"]} == {("mail", "dlq")}

    visit(look)


def test_what_is_not_there_is_404():
    async def look(site: Site) -> None:
        for path in ("/jobs/none", "/flows/none", "/nothing"):
            assert (await site.get(path)).status_code == 404
            assert "error" in (await site.send("GET", path, headers=JSON)).json()

    visit(look)


def test_it_mounts_under_any_prefix():
    async def look(site: Site) -> None:
        page = (await site.get("/")).text
        assert 'href="/ops/jobs/jobs?state=ready"' in page
        assert 'src="/ops/jobs/static/theme.js' in page
        assert (await site.get("/static/taskharbor.css")).status_code == 200
        assert (await site.post("/queues/mail/pause")).status_code == 200
        assert (await site.get("/jobs?q=queue:x")).headers["location"] == "/ops/jobs/jobs?queue=x"

    visit(look, prefix="/ops/jobs")


def test_it_mounts_in_an_application():
    async def look(site: Site) -> None:
        mounted = dashboard(site.harbor, access=lambda request: Access.view("vera"), title="Orders")
        site.app = Starlette(routes=[Mount("/admin/jobs", mounted)])
        page = await site.get("/admin/jobs/")
        assert "Orders</a>" in page.text
        assert 'href="/admin/jobs/queues"' in page.text
        assert (await site.get("/admin/jobs/jobs", **JSON)).status_code == 200

    visit(look)


class Flaky(MemoryDriver):
    """A store that can be away."""

    away = False

    def __getattribute__(self, name: str) -> Any:
        if name in ("counts", "list", "inspect", "workers", "figures") and object.__getattribute__(self, "away"):

            async def refuse(*args: Any, **options: Any) -> None:
                raise BackendUnavailable("connection refused by postgresql://ops:hunter2@db/jobs")

            return refuse
        return object.__getattribute__(self, name)


def test_a_store_that_is_away_shows_the_last_value_with_its_age():
    driver = Flaky()

    async def look(site: Site) -> None:
        assert (await site.get("/queues")).status_code == 200
        driver.away = True
        site.clock.advance(90)
        reply = await site.get("/queues")
        assert reply.status_code == 200
        assert "The store does not answer." in reply.text
        assert "read 1m 30s ago" in reply.text
        assert 'href="/queues/mail"' in reply.text
        fresh = await site.get("/workers")
        assert fresh.status_code == 503
        assert "hunter2" not in fresh.text + reply.text
        assert (await site.send("GET", "/queues", headers=JSON)).status_code == 503
        driver.away = False
        assert "does not answer" not in (await site.get("/queues")).text

    visit(look, driver=driver)


def test_actions_do_what_they_say_and_are_in_the_audit():
    async def act(site: Site) -> None:
        scene, driver = site.scene, site.driver
        assert (await site.post("/queues/mail/pause")).json() == {"done": "queue mail is paused; what runs goes on"}
        assert await driver.is_paused("mail")
        await site.post("/queues/mail/resume")
        await site.post(f"/jobs/{scene.dead}/retry")
        assert (await driver.inspect(scene.dead, NOW)).state == "ready"
        await site.post(f"/jobs/{scene.scheduled}/cancel")
        assert (await driver.inspect(scene.scheduled, NOW)).state == "cancelled"
        reply = await site.post(f"/jobs/{scene.scheduled}/delete")
        assert reply.headers["hx-redirect"] == "/jobs"
        refused = await site.post(f"/jobs/{scene.done}/retry")
        assert (refused.status_code, "is done" in refused.json()["error"]) == (409, True)
        requeued = await site.post(f"/flows/{scene.failed_flow}/requeue")
        assert requeued.json()["done"].startswith("1 job requeued")
        entries = (await site.json("/operations"))["entries"]
        assert [entry["action"] for entry in entries[:7]] == [
            "requeue flow", "retry", "delete", "cancel", "retry", "resume", "pause",
        ]  # fmt: skip
        assert {entry["by"] for entry in entries[:7]} == {"ada"}

    visit(act)


def test_an_operation_takes_exactly_what_its_preview_showed():
    async def act(site: Site) -> None:
        preview = await site.json("/operations/new?state=dlq&queue=mail")
        assert preview["jobs"] == 37
        late = JobRecord(id="late", type="t", queue="mail", max_attempts=1)
        site.clock.advance(10)
        await site.driver.enqueue([late], site.clock.now())
        fields = {"action": "requeue", "state": "dlq", "queue": "mail", "until": preview["cut"]}
        assert (await site.post("/operations", **{**fields, "until": ""})).status_code == 400
        begun = await site.post("/operations", **fields, canary="2", max_failures="0", spread="10m")
        assert begun.headers["hx-redirect"].startswith("/operations#")
        (row,) = (await site.json("/operations"))["operations"]
        assert row["filter"] == {"state": "dlq", "queue": "mail", "until": preview["cut"].replace("Z", "+00:00")}
        assert row["options"] == {"canary": "2", "max_failures": "0", "spread": "600"}
        assert (await site.post("/operations", **fields, canary="0")).status_code == 400
        assert (await site.post("/operations", **fields, spread="soon")).status_code == 400
        assert (await site.post("/operations", action="requeue", until=preview["cut"])).status_code != 500

    visit(act)


def test_what_makes_no_sense_as_an_argument_is_refused():
    with pytest.raises(TypeError, match="expected a Harbor"):
        dashboard("sqlite:///x.db")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError, match="expected a function"):
        dashboard(Harbor("memory://"), access="admin")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError, match="expected a list"):
        dashboard(Harbor("memory://"), redact="card")


def test_the_header_of_an_action_is_ascii():
    async def act(site: Site) -> None:
        reply = await site.post("/queues/%C3%A4/pause")
        assert json.loads(reply.headers["hx-trigger"])["said"].startswith("queue ä")

    visit(act)


def test_a_search_that_finds_little_ends_in_time_and_goes_on_with_older():
    class Slow(MemoryDriver):
        calls = 0
        clock: Any = None

        async def list(self, *args: Any, **options: Any) -> Any:
            self.calls += 1
            self.clock.advance(0.3)
            return Page((), f"after {self.calls}")

    slow = Slow()

    async def look(site: Site) -> None:
        slow.clock = site.clock
        page = (await site.get("/jobs?error=none")).text
        assert slow.calls == 2
        assert "Nothing found yet" in page
        assert "cursor=after+2" in page

    visit(look, driver=slow, played=False)
