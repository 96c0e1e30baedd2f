"""What is kept for when the store is away: few pages, for people only, and nothing of what jobs carry."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from taskharbor.dashboard.page_memory import MAX_PAGES
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.job import JobRecord
from tests.dashboard.scene import record
from tests.dashboard.site import JSON, NOW, Site, visit
from tests.dashboard.test_access import PAGE_TABLE


def kept(site: Site) -> Mapping[str, Any]:
    """The pages that the application keeps, by their keys."""
    app: Any = site.app
    endpoint = next(route.endpoint for route in app._app.routes if route.path == "/about")
    cells = dict(zip(endpoint.__code__.co_freevars, endpoint.__closure__, strict=True))
    pages: Mapping[str, Any] = cells["self"].cell_contents._memory._pages
    return pages


def carried(value: Any) -> Iterator[bytes]:
    """The payloads and results of all jobs inside a value."""
    if isinstance(value, JobRecord):
        yield from (value.payload, value.result or b"")
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from carried(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            yield from carried(getattr(value, each.name))
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from carried(getattr(value, name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            yield from carried(each)


def test_pages_for_scripts_are_not_kept():
    async def look(site: Site) -> None:
        for path in PAGE_TABLE.values():
            await site.send("GET", path.format(**vars(site.scene)), headers=JSON)
        assert not kept(site)

    visit(look)


def test_words_that_no_page_knows_make_no_new_entry():
    async def look(site: Site) -> None:
        for number in range(5):
            assert (await site.get(f"/jobs?state=dlq&odd{number}={number}&utm={number}")).status_code == 200
        assert len(kept(site)) == 1
        await site.get("/jobs?state=ready")
        assert len(kept(site)) == 2

    visit(look)


def test_few_pages_are_kept():
    async def look(site: Site) -> None:
        for number in range(MAX_PAGES + 5):
            await site.get(f"/jobs?type=t{number}")
        assert len(kept(site)) == MAX_PAGES <= 50

    visit(look, played=False)


def test_no_payload_is_kept():
    async def look(site: Site) -> None:
        for path in PAGE_TABLE.values():
            assert (await site.get(path.format(**vars(site.scene)))).status_code == 200
        assert (await site.get(f"/jobs/{site.scene.done}")).status_code == 200
        for address, page in kept(site).items():
            found = [each for each in carried(page) if each]
            assert (address, found) == (address, [])

    visit(look)


def test_a_list_reads_payloads_only_of_the_jobs_whose_errors_it_masks():
    seen: list[bytes] = []

    class Watched(MemoryDriver):
        async def list(self, *args: Any, **options: Any) -> Any:
            page = await super().list(*args, **options)
            seen.extend(info.job.payload for info in page.items)
            return page

    async def look(site: Site) -> None:
        await site.driver.enqueue([record("t", "mail", NOW, id="big", payload={"x": "y" * 1_000_000})], NOW)
        seen.clear()
        assert (await site.json("/jobs?limit=500"))["jobs"]
        assert set(seen) == {b""}
        dead = (await site.json("/jobs?state=dlq&type=billing.charge"))["jobs"]
        assert dead[0]["reason"]

    visit(look, driver=Watched())
