"""Operations by filter, on virtual time: what they touch, what they leave alone, and how they end."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from taskharbor import State, WrongState
from taskharbor.drivers import JobRecord, Seen
from taskharbor.store.bulk.plan import (
    OPERATION_TYPE,
    Action,
    FrozenFilter,
    OperationPlan,
    OperationStatus,
    first_state,
    slice_record,
)
from taskharbor.store.bulk.runner import SLICE_LEASE
from tests.bulk.bench import Store, run


def of(states: dict[str, State], state: State) -> list[str]:
    return sorted(id for id, each in states.items() if each is state)


class TestWhatIsTouched:
    def test_all_that_fit_and_no_others(self) -> None:
        async def test() -> None:
            store = Store()
            mail = await store.kill(3, type="mail", queue="a")
            await store.kill(2, type="sms", queue="a")
            await store.kill(2, type="mail", queue="b")
            waiting = await store.enqueue(2, type="mail", queue="a")
            store.later(1)
            operation = await store.client.dead(type="mail", queue="a").arequeue(by="ada")
            assert await store.finish(operation) == "done"
            states = await store.states()
            assert of(states, State.READY) == sorted(mail + waiting)
            assert len(of(states, State.DLQ)) == 4
            progress = await operation.aprogress()
            assert (progress.done, progress.skipped) == (3, 0)

        run(test())

    @pytest.mark.parametrize("wanted", [{"error": "KeyError"}, {"fingerprint": "fp-KeyError"}, {"group": "g"}])
    def test_each_filter(self, wanted: dict[str, Any]) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(2)
            meant = await store.kill(1, error_class="KeyError", group="g")
            store.later(1)
            await store.finish(await store.client.dead(**wanted).arequeue())
            assert of(await store.states(), State.READY) == meant

        run(test())

    def test_what_dies_after_the_cut_stays_dead(self) -> None:
        async def test() -> None:
            store = Store()
            before = await store.kill(2)
            store.later(1)
            operation = await store.client.dead().arequeue()
            after = await store.kill(3)  # enqueued and dead before a slice ran, in the very moment of the cut
            store.later(1)
            assert await store.finish(operation) == "done"
            assert of(await store.states(), State.DLQ) == after
            assert of(await store.states(), State.READY) == before

        run(test())

    def test_what_was_enqueued_before_and_dies_after_the_cut_stays_dead(self) -> None:
        async def test() -> None:
            store = Store()
            late = await store.enqueue(2)
            store.later(1)
            operation = await store.client.dead().arequeue()
            await store.die(2)
            assert await store.finish(operation) == "done"
            assert of(await store.states(), State.DLQ) == late

        run(test())

    def test_what_it_brought_back_and_died_again_is_not_brought_back_twice(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(1_200)
            store.later(1)
            operation = await store.client.dead().arequeue(spread=100)
            await store.runner.run_one()  # counts
            await store.runner.run_one()  # the first window
            back = of(await store.states(), State.READY)
            assert back
            await store.die(len(back))
            assert await store.finish(operation) == "done"
            assert of(await store.states(), State.DLQ) == back

        run(test())

    def test_slices_are_never_changed_by_operations(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(100)
            store.later(1)
            slow = await store.client.dead().arequeue(spread=100)
            await store.runner.run_one()
            await store.runner.run_one()
            store.later(1)  # its next slice waits for its window
            everything = await store.client.jobs().acancel()
            assert await store.finish(everything) == "done"
            assert await slow.astatus() is OperationStatus.RUNNING
            assert await store.finish(slow) == "done"

        run(test())

    def test_cancel_passes_over_what_has_ended(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(2)
            waiting = await store.enqueue(2)
            store.later(1)
            operation = await store.client.jobs(queue="default").acancel()
            assert await store.finish(operation) == "done"
            assert of(await store.states(), State.CANCELLED) == waiting
            assert (await operation.aprogress()).skipped == 0

        run(test())

    def test_the_audit_has_large_numbers_as_they_were_given(self) -> None:
        async def test() -> None:
            store = Store()
            await store.client.dead().arequeue(limit=1_234_567, spread=timedelta(days=30))
            (entry,) = [entry async for entry in store.client.audit()]
            assert entry.options == {"limit": "1234567", "spread": "2592000"}

        run(test())

    def test_delete_forgets_them(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(1_100)
            waiting = await store.enqueue(1)
            store.later(1)
            assert await store.finish(await store.client.dead().adelete()) == "done"
            assert list(await store.states()) == waiting

        run(test())

    def test_a_job_that_another_one_needs_is_skipped_once(self) -> None:
        async def test() -> None:
            store = Store()
            needed, *_ = await store.kill(1_100)
            await store.enqueue(1, depends_on=(needed,))
            store.later(1)
            operation = await store.client.dead().adelete()
            assert await store.finish(operation) == "done"
            progress = await operation.aprogress()
            assert (progress.done, progress.skipped) == (1_099, 1)
            assert of(await store.states(), State.DLQ) == [needed]

        run(test())

    def test_a_limit_takes_the_oldest_ids(self) -> None:
        async def test() -> None:
            store = Store()
            ids = await store.kill(5)
            store.later(1)
            operation = await store.client.dead().arequeue(limit=2)
            assert await store.finish(operation) == "done"
            assert of(await store.states(), State.READY) == ids[:2]

        run(test())


class TestChangedSince:
    def test_a_job_that_changes_between_the_listing_and_the_change_is_skipped(self) -> None:
        async def test() -> None:
            store = Store()
            first, second = await store.kill(2)
            store.later(1)
            operation = await store.client.dead().adelete()
            listed = store.driver.list

            async def list_then_requeue(**query: Any) -> Any:
                page = await listed(**query)
                if query.get("state") is State.DLQ:
                    await store.driver.requeue([first], store.clock.now())  # another operator, in this very moment
                return page

            store.driver.list = list_then_requeue  # type: ignore[method-assign]  # a race, staged
            assert await store.finish(operation) == "done"
            assert await store.states() == {first: State.READY}
            progress = await operation.aprogress()
            assert (progress.done, progress.skipped) == (1, 1)
            assert second not in await store.states()

        run(test())

    def test_two_operations_on_the_same_jobs_change_each_once(self) -> None:
        async def test() -> None:
            store = Store()
            ids = await store.kill(50)
            store.later(1)
            one, other = await store.client.dead().arequeue(), await store.client.dead().adelete()
            await store.finish(one)
            await store.finish(other)
            assert of(await store.states(), State.READY) == ids
            assert (await other.aprogress()).done == 0

        run(test())

    def test_seen_is_exact(self) -> None:
        async def test() -> None:
            store = Store()
            (id,) = await store.kill(1)
            info = await store.info(id)
            assert info.job.finished_at is not None
            earlier = info.job.finished_at - timedelta(milliseconds=1)
            stale = Seen(info.job.deliveries, info.job.edits, earlier)
            (error,) = await store.driver.delete([id], seen=[stale])
            assert isinstance(error, WrongState)
            assert await store.driver.delete([id], seen=[Seen.of(info)]) == [None]

        run(test())


class TestSpread:
    def test_the_jobs_start_evenly_over_the_time(self) -> None:
        async def test() -> None:
            store = Store()
            ids = await store.kill(1_000)
            began = store.later(1)
            operation = await store.client.dead().arequeue(spread=100)
            assert await store.finish(operation) == "done"
            starts = []
            for id in ids:
                run_at = (await store.info(id)).job.run_at
                starts.append((run_at - began).total_seconds() if run_at is not None else None)
            later = [second for second in starts if second is not None]
            assert len(ids) - len(later) <= 20 * 3  # due at once: the first of each window
            assert 90 <= max(later) <= 100
            for second in range(0, 100, 5):  # 10 a second, so 50 in five; no five seconds have twice as many
                assert sum(second <= each < second + 5 for each in later) <= 100, second

        run(test())

    def test_a_slice_of_a_short_spread_ends_in_time(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(2_000)
            store.later(1)
            operation = await store.client.dead().arequeue(spread=1)
            requeued = store.driver.requeue

            async def requeue_slowly(*given: Any, **options: Any) -> Any:
                store.later(1)
                return await requeued(*given, **options)

            store.driver.requeue = requeue_slowly  # type: ignore[method-assign]  # a store under load
            await store.runner.run_one()  # counts
            began = store.clock.now()
            await store.runner.run_one()
            assert store.clock.now() - began < SLICE_LEASE
            assert (await operation.aprogress()).done == 500
            assert await store.finish(operation) == "done"
            progress = await operation.aprogress()
            assert (progress.done, progress.skipped) == (2_000, 0)

        run(test())

    def test_a_slice_of_a_short_spread_has_not_all_jobs(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(12_000)
            store.later(1)
            operation = await store.client.dead().arequeue(spread=0.001)
            await store.runner.run_one()  # counts
            await store.runner.run_one()
            assert (await operation.aprogress()).done == 10_000
            assert await store.finish(operation) == "done"
            assert (await operation.aprogress()).done == 12_000

        run(test())

    def test_a_slice_holds_only_its_window(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(1_000)
            store.later(1)
            operation = await store.client.dead().arequeue(spread=100)
            await store.runner.run_one()
            assert (await operation.aprogress()).total == 1_000
            await store.runner.run_one()
            assert len(of(await store.states(), State.DLQ)) == 950  # a twentieth
            assert not await store.runner.run_one()  # the next one is due in 5 seconds
            store.later(4.9)
            assert not await store.runner.run_one()
            store.later(0.1)
            assert await store.runner.run_one()
            assert len(of(await store.states(), State.DLQ)) == 900

        run(test())

    def test_after_an_outage_the_pace_stays(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(1_000)
            store.later(1)
            await store.client.dead().arequeue(spread=100)
            await store.runner.run_one()
            await store.runner.run_one()
            store.later(3_600)  # no worker for an hour
            await store.runner.run_one()
            assert len(of(await store.states(), State.DLQ)) == 900

        run(test())


class TestStop:
    def test_the_rest_stays_as_it_is(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(1_000)
            store.later(1)
            operation = await store.client.dead().arequeue(spread=100, by="ada")
            await store.runner.run_one()
            await store.runner.run_one()
            store.later(0.001)
            await operation.astop(by="bob")
            store.later(1_000)
            assert not await store.runner.run_one()
            assert len(of(await store.states(), State.DLQ)) == 950
            assert await operation.astatus() is OperationStatus.STOPPED
            entries = [entry async for entry in store.client.audit()]
            assert [(entry.action, entry.status, entry.by) for entry in entries] == [
                ("stop", "", "bob"),
                ("requeue", "stopped", "ada"),
            ]
            assert entries[1].done == 50
            await operation.astop()  # twice does nothing

        run(test())

    def test_a_stop_during_the_last_slice_is_in_the_audit_as_one(self) -> None:
        async def test() -> None:
            store = Store()
            await store.kill(3)
            store.later(1)
            operation = await store.client.dead().arequeue()
            put = store.driver.put_audit

            async def stop_then_put(*given: Any) -> None:
                store.driver.put_audit = put  # type: ignore[method-assign]  # once
                await operation.astop()
                await put(*given)

            store.driver.put_audit = stop_then_put  # type: ignore[method-assign,assignment]  # a race, staged
            await store.runner.run_one()
            assert await operation.astatus() is OperationStatus.STOPPED
            (entry,) = [entry async for entry in store.client.audit() if entry.status]
            assert (entry.status, entry.done) == ("stopped", 3)

        run(test())

    def test_an_operation_that_has_ended_cannot_be_stopped(self) -> None:
        async def test() -> None:
            store = Store()
            operation = await store.client.dead().arequeue()
            await store.finish(operation)
            await operation.astop()
            assert await operation.astatus() is OperationStatus.DONE

        run(test())


class TestPause:
    def test_a_paused_queue_is_named_in_the_error(self) -> None:
        async def test() -> None:
            store = Store()
            operation = await store.client.dead().arequeue()
            await store.client.apause("taskharbor")
            with pytest.raises(WrongState, match="the queue taskharbor is paused"):
                await operation.arun()

        run(test())


class TestDamage:
    def test_a_slice_that_cannot_be_read_is_dead(self) -> None:
        async def test() -> None:
            store = Store()
            record = JobRecord(id="op.000000", type=OPERATION_TYPE, queue="taskharbor", flow_id="op", payload=b"{}")
            await store.driver.enqueue([record], store.clock.now())
            await store.runner.run_one()
            info = await store.info(record.id)
            assert info.state is State.DLQ
            assert "not the state of an operation" in info.job.reason

        run(test())

    @pytest.mark.parametrize("where", ["plan", "filter"])
    def test_a_slice_that_says_more_than_this_version_knows_changes_nothing(self, where: str) -> None:
        async def test() -> None:
            store = Store()
            dead = await store.kill(3)
            now = store.later(1)
            plan = OperationPlan(action=Action.DELETE, filter=FrozenFilter(state=State.DLQ), by="ada")
            record = slice_record("op", first_state(plan, now), now)
            said = msgspec.json.decode(record.payload)
            (said["plan"] if where == "plan" else said["plan"]["filter"])["only_of_tenant"] = "a"
            record = msgspec.structs.replace(record, payload=msgspec.json.encode(said))
            await store.driver.enqueue([record], now)
            await store.runner.run_one()
            assert of(await store.states(), State.DLQ) == dead
            assert (await store.info(record.id)).state is State.DLQ

        run(test())

    def test_a_job_of_another_type_in_the_queue_waits(self) -> None:
        async def test() -> None:
            store = Store()
            await store.driver.enqueue([JobRecord(id="x", type="mail", queue="taskharbor")], store.clock.now())
            assert await store.runner.run_one()
            assert (await store.info("x")).state is State.SCHEDULED
            assert not await store.runner.run_one()

        run(test())
