"""A worker and its chores: retries in time, nothing left behind, events for what happens."""

from __future__ import annotations

import asyncio
import math
from typing import Any
from uuid import UUID

import pytest

from tests.worker.conftest import Workbench
from watchbill import Permanent, Retry, chain, current_job
from watchbill.maintenance import promoter
from watchbill.maintenance.chores import PeriodicChores
from watchbill.maintenance.reclaimer import Reclaimer
from watchbill.maintenance.retention import Keep, Retention
from watchbill.store.node_connection import Disconnected, NodeConnection
from watchbill.store.queries import queries
from watchbill.telemetry.events import Events
from watchbill.worker.config import make_capacity
from watchbill.worker.notifications import Listener


async def test_busy_worker_promotes_a_retry_in_time(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker sleeps, so no notification is sent, and the next look of the chores would be too late for this test."""
    monkeypatch.setattr(promoter, "LONGEST_WAIT_SECONDS", 3600.0)
    attempts, done = list[int](), asyncio.Event()

    @bench.app.task
    async def occupy() -> None:
        await done.wait()

    @bench.app.task(retry=Retry(max_attempts=2, backoff="fixed", base=0.5, jitter=0))
    async def break_down() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) == 1:
            raise ValueError
        done.set()

    async with bench.working(capacity=make_capacity(2)):
        await occupy.aenqueue()
        await break_down.aenqueue()
        await bench.until(done.is_set)
    assert attempts == [1, 2]


async def test_once_mode_runs_a_job_unblocked_by_the_last_ending(bench: Workbench) -> None:
    """A job that was enqueued while its parent ran: the parent's end knows nothing of it, only the chores do."""
    ran: list[str] = []

    @bench.app.task
    async def later() -> None:
        ran.append("later")

    @bench.app.task
    async def first() -> None:
        await later.using(depends_on=[current_job().id]).aenqueue()
        ran.append("first")

    await first.aenqueue()
    await bench.work_off()
    assert ran == ["first", "later"]


class Canceled:
    """Of which jobs an app hears that they were canceled, and which of them had run there."""

    def __init__(self, bench: Workbench) -> None:
        self.told: list[UUID] = []
        self.ran: list[UUID] = []
        bench.app.on("job_canceled")(self._hear)

    def _hear(self, id: UUID, job: Any) -> None:
        self.told.append(id)
        if job is not None:
            self.ran.append(job.id)


async def test_jobs_canceled_because_of_a_parent_fire_an_event(bench: Workbench) -> None:
    heard = Canceled(bench)

    @bench.app.task
    async def fail() -> None:
        raise Permanent("no")

    @bench.app.task
    async def then() -> None: ...

    jobs = await chain(fail.bind(), then.bind(), then.bind()).aenqueue()
    await bench.work_off()
    assert sorted(heard.told) == [job.id for job in jobs[1:]]
    assert heard.ran == []


async def test_jobs_canceled_through_this_app_fire_an_event(bench: Workbench) -> None:
    heard, begun = Canceled(bench), asyncio.Event()

    @bench.app.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting = await endless.using(delay=3600).aenqueue()
    for _ in range(2):
        assert await bench.app.jobs.acancel(waiting.id) == "canceled"
    assert heard.told == [waiting.id], "once"
    running = await endless.aenqueue()
    async with bench.working():
        await begun.wait()
        assert await bench.app.jobs.acancel(running.id) == "running"
        assert heard.told == [waiting.id], "it was only asked"
        await bench.until(lambda: len(heard.told) == 2)
    assert heard.told == [waiting.id, running.id]
    assert heard.ran == [running.id]


async def test_jobs_canceled_by_the_next_slot_fire_an_event(bench: Workbench) -> None:
    heard = Canceled(bench)

    @bench.app.task(queue="nobody's")
    async def wait() -> None: ...

    await bench.app.schedules.aadd("s", every=1, task=wait, overlap="cancel_previous")
    async with bench.working(queues=("default",)):
        await bench.until(lambda: heard.told)
    slots = await bench.app.schedules.ahistory("s")
    assert heard.told[0] == slots[-1].job_id
    assert slots[-1].outcome == "canceled"


async def test_jobs_released_while_asked_to_stop_fire_a_cancel_event(bench: Workbench) -> None:
    heard = Canceled(bench)

    @bench.app.task
    async def never() -> None: ...

    jobs = [await never.aenqueue() for _ in range(2)]
    bench.sql("SELECT watchbill.claim(watchbill.register('held'), max => 2)")
    await bench.app.jobs.acancel(jobs[0].id)
    for _ in range(2):
        for job in jobs:
            await bench.app.jobs.arelease(job.id)
    assert heard.told == [jobs[0].id], "once"


async def test_jobs_that_are_not_needed_when_enqueued_fire_a_cancel_event(bench: Workbench) -> None:
    heard = Canceled(bench)

    @bench.app.task
    async def work() -> None: ...

    done = await work.aenqueue()
    await bench.work_off()
    alternative = await work.using(depends_on=[done.id], run_if="any_failed").aenqueue()
    assert heard.told == []
    await bench.work_off()
    assert heard.told == [alternative.id]


async def test_jobs_lost_while_asked_to_stop_fire_a_cancel_event(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    heard, reclaimed = Canceled(bench), list[tuple[UUID, str]]()
    bench.app.on("job_reclaimed")(lambda **told: reclaimed.append((told["id"], told["state"])))

    @bench.app.task
    async def never() -> None: ...

    jobs = [await never.aenqueue() for _ in range(2)]
    (epoch,) = bench.sql("SELECT watchbill.register('dead', lease => '1 second')")[0]
    bench.sql("SELECT watchbill.claim(%s, max => 2)", epoch)
    await bench.app.jobs.acancel(jobs[0].id)
    bench.sql("UPDATE watchbill.beats SET at = at - interval '1 hour'")
    async with bench.working(lease=1.0):
        await bench.until(lambda: heard.told and reclaimed)
    assert heard.told == [jobs[0].id]
    assert reclaimed == [(jobs[1].id, "failed")]
    assert f"Job {jobs[0].id} was lost with node dead and is canceled" in caplog.text
    assert f"Job {jobs[1].id} was lost with node dead and is queued again" in caplog.text


@pytest.mark.parametrize("age", [7200.0, -86_400.0], ids=["expired", "of the future"])
async def test_a_lost_node_is_logged_by_the_one_that_declared_it_lost(
    bench: Workbench, caplog: pytest.LogCaptureFixture, age: float
) -> None:
    """Two nodes have seen the same heartbeats: of a dead node, and of one that has sent another since. So the second
    lives, also if the clock was set forward or back."""
    register = "SELECT watchbill.register(%s, lease => '1 hour', host => 'db7', pid => 42)"
    epochs = [bench.sql(register, name)[0][0] for name in ("dead", "alive")]
    bench.sql("UPDATE watchbill.beats SET at = at - make_interval(secs => %s)", age)
    beats = bench.sql("SELECT epoch, n FROM watchbill.beats ORDER BY epoch")
    connection = NodeConnection(bench.url, queries("watchbill"), purpose="chores", timeout=30.0)
    reclaimers = [Reclaimer(connection, Events()) for _ in range(2)]
    for each in reclaimers:
        for asked in (0.0, math.inf):
            each.note_beats([(epoch, n, 3600.0, age) for epoch, n in beats], asked=asked, has_leftover_claim=False)
    bench.sql("SELECT watchbill.heartbeat(%s)", epochs[1])
    for each in reclaimers:
        await each.run()
    await connection.close()
    assert caplog.text.count("its jobs are reclaimed") == 1
    assert "Node dead (process 42 on db7) is lost: no heartbeat for 1h; its jobs are reclaimed" in caplog.text
    assert bench.sql("SELECT state FROM watchbill.nodes ORDER BY epoch") == [("lost",), ("active",)]


async def test_slot_retention_setting_decides_when_slots_are_pruned(bench: Workbench) -> None:
    ((month, end, age),) = bench.sql("""
        SELECT to_char(t - interval '1 month', 'YYYYMM'), t::text, extract(epoch FROM u - t)::float8
        FROM (SELECT now() AT TIME ZONE 'UTC') AS now(u), date_trunc('month', u - interval '4 months') AS t""")
    values = f"FROM (timestamptz '{end}+00' - interval '1 month') TO ('{end}+00')"
    bench.sql(f"CREATE TABLE watchbill.slots_{month} PARTITION OF watchbill.slots FOR VALUES {values}")

    def is_kept() -> bool:
        return bool(bench.sql("SELECT true WHERE to_regclass(%s) IS NOT NULL", f"watchbill.slots_{month}"))

    connection = NodeConnection(bench.url, queries("watchbill"), purpose="chores", timeout=30.0)
    await Retention(connection, Keep(slots=age + 60)).run()
    await connection.close()
    assert is_kept()
    node = bench.app.make_node(slot_retention=age - 60)
    running = asyncio.create_task(node.run())
    await bench.until(lambda: not is_kept())
    node.stop()
    await running


async def test_error_of_a_chain_names_the_failed_step_without_our_frames(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.task(type="fail", retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise ValueError("no luck")

    await bench.app.schedules.aadd("books", task=chain(fail.bind()))
    await bench.app.schedules.arun_now("books")
    await bench.work_off()
    (slot,) = await bench.app.schedules.ahistory("books")
    assert (slot.outcome, slot.error) == ("failed", "fail is dead: no luck")
    *_, last = [record for record in caplog.records if record.name == "watchbill.jobs"]
    assert last.getMessage() == "watchbill.flow_end is dead: Permanent: fail is dead: no luck"
    assert last.exc_info is not None
    assert last.exc_info[2] is None


async def test_an_idle_worker_without_notifications_polls_less_and_less_often(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pause is longer than the one before, up to the longest, and after work they begin anew."""
    pauses: list[float] = []

    async def wait(listener: Listener, seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def open_nothing(listener: Listener) -> None:
        listener.is_unavailable = True

    monkeypatch.setattr(Listener, "wait_for_jobs", wait)
    monkeypatch.setattr(Listener, "open", open_nothing)

    @bench.app.task
    async def work() -> None: ...

    async with bench.working(poll_interval=1.0, poll_multiplier=3.0, poll_max_interval=20.0):
        await bench.until(lambda: len(pauses) > 5)
        await (await work.aenqueue()).aresult(timeout=60)
        done = len(pauses)
        await bench.until(lambda: len(pauses) > done + 5)
    assert pauses[:5] == [1.0, 3.0, 9.0, 20.0, 20.0]
    again = pauses.index(1.0, 1)
    assert pauses[again : again + 5] == [1.0, 3.0, 9.0, 20.0, 20.0]


async def test_chore_that_loses_its_connection_does_not_block_other_chores(bench: Workbench) -> None:
    """As one does that needs more locks than the server has."""
    asked: list[str] = []

    class Broken:
        async def execute(self, query: str, params: Any = ()) -> list[tuple[Any, ...]]:
            asked.append(query)
            if query == "make_partitions":
                raise Disconnected("out of shared memory")
            return [(None,)]

    chores = PeriodicChores(Broken(), unknown_type_grace=3600)  # type: ignore[arg-type]
    for _ in range(4):  # one for each table with partitions
        with pytest.raises(Disconnected):
            await chores.run()
    await chores.run()
    assert {"expire_unsupported", "sweep_claims", "make_slot_partitions"} < set(asked)


@pytest.mark.parametrize(("table", "chore"), [("jobs", "promote"), ("slots", "tick")])
async def test_a_chore_that_fails_for_lack_of_server_resources_is_logged_by_name(
    bench: Workbench, caplog: pytest.LogCaptureFixture, table: str, chore: str
) -> None:
    """It is tried again like a lost connection, but unlike that it is not logged anywhere else."""

    @bench.app.task
    async def work() -> None: ...

    bench.sql(
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53200', MESSAGE = 'out of shared memory'; END $$"""
    )
    await bench.app.schedules.aadd("s", every=1, task=work)
    await bench.app.aenqueue("anything", delay=0.01)
    event = f"BEFORE INSERT OR UPDATE ON watchbill.{table}"
    bench.sql(f"CREATE TRIGGER refuse {event} FOR EACH ROW EXECUTE FUNCTION refuse()")
    async with bench.working():
        message = f"The chore {chore} could not run; retrying soon: out of shared memory"
        await bench.until(lambda: message in caplog.text)
