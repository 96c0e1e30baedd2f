"""Ids typed as prefixes: the one job that fits, or an error that names those that do; never another job."""

from datetime import datetime
from itertools import pairwise

import pytest

from taskharbor.drivers import Driver, JobRecord, State
from taskharbor.model.errors import JobNotFound
from taskharbor.model.ids import IdSource
from taskharbor.store.ids import MAX_CANDIDATES, AmbiguousId, find_job, is_prefix, short_ids
from tests.cli.shell import at_terminal, kill, store, taskharbor, within

A, B, C = "01M7HG69P849N38WGBK6M8KYDV", "01M7HG69PE168053F4SBDEHQSJ", "01M8AAAAAAAAAAAAAAAAAAAAAA"
FLOW, OTHER = "01M9AAAAAAAAAAAAAAAAAAAAA0", "01M9BBBBBBBBBBBBBBBBBBBBB0"


def filled(dsn: str) -> str:
    store(
        dsn,
        JobRecord(id=A, type="mail"),
        JobRecord(id=B, type="mail"),
        JobRecord(id=C, type="report", flow_id=FLOW),
        JobRecord(id="01M9AAAAAAAAAAAAAAAAAAAAA1", type="a", flow_id=FLOW),
        JobRecord(id="01M9BBBBBBBBBBBBBBBBBBBBB1", type="b", flow_id=OTHER),
        JobRecord(id="order-170", type="mail"),
        JobRecord(id="DEAD", type="mail"),
        JobRecord(id="DEADBEEF", type="mail"),
    )
    return dsn


def test_a_prefix_finds_the_only_job_that_fits(any_dsn: str):
    filled(any_dsn)
    for typed in (A, "01M7HG69P8", "01m7hg69p8", A[:25]):
        assert taskharbor("inspect", typed, "--dsn", any_dsn, "--output", "json").json["id"] == A
    answer = taskharbor("explain", "01M7HG69", "--dsn", any_dsn)
    assert answer.code == 1
    assert answer.line == (
        f"taskharbor: 01M7HG69 is ambiguous; jobs that begin with it: {A} (mail, ready), {B} (mail, ready)"
    )
    answer = taskharbor("inspect", "01ZZZZ", "--dsn", any_dsn)
    assert (answer.code, answer.line) == (1, "taskharbor: no job 01ZZZZ, and no job whose id begins with it")


def test_an_id_of_the_applications_own_is_never_completed(any_dsn: str):
    filled(any_dsn)
    for typed in ("order-17", "DEADBEE", "01M", "order-"):
        answer = taskharbor("job", "delete", typed, "--yes", "--dsn", any_dsn)
        assert answer.code == 1, typed
        assert f"no job {typed}" in answer.line
    assert taskharbor("inspect", "DEAD", "--dsn", any_dsn, "--output", "json").json["id"] == "DEAD"


def test_commands_that_change_jobs_take_prefixes_too(any_dsn: str):
    filled(any_dsn)
    answer = taskharbor("job", "cancel", "01M7HG69P8", B[:12], "01M8", "01M7", "--yes", "--dsn", any_dsn)
    assert (answer.code, answer.out) == (1, "3 jobs were cancelled\n")
    assert "01M7 is ambiguous" in answer.err
    answer = taskharbor("job", "retry", A[:12], A, "--dsn", any_dsn, "--output", "json")
    assert answer.json == {"done": [A], "refused": []}
    answer = taskharbor("job", "delete", "01M8", "--yes", "--dsn", any_dsn)
    assert (answer.code, answer.out) == (0, f"{C} was deleted\n")
    kill(any_dsn, A)
    answer = taskharbor("dlq", "requeue", A[:11], "--dsn", any_dsn)
    assert (answer.code, answer.out) == (0, f"{A} was requeued\n")


def test_a_flow_is_found_by_its_prefix_and_by_that_of_a_job(any_dsn: str):
    filled(any_dsn)
    for typed in ("01M9AAAA", "01M8", C):
        assert taskharbor("flow", "show", typed, "--dsn", any_dsn, "--output", "json").json["id"] == FLOW
    answer = taskharbor("flow", "cancel", "01M9", "--yes", "--dsn", any_dsn)
    assert (answer.code, answer.line) == (
        1,
        f"taskharbor: 01M9 is ambiguous; flows that begin with it: {FLOW}, {OTHER}",
    )
    answer = taskharbor("flow", "show", "01M7HG69P8", "--dsn", any_dsn)
    assert answer.line == f"taskharbor: job {A} does not belong to a flow"
    answer = taskharbor("list", "--flow", "01M9BB", "--dsn", any_dsn, "--output", "json")
    assert [job["flow_id"] for job in answer.json["jobs"]] == [OTHER]


def test_an_ambiguous_prefix_names_a_few_and_reads_no_more(dsn: str):
    ids = [f"01M7HG69P8AAAAAAAAAAAAAA{n:02}" for n in range(40)]
    store(dsn, *(JobRecord(id=id, type="x") for id in ids))

    async def ask(driver: Driver, now: datetime) -> str:
        limits: list[int] = []
        original = driver.list

        async def counted(**query: object) -> object:
            limits.append(query["limit"])  # type: ignore[arg-type]  # a number
            return await original(**query)  # type: ignore[arg-type]  # as they came

        driver.list = counted  # type: ignore[method-assign,assignment]  # to see what is asked for
        with pytest.raises(AmbiguousId) as found:
            await find_job(driver, "01M7", now)
        assert limits == [MAX_CANDIDATES + 1]
        return str(found.value)

    text = within(dsn, ask)
    assert text.count("01M7HG69P8A") == MAX_CANDIDATES
    assert text.endswith(", …")


def test_what_can_be_a_prefix():
    assert [
        text for text in ("01M7", "01m7", "01M", "01M7-", "01MI", "01MU", A, "", "\udcff" * 5) if is_prefix(text)
    ] == [*("01M7", "01m7")]


def test_short_ids_are_prefixes_that_differ():
    source = IdSource()
    ids = [source.make(1_700_000_000_000 + n // 5) for n in range(50)]
    short = short_ids(ids)
    assert len({len(id) for id in short}) == 1
    assert all(id.startswith(cut) for id, cut in zip(ids, short, strict=True))
    assert all(a != b for a, b in pairwise(sorted(short)))
    assert short_ids([]) == []
    assert short_ids([A]) == [A[:12]]
    assert short_ids([A, A + ".join"]) == [A, A + ".join"]
    assert short_ids(["order-1", "x" * 26]) == ["order-1", "x" * 26]


def test_every_id_that_a_narrow_table_shows_is_accepted(dsn: str):
    source = IdSource()
    ids = [source.make(1_700_000_000_000 + n // 3) for n in range(12)]
    store(dsn, *(JobRecord(id=id, type="shop.checkout.send_receipt", queue="receipts") for id in ids))
    code, seen = at_terminal("list", "--dsn", dsn, columns=80, NO_COLOR="1")
    head, *rows = seen.splitlines()
    assert (code, len(rows)) == (0, 12)
    assert head.split() == ["id", "type", "queue", "state", "tries", "when"]
    shown = [row.split()[0] for row in rows]
    assert max(map(len, shown)) < 26
    assert all("send_receipt  receipts  ready" in row for row in rows), "what tells jobs apart is whole"

    async def find(driver: Driver, now: datetime) -> list[str]:
        return [(await find_job(driver, typed, now)).job.id for typed in shown]

    assert within(dsn, find) == ids


def test_a_job_that_is_gone_is_not_found(dsn: str):
    filled(dsn)

    async def ask(driver: Driver, now: datetime) -> State:
        await driver.delete([A])
        with pytest.raises(JobNotFound):
            await find_job(driver, A, now)
        return (await find_job(driver, "01M7HG69P", now)).state

    assert within(dsn, ask) is State.READY
