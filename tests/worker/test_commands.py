"""Who may run SQL through a worker, and what a command may leave behind: only schedules, and nothing in its session."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.pooler import run_pooler
from tests.servers import Server
from tests.worker.conftest import Workbench
from watchbill import AsyncConnection
from watchbill.store.refusals import Invalid

COMMAND = {"command": "CREATE TABLE public.taken AS SELECT current_user"}
LEFT_BEHIND = """
    SET search_path = pg_catalog; SET work_mem = '77MB'; SET statement_timeout = '1h'; SET watchbill.actor = 'me';
    CREATE TEMP TABLE jobs (id int); PREPARE leftover AS SELECT 1; LISTEN leftover;
    SELECT pg_advisory_lock(1, 2), pg_backend_pid()"""
SEEN = """
    SELECT pg_backend_pid(), current_setting('search_path'), current_setting('work_mem'),
      current_setting('statement_timeout'), coalesce(current_setting('watchbill.actor', true), ''),
      to_regclass('pg_temp.jobs')::text, (SELECT count(*) FROM pg_prepared_statements WHERE name = 'leftover'),
      (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
        AND classid = 1 AND objid = 2)"""
CLEAN = ('"$user", public', "4MB", "0", "", None, 0, 0, 0)


@pytest.fixture
def producer(server: Server, bench: Workbench) -> Any:
    """The session of a role that may enqueue, and has no other right."""
    ((database,),) = bench.sql("SELECT current_database()")
    role = f"producer_{database}"
    name = sql.Identifier(role)
    server.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
    with psycopg.connect(server.url(database), autocommit=True) as owner:
        for grant in (
            "USAGE ON SCHEMA watchbill", "EXECUTE ON ALL FUNCTIONS IN SCHEMA watchbill",
            "SELECT, INSERT ON watchbill.jobs, watchbill.policies, watchbill.idempotency, watchbill.installation",
            "USAGE ON ALL SEQUENCES IN SCHEMA watchbill", "SELECT ON watchbill.finished_jobs",
        ):  # fmt: skip
            owner.execute(sql.SQL("GRANT {} TO {}").format(sql.SQL(grant), name))
        with psycopg.connect(server.url(database, role), autocommit=True) as connection:
            yield connection
        owner.execute(sql.SQL("DROP OWNED BY {}").format(name))
        owner.execute(sql.SQL("DROP ROLE {}").format(name))


def schedule(bench: Workbench, command: str) -> None:
    bench.sql("SELECT watchbill.add_schedule('s', at => watchbill.now(), max_attempts => 1, command => %s)", command)


@pytest.mark.parametrize("type", ["watchbill.sql", "watchbill.flow", "watchbill.flow_end", "watchbill.new"])
async def test_producers_cannot_enqueue_a_builtin_type(bench: Workbench, producer: Any, type: str) -> None:
    job = Jsonb({"type": type, "payload": COMMAND})
    with pytest.raises(psycopg.Error, match="only schedules make jobs whose type begins with watchbill"):
        producer.execute("SELECT watchbill.enqueue(%s, %s)", (type, Jsonb(COMMAND)))
    with pytest.raises(psycopg.Error, match="only schedules make jobs"):
        producer.execute('SELECT watchbill.enqueue_many(jsonb_build_array(\'{"type": "t"}\'::jsonb, %s))', (job,))
    producer.execute("CREATE TEMP TABLE incoming OF watchbill.new_job")
    producer.execute("INSERT INTO incoming (type) VALUES (%s)", (type,))
    with pytest.raises(psycopg.Error, match="only schedules make jobs"):
        producer.execute("SELECT watchbill.enqueue_from('incoming')")
    with pytest.raises(Invalid, match="only schedules make jobs"):
        await bench.app.aenqueue(type, COMMAND)


async def test_a_worker_runs_no_command_that_no_schedule_has_made(bench: Workbench, producer: Any) -> None:
    """A role that may write jobs can write any row; but not the slot of a schedule."""
    schedule(bench, "SELECT 1")
    await bench.work_off()
    ((known,),) = bench.sql("SELECT id FROM watchbill.finished_jobs")
    forged = producer.execute(
        """
        INSERT INTO watchbill.jobs (id, run_at, created_at, queue, type, payload, max_attempts, schedule_id, slot)
        SELECT i, now(), now(), 'default', 'watchbill.sql', %s, 2, f.schedule_id, f.slot
        FROM watchbill.finished_jobs f, unnest(ARRAY[f.id, gen_random_uuid()]) i
        RETURNING id""",
        (Jsonb(COMMAND),),
    ).fetchall()
    assert (known,) in forged
    await bench.work_off()
    errors = bench.sql("SELECT error->>'message' FROM watchbill.finished_jobs WHERE state = 'dead'")
    assert len(errors) == 2
    assert all("no schedule has made this job" in message for (message,) in errors)
    assert bench.sql("SELECT to_regclass('public.taken')") == [(None,)]


@pytest.mark.parametrize("by_worker", [True, False])
async def test_a_job_runs_the_command_of_its_schedule_whatever_its_payload_says(
    bench: Workbench, by_worker: bool
) -> None:
    schedule(bench, "SELECT 'own'")
    bench.sql("SELECT watchbill.tick(), watchbill.promote()")
    forged = bench.sql("UPDATE watchbill.jobs SET payload = %s RETURNING id", Jsonb({**COMMAND, "role": "nobody"}))
    assert len(forged) == 1
    if by_worker:
        await bench.work_off()
    else:
        bench.sql("SELECT watchbill.execute_due()")
    assert bench.sql("SELECT state FROM watchbill.finished_jobs") == [("succeeded",)]
    assert bench.sql("SELECT to_regclass('public.taken')") == [(None,)]


async def test_a_job_runs_a_command_that_was_repaired_since_it_was_made(bench: Workbench) -> None:
    schedule(bench, "SELECT 1 / 0")
    bench.sql("SELECT watchbill.tick(), watchbill.promote()")
    bench.sql("""SELECT watchbill.update_schedule('s', '{"command": "SELECT 7"}')""")
    await bench.work_off()
    assert bench.sql("SELECT state, result->'rows' FROM watchbill.finished_jobs") == [("succeeded", [[7]])]


@pytest.mark.parametrize("by_worker", [True, False])
async def test_a_job_of_a_removed_schedule_runs_no_command(bench: Workbench, by_worker: bool) -> None:
    schedule(bench, COMMAND["command"])
    bench.sql("SELECT watchbill.tick(), watchbill.promote()")
    bench.sql("SELECT watchbill.remove_schedule('s')")
    if by_worker:
        await bench.work_off()
    else:
        bench.sql("SELECT watchbill.execute_due()")
    ((state, message),) = bench.sql("SELECT state, error->>'message' FROM watchbill.finished_jobs")
    assert state == "dead"
    assert "removed" in message
    assert bench.sql("SELECT to_regclass('public.taken')") == [(None,)]


def test_a_task_cannot_have_a_builtin_type(bench: Workbench) -> None:
    with pytest.raises(ValueError, match=r"type 'watchbill\.sql' is invalid"):
        bench.app.task(type="watchbill.sql")(lambda: None)


def test_a_schedule_cannot_name_a_builtin_type(bench: Workbench) -> None:
    for call in (
        """add_schedule('s', '@daily', type => 'watchbill.sql', payload => '{"command": "SELECT 1"}')""",
        """add_schedule('s', '@daily', type => 'watchbill.flow',
          payload => '{"jobs": [{"type": "watchbill.sql"}], "ends": [0]}')""",
    ):
        with pytest.raises(psycopg.Error, match="type"):
            bench.sql(f"SELECT watchbill.{call}")


@pytest.mark.parametrize("end", ["", "; SELECT 1 / 0", "; VACUUM"], ids=["succeeds", "fails", "runs outside"])
async def test_nothing_that_a_command_sets_reaches_the_next_task(bench: Workbench, end: str) -> None:
    seen: list[Any] = []

    @bench.app.task
    async def look(connection: AsyncConnection) -> None:
        seen.extend(await (await connection.execute(SEEN)).fetchall())

    schedule(bench, LEFT_BEHIND + end)
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.slots WHERE outcome IS NOT NULL"))
        await (await look.aenqueue()).aresult(timeout=60)
    ((_, *state),) = seen
    assert tuple(state) == CLEAN


def test_a_command_leaves_the_session_of_a_pooler_clean(bench: Workbench, server: Server) -> None:
    """The pooler gives the same session to another client."""
    ((database,),) = bench.sql("SELECT current_database()")
    schedule(bench, LEFT_BEHIND.replace("PREPARE leftover AS SELECT 1;", ""))
    with run_pooler(server) as pooler, ExitStack() as clients:
        pooled = Workbench(pooler.url(database))
        asyncio.run(pooled.work_off())
        pooled.app.close()
        ((outcome, pid),) = bench.sql("SELECT outcome, (result->'rows'->0->>1)::int FROM watchbill.slot")
        assert outcome == "succeeded"
        states: dict[int, tuple[Any, ...]] = {}
        while pid not in states:  # each keeps its transaction open, so the next gets another session
            client = clients.enter_context(psycopg.connect(pooler.url(database), prepare_threshold=None))
            ((found, *state),) = client.execute(SEEN).fetchall()
            states[found] = tuple(state)
            assert len(states) < 50, "the pooler has closed the session of the command"
    assert states[pid] == CLEAN


async def test_worker_runs_one_command_outside_of_transactions_at_a_time(bench: Workbench) -> None:
    """Each such command needs a second connection, and the number of a worker's connections is bounded."""
    bench.sql("CREATE TABLE public.held (id int)")
    for name in ("a", "b", "c"):
        add = "SELECT watchbill.add_schedule(%s, at => watchbill.now(), command => 'VACUUM public.held')"
        bench.sql(add, name)
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
    with psycopg.connect(bench.url) as holder:
        holder.execute("LOCK TABLE public.held")
        async with bench.working():
            waiting = f"{count} AND state = 'idle in transaction' AND query LIKE '%%idle_in_transaction%%'"
            await bench.until(lambda: bench.sql(waiting, "watchbill handler") == [(3,)])
            await bench.until(lambda: bench.sql(f"{count} AND wait_event_type = 'Lock'", "watchbill command") == [(1,)])
            assert bench.sql(count, "watchbill command") == [(1,)]
            holder.rollback()
            ended = "SELECT count(*) FROM watchbill.slot WHERE outcome = 'succeeded'"
            await bench.until(lambda: bench.sql(ended) == [(3,)])
