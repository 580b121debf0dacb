"""A schema 11 with jobs of every kind is migrated to the newest schema while programs work on it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.migration.old_schema import Columns, OldSchema, Rows, load_schema, read_columns, read_rows
from tests.servers import Server
from tests.waiting import until
from watchbill import App
from watchbill.store.install import install

# What the migrator, the first registration and a new table of time zones change.
CHANGED: Columns = {
    "installation": ["server_started_at", "database_oid", "jobs_oid", "timeline", "generation"],
    "schema_functions": ["checksum", "applied_at", "watchbill_version", "signatures"],
    "facades": ["checksum", "installed_at"],
    "zones": ["id"],
    "limits": ["count", "per", "burst"],
    "limit_states": ["arrival"],
}
# How many jobs of each kind the dump has: fill_schema_0011.sql.
KINDS = {
    "succeeded": 2, "skipped": 1, "dead": 1, "canceled": 1, "retrying": 1, "timed out": 1, "snoozed": 1,
    "quarantined": 1, "ready": 1, "urgent": 1, "old version": 1, "delayed": 1, "labeled": 1, "unsupported": 1,
    "paused": 1, "in a paused queue": 1, "running with a limit": 1, "parked by a limit": 1, "started with a rate": 1,
    "parked by a rate": 1, "first of an order": 1, "second of an order": 1, "running": 1, "stopping": 1, "blocked": 1,
    "blocked by two": 1, "fair": 2, "routed": 2, "with a key": 2, "unique": 1, "of a tenant": 2, "of a schedule": 1,
    "of a slot": 1,
}  # fmt: skip
STAY = {"delayed", "labeled", "unsupported", "paused", "in a paused queue", "routed"}
ENDED = {"dead": "dead", "canceled": "canceled", "stopping": "canceled"}  # the other jobs succeed
SHAPES: dict[str, LiteralString] = {
    "functions": """
        SELECT p.oid::regprocedure::text, p.prosrc, p.proargnames::text, p.prosecdef, p.proconfig::text
        FROM pg_proc p WHERE p.pronamespace = 'watchbill'::regnamespace""",
    "columns": """
        SELECT c.relname, a.attname, a.atttypid::regtype::text, a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition""",
    "indexes": """
        SELECT pg_get_indexdef(i.indexrelid)
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
        WHERE c.relnamespace = 'watchbill'::regnamespace AND NOT c.relispartition""",
    "constraints": """
        SELECT c.relname, pg_get_constraintdef(x.oid)
        FROM pg_constraint x JOIN pg_class c ON c.oid = x.conrelid
        WHERE x.connamespace = 'watchbill'::regnamespace AND NOT c.relispartition""",
}
FACADES: dict[str, LiteralString] = {
    "seesaw": "SELECT id FROM seesaw.jobs",
    "jobforge": "SELECT id FROM public.jobforge_jobs",
}
BACKLOG = 50  # jobs of the load that wait at most
STEPS = 30  # jobs that the load ends before the migration starts, and again after it


@dataclass
class Load:
    """A producer and a worker in plain SQL, which know the functions of schema 11 only."""

    url: str
    enqueued: list[UUID] = field(default_factory=list)  # acknowledged
    succeeded: list[UUID] = field(default_factory=list)  # acknowledged
    errors: list[Exception] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(BACKLOG))

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._repeat, args=(work,)) for work in (self._produce, self._consume)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            self.room.release()  # the producer may wait for it
            for thread in threads:
                thread.join(timeout=60)

    def make_progress(self) -> None:
        before = len(self.succeeded)
        until(lambda: self.errors or len(self.succeeded) >= before + STEPS)

    def _repeat(self, work: Any) -> None:
        try:
            with psycopg.connect(self.url, autocommit=True) as connection:
                for _ in work(connection):
                    if self.stopping.is_set():
                        return
        except Exception as error:  # noqa: BLE001 - a test asserts that there was none
            self.errors.append(error)

    def _execute(self, connection: psycopg.Connection[Any], statement: LiteralString, *arguments: object) -> list[Any]:
        """Repeats a statement that was under way when the functions changed: one that it calls may be gone then.
        Repeats also a settle that a lock of the migration has stopped: it has changed nothing, and a worker sends it
        again."""
        try:
            return connection.execute(statement, arguments).fetchall()
        except (psycopg.errors.UndefinedFunction, psycopg.errors.LockNotAvailable):
            return connection.execute(statement, arguments).fetchall()
        except psycopg.errors.InternalError_ as error:
            if not str(error).startswith("cache lookup failed for function"):  # it went while it was running
                raise
            return connection.execute(statement, arguments).fetchall()

    def _produce(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        while True:
            self.room.acquire()
            ((job,),) = self._execute(connection, "SELECT id FROM watchbill.enqueue('load', '{}', queue => 'load')")
            self.enqueued.append(job)
            yield

    def _consume(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        ((epoch,),) = connection.execute("SELECT watchbill.register('load', types => '{\"load\": 1}')").fetchall()
        while True:
            claim = "SELECT id, fence FROM watchbill.claim(%s, '{load}', 10, 10)"
            held = self._execute(connection, claim, epoch)
            ids, fences = [job for job, _ in held], [fence for _, fence in held]
            settle = "SELECT id, state FROM watchbill.settle(%s, %s, %s)"
            assert self._execute(connection, settle, epoch, ids, fences) == []  # names what did not succeed
            self.succeeded.extend(ids)
            for _ in held:
                self.room.release()
            yield


@dataclass
class Upgrade:
    """A schema 11 that was migrated, with what was in it before and after."""

    schema: OldSchema
    load: Load
    before: Rows
    after: Rows
    jobs_before: list[dict[str, Any]]
    jobs_after: list[dict[str, Any]]
    states_of_load: dict[UUID, str]
    tenants: Counter[tuple[str, str]]  # of dependencies and of their children
    facades: dict[str, set[UUID]]  # the jobs that each one shows
    rates: dict[str, list[Any]]  # each with its last start and its next


@pytest.fixture(scope="module")
def upgrade(server: Server) -> Iterator[Upgrade]:
    with load_schema(server) as schema, psycopg.connect(schema.superuser_url, autocommit=True) as reader:
        columns = {
            table: [name for name in names if name not in CHANGED.get(table, ())]
            for table, names in read_columns(reader).items()
        }
        load = Load(schema.url)
        load.enqueued += enqueue_chain(reader, "acme")
        start_with_a_rate(reader)
        before, jobs_before = read_rows(reader, columns), read_jobs(reader)
        with load.running():
            load.make_progress()
            install(schema.url)
            load.make_progress()
        states = {job["id"]: job["state"] for job in read_jobs(reader, "load")}
        facades = {name: {job for (job,) in reader.execute(query)} for name, query in FACADES.items()}
        after, jobs_after = read_rows(reader, columns), read_jobs(reader)
        tenants = Counter(
            reader.execute(
                "SELECT d.tenant, j.tenant FROM watchbill.dependencies d JOIN watchbill.job j ON j.id = d.child"
            )
        )
        rates = {name: row for name, *row in reader.execute(RATES)}
        yield Upgrade(schema, load, before, after, jobs_before, jobs_after, states, tenants, facades, rates)


RATES = """
    SELECT l.name, r.count, r.per::text, r.evenly, (s.windows[1]).totals, s.next_at IS NULL, f.at
    FROM watchbill.limits l
    CROSS JOIN unnest(l.rates) r
    JOIN watchbill.limit_states s ON s.name = l.name
    CROSS JOIN LATERAL watchbill._find_free_time(l.rates, s.windows, 1) f"""


def start_with_a_rate(connection: psycopg.Connection[Any]) -> None:
    """The dump has a rate of one a second only. This one allows three at once."""
    connection.execute("SELECT watchbill.set_limit('calls', count => 11, per => '1 minute', burst => 3)")
    connection.execute(
        "INSERT INTO watchbill.limit_states (key, name, arrival) VALUES ('key:calls', 'calls', '2024-01-15 03:00:15Z')"
    )


def enqueue_chain(connection: psycopg.Connection[Any], tenant: str) -> list[UUID]:
    """The dump has jobs that wait for others in the default tenant only."""
    enqueue = (
        "SELECT id FROM watchbill.enqueue('load', queue => 'chain', tenant => %(tenant)s, depends_on => %(parents)s)"
    )
    jobs: list[UUID] = []
    for _ in range(2):
        jobs += [row[0] for row in connection.execute(enqueue, {"tenant": tenant, "parents": jobs[-1:] or None})]
    return jobs


def read_jobs(reader: psycopg.Connection[Any], type: str | None = None) -> list[dict[str, Any]]:
    """The jobs of the dump as the view shows them, or those of the type."""
    statement = (
        "SELECT id, state, wait, attempt, run, lost, run_at, tenant, queue, payload, result, error"
        " FROM watchbill.job WHERE type = %(type)s OR %(type)s::text IS NULL AND type <> 'load' ORDER BY id"
    )
    return reader.cursor(row_factory=dict_row).execute(statement, {"type": type}).fetchall()


pytestmark = pytest.mark.every_server


def test_dump_has_jobs_of_every_kind(upgrade: Upgrade) -> None:
    assert Counter(job["payload"]["kind"] for job in upgrade.jobs_before) == KINDS
    assert [table for table, rows in sorted(upgrade.before.items()) if not rows] == [
        "erasures", "pruned_slot_counts", "tenant_roles",
    ]  # fmt: skip


def test_everything_that_was_there_is_there_with_the_same_state(upgrade: Upgrade) -> None:
    assert upgrade.jobs_after == upgrade.jobs_before
    gone = {table: rows - upgrade.after[table] for table, rows in upgrade.before.items()}
    assert {table: rows for table, rows in gone.items() if rows} == {}


def test_no_job_that_was_acknowledged_during_the_migration_is_lost(upgrade: Upgrade) -> None:
    assert upgrade.load.errors == []
    assert set(upgrade.load.enqueued) <= upgrade.states_of_load.keys()
    assert {upgrade.states_of_load[job] for job in upgrade.load.succeeded} == {"succeeded"}
    assert len(upgrade.load.succeeded) == len(set(upgrade.load.succeeded))


def test_upgraded_schema_equals_a_new_one(upgrade: Upgrade, schema_database: str) -> None:
    def read(url: str) -> dict[str, set[tuple[Any, ...]]]:
        with psycopg.connect(url, options="-c search_path=watchbill") as connection:
            return {name: set(connection.execute(query).fetchall()) for name, query in SHAPES.items()}

    upgraded, new = read(upgrade.schema.superuser_url), read(schema_database)
    assert {name: upgraded[name] ^ new[name] for name in SHAPES} == {name: set() for name in SHAPES}


def test_dependencies_have_the_tenant_of_their_jobs(upgrade: Upgrade) -> None:
    assert upgrade.tenants.keys() == {("default", "default"), ("acme", "acme")}


def test_rates_space_their_starts_and_know_the_last(upgrade: Upgrade) -> None:
    """Eleven a minute, three at once, were a step of 7.5 s, and are now one of 6 s."""
    at = datetime(2024, 1, 15, 3, tzinfo=UTC)
    assert upgrade.rates == {
        "mail": [1, "00:00:01", True, [0, 1], False, at + timedelta(seconds=6.147982)],
        "calls": [11, "00:01:00", True, [0, 1], True, at + timedelta(seconds=13.5)],
    }


def test_facades_show_the_jobs_of_the_dump(upgrade: Upgrade) -> None:
    """Those of the tenant for which the session acts."""
    shown = {job["id"] for job in upgrade.jobs_before if job["tenant"] == "default"}
    assert {name: shown - found for name, found in upgrade.facades.items()} == {name: set() for name in FACADES}


def test_jobs_of_the_dump_and_of_the_load_run_after_the_upgrade(upgrade: Upgrade) -> None:
    app = App(upgrade.schema.url, name="new")

    @app.task(type="work")
    def work(kind: str, account: str | None = None) -> str:
        return kind

    @app.task(type="load")
    def load() -> None: ...

    kinds = {job["id"]: job["payload"]["kind"] for job in upgrade.jobs_after}
    expected = {job: ENDED.get(kind, "succeeded") for job, kind in kinds.items() if kind not in STAY}
    expected |= dict.fromkeys(upgrade.load.enqueued, "succeeded")
    queues = ("load", "chain", *{job["queue"] for job in upgrade.jobs_after})
    with psycopg.connect(upgrade.schema.superuser_url, autocommit=True) as reader:

        def find_others() -> list[dict[str, Any]]:
            """Retention may have deleted jobs that had ended before."""
            jobs = [*read_jobs(reader), *read_jobs(reader, "load")]
            return [job for job in jobs if job["id"] in expected and job["state"] != expected[job["id"]]]

        with app.node(queues=queues, lease="1s"):
            until(lambda: not find_others())
            assert work.enqueue("new").result(timeout=60) == "new"
        app.close()
        waiting = {kinds[job["id"]]: job["state"] for job in read_jobs(reader) if kinds.get(job["id"]) in STAY}
        assert waiting == dict.fromkeys(STAY, "queued")
